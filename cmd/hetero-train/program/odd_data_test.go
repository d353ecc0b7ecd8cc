package program

import (
	"archive/tar"
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// greyPNG returns an image in which all pixels have the same shade.
func greyPNG(t *testing.T, v uint8) []byte {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, 12, 12))
	for i := range img.Pix {
		img.Pix[i] = v
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A run on unusual data must succeed, or end with an error that states the reason (docs/reliability.md, row M5).
func TestOddDataTrainsOrIsRefused(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	constant := func(v uint8) []byte { return greyPNG(t, v) }
	var wide bytes.Buffer
	if err := png.Encode(&wide, image.NewPaletted(image.Rect(0, 0, 400, 1), color.Palette{color.Black})); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		files map[string][]byte
		set   []string
		code  int
		says  string
	}{
		{"constant images", map[string][]byte{"a/1.png": constant(0), "a/2.png": constant(0), "b/1.png": constant(0),
			"b/2.png": constant(0)}, nil, exit.Done, ""},
		{"black and white", map[string][]byte{"a/1.png": constant(0), "b/1.png": constant(255)},
			[]string{"data.batch_size=2"}, exit.Done, ""},
		{"batch 1", map[string][]byte{"a/1.png": constant(3), "b/1.png": constant(9)}, []string{"data.batch_size=1"},
			exit.Done, ""},
		{"one pixel high", map[string][]byte{"a/1.png": wide.Bytes(), "b/1.png": wide.Bytes()},
			[]string{"data.batch_size=1"}, exit.Done, ""},
		{"a single class", map[string][]byte{"a/1.png": constant(1), "a/2.png": constant(2)},
			[]string{"data.batch_size=1"}, exit.Done, "nothing to learn"},
		{"fewer images than a batch", map[string][]byte{"a/1.png": constant(1), "b/1.png": constant(2)},
			[]string{"data.batch_size=8"}, exit.Usage, "batch"},
		{"no images", map[string][]byte{"a/readme.txt": nil}, nil, exit.Data, "no image files (.jpg, .jpeg, .png,"},
		{"an empty class", map[string][]byte{"a/1.png": constant(1), "b/readme.txt": nil}, nil, exit.Data,
			"has no image"},
		{"an empty file", map[string][]byte{"a/1.png": nil, "b/1.png": constant(1)}, []string{"data.batch_size=1"},
			exit.Data, `"a/1.png": empty file`},
		{"text", map[string][]byte{"a/1.png": []byte("no image"), "b/1.png": constant(1)},
			[]string{"data.batch_size=1"}, exit.Data, `"a/1.png": no image of a known format`},
		{"more classes than outputs", map[string][]byte{"a/1.png": constant(1), "b/1.png": constant(2),
			"c/1.png": constant(3)}, []string{"model.num_classes=2", "data.batch_size=1"}, exit.Usage, "classes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, contents := range c.files {
				at := filepath.Join(dir, "data", name)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, contents, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			set := append([]string{"data.dataset=images", "data.path=" + filepath.Join(dir, "data"),
				"data.num_samples=0", "data.batch_size=2", "train.steps=4"}, c.set...)
			finish(t, p.command(dir, set...), 0).check(t, c.code, c.says)
		})
	}
}

// If there are more shards than file handles, the program must close shards that no goroutine reads
// (docs/reliability.md, row F14).
func TestMoreShardsThanFileHandlesAreRead(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	for i := range 100 {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for name, contents := range map[string][]byte{"s.png": greyPNG(t, uint8(i)),
			"s.cls": []byte(strconv.Itoa(i % 2))} {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(contents))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(contents); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("train-%03d.tar", i)), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := p.command(t.TempDir(), "data.dataset=webdataset", "data.path="+dir, "data.num_samples=0", "data.workers=2",
		"train.steps=40")
	finish(t, exec.Command("sh", append([]string{"-c", `ulimit -n 48 && exec "$0" "$@"`, run.Path},
		run.Args[1:]...)...), 0).check(t, exit.Done, "")
}
