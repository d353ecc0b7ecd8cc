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

// Start identifies a process that began to train a run. The file .start contains the Start of the latest process. The
// Result of a process has the same ID, so a run has ended if and only if both IDs are equal. Commands that only open
// the folder write neither file.
type Start struct {
	ID string `json:"id"` // random
	Holder
}

// writeStart writes .start for this process.
func (r *Run) writeStart() error {
	// The holder is equal to that in the lock file, so readers can compare both.
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

// ReadStart returns the Start of the latest process of the run in folder root. It returns fs.ErrNotExist if the run
// never began, or for a copy without hidden files.
func ReadStart(root *os.Root) (start Start, err error) {
	text, err := regular.ReadIn(root, startFile, mostStartBytes)
	if err == nil {
		err = json.Unmarshal(text, &start)
	}
	return start, err
}

// Is reports whether two Holders identify the same use of the folder by the same process.
func (h Holder) Is(other Holder) bool {
	return h.PID == other.PID && h.Host == other.Host && h.Since.Equal(other.Since) && !differ(h.Boot, other.Boot) &&
		!differ(h.Namespace, other.Namespace)
}
