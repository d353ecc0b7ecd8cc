package figures

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"gonum.org/v1/plot/vg"
)

// failing is a drawing whose write fails after a part of the data.
type failing struct{ vg.CanvasWriterTo }

func (failing) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, "half")
	return int64(n), errors.Join(err, errors.New("no more"))
}

func TestADrawingThatFailsLeavesTheFormerOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.png")
	if err := os.WriteFile(path, []byte("former"), 0o644); err != nil {
		t.Fatal(err)
	}
	if write(path, failing{}) == nil {
		t.Error("no error")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "former" {
		t.Errorf("got %q and %v, want the former drawing", got, err)
	}
}
