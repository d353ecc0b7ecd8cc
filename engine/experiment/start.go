package experiment

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/regular"
)

const (
	startFile      = ".start"
	mostStartBytes = 64 << 10
)

// Start identifies a process that began to train a run. .start contains the newest one. The Result of the
// process has the same ID, so a run has ended if and only if the IDs of both files are equal. Commands that only open
// the folder write neither file.
type Start struct {
	ID string `json:"id"` // random
	Holder
}

// writeStart writes .start for this process.
func (r *Run) writeStart() error {
	// equal to the lock's record, so readers can compare both
	start := Start{ID: rand.Text(), Holder: readHolder(r.lock)}
	text, err := json.Marshal(start)
	if err != nil {
		return folderError("write", filepath.Join(r.Dir, startFile), err)
	}
	if err := r.replace(startFile, append(text, '\n')); err != nil {
		return err
	}
	r.start = start.ID
	return nil
}

// ReadStart returns the newest start of the run in the folder root. It returns fs.ErrNotExist for a run that never
// began, and for a copy without hidden files.
func ReadStart(root *os.Root) (start Start, err error) {
	text, err := regular.ReadIn(root, startFile, mostStartBytes)
	if err == nil {
		err = json.Unmarshal(text, &start)
	}
	return start, err
}

// Is reports whether two records identify the same use of the folder by the same process.
func (h Holder) Is(other Holder) bool {
	return h.PID == other.PID && h.Host == other.Host && h.Since.Equal(other.Since) && !differ(h.Boot, other.Boot) &&
		!differ(h.Namespace, other.Namespace)
}
