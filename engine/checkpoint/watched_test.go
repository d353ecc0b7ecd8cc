package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// pieces records the sizes of writes, and the bytes between flushes.
type pieces struct {
	largest, pending, mostPending, total int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.largest, p.pending, p.total = max(p.largest, len(b)), p.pending+len(b), p.total+len(b)
	p.mostPending = max(p.mostPending, p.pending)
	return len(b), nil
}

func (p *pieces) Sync() error {
	p.pending = 0
	return nil
}

func (p *pieces) Close() error { return nil }

// Save must write and flush a tensor of any size in small operations. Otherwise, a slow disk would look like a disk
// that hangs.
func TestAWatchedFileIsWrittenInPieces(t *testing.T) {
	var file pieces
	running := 0
	w := &watchedFile{writeFile: &file, start: func() func() {
		running++
		return func() { running-- }
	}}
	const size = 3*largestFlush + 5
	if n, err := w.Write(make([]byte, size)); n != size || err != nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
	if file.largest > largestWrite || file.mostPending > largestFlush || file.total != size || running != 0 {
		t.Errorf("got %+v, %d operations that have not ended", file, running)
	}
}

// If the folder was removed, the error of Save must not claim that earlier checkpoints are unchanged.
func TestASaveIntoARemovedFolderSaysSo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	store, err := Open(dir, Options{Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Save(context.Background(), Snapshot{}); !errors.Is(err, ErrFolderGone) ||
		!errors.As(err, new(*IOError)) {
		t.Errorf("got %v, want ErrFolderGone", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is there again: %v", err)
	}
}
