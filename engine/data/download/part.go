package download

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// openPart opens the part file of an earlier download, or creates an empty one, and computes its hash.
func (t *transfer) openPart() error {
	f, err := regular.Reopen(t.target + ".part")
	if err != nil {
		return err
	}
	t.part, t.sum = f, sha256.New()
	t.done, err = io.CopyBuffer(t.sum, struct{ io.Reader }{f}, make([]byte, 1<<20))
	if err != nil {
		f.Close()
		return err
	}
	t.resumed = t.done > 0
	if t.done > t.MaxBytes {
		if err := t.restart(); err != nil {
			f.Close()
			return err
		}
	}
	return nil
}

// restart truncates part to 0 bytes.
func (t *transfer) restart() error {
	t.sum.Reset()
	t.done, t.resumed = 0, false
	if err := t.part.Truncate(0); err != nil {
		return err
	}
	_, err := t.part.Seek(0, io.SeekStart)
	return err
}

func (t *transfer) append(b []byte) error {
	if t.done+int64(len(b)) > t.MaxBytes {
		return fmt.Errorf("%w: more than %d bytes", ErrMismatch, t.MaxBytes)
	}
	if _, err := t.part.Write(b); err != nil {
		return err
	}
	t.sum.Write(b)
	t.done += int64(len(b))
	t.report(false)
	return nil
}

func (t *transfer) report(last bool) {
	if t.Progress != nil && (last || time.Since(t.reported) > 200*time.Millisecond) {
		t.Progress(t.done, t.total)
		t.reported = time.Now()
	}
}

// publish renames the complete file to its final name.
func (t *transfer) publish() error {
	if err := t.part.Sync(); err != nil {
		return err
	}
	if err := os.Rename(t.part.Name(), t.target); err != nil {
		return err
	}
	return platform.SyncFolder(filepath.Dir(t.target))
}
