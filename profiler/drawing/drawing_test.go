package drawing

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
)

// failing is a drawing that writes a part of its data and then fails.
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

func TestFormatsOfFiles(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{"a.png": "\x89PNG", "b.SVG": "<?xml"} {
		path := filepath.Join(dir, name)
		if err := File(path, Width, Height, NewPlot("title", "x", "y")); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("%s: got %.10q, %v, want %q", name, got, err, want)
		}
	}
	if err := File(filepath.Join(dir, "c.pdf"), Width, Height, NewPlot("", "", "")); !errors.Is(err, ErrFormat) {
		t.Errorf("a PDF file: got error %v, want %v", err, ErrFormat)
	}
}

func TestTicksAreRoundAndFew(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{
		{0, 1.0, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{0, 1581, "0 500 1000 1500"},
		{0, 0.034, "0.000 0.005 0.010 0.015 0.020 0.025 0.030"},
		{-3, 30, "0 5 10 15 20 25 30"},
		{-30, 30, "-30 -20 -10 0 10 20 30"},
		{5, 5, "5"},
	} {
		var labels []string
		for _, tick := range (roundTicks{}).Ticks(c.low, c.high) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%g to %g: got %s, want %s", c.low, c.high, got, c.want)
		}
	}
}
