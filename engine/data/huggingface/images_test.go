package huggingface

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

type row struct {
	Image string
	Label int
}

// rowsOf returns the rows as the Python library datasets reads them (scripts/huggingface_goldens.py).
func rowsOf(t testing.TB) (train, test []row) {
	t.Helper()
	text, err := os.ReadFile("testdata/rows.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.Unmarshal(all["images_disk/train"], &train),
		json.Unmarshal(all["images_disk/test"], &test)); err != nil || len(train) != 30 || len(test) != 6 {
		t.Fatalf("%d and %d rows, %v", len(train), len(test), err)
	}
	return train, test
}

func options(t testing.TB, path string) Options {
	return Options{Source: Source{Path: path, FollowLinks: true}, CacheDir: t.TempDir(),
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func check(t *testing.T, name string, ds data.Dataset, want []row) {
	t.Helper()
	if ds == nil || ds.Len() != len(want) {
		t.Errorf("%s: got %v, want %d rows", name, ds, len(want))
		return
	}
	r, err := ds.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := len(want) - 1; i >= 0; i-- {
		contents, err := r.(data.Encoded).Contents(i)
		sum := sha256.Sum256(contents)
		if err != nil || hex.EncodeToString(sum[:]) != want[i].Image || ds.Label(i) != want[i].Label {
			t.Errorf("%s: row %d: %d bytes, label %d, %v, want label %d", name, i, len(contents), ds.Label(i), err,
				want[i].Label)
		}
		var img data.Image
		if err := r.Read(i, nil, &img); err != nil || img.Width != 11 || img.Height != 9 {
			t.Errorf("%s: row %d: %d x %d pixels, %v, want 11 x 9", name, i, img.Width, img.Height, err)
		}
	}
}

func TestImagesOfEveryForm(t *testing.T) {
	train, test := rowsOf(t)
	for _, name := range []string{"images_disk", "cache", "cache/flowers/default/0.0.0/0123456789abcdef",
		"images_parquet"} {
		o := options(t, "testdata/"+name)
		for range 2 { // the second pass reads the copies that the first pass created
			s, err := Open(context.Background(), o)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			if got := fmt.Sprint(s.Train.Classes()); got != "[rose daisy tulip]" || !strings.HasSuffix(s.EvalFrom, "test") {
				t.Errorf("%s: classes %s, evaluation on %q", name, got, s.EvalFrom)
			}
			check(t, name, s.Train, train)
			check(t, name, s.Eval, test)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	for _, name := range []string{"images_snappy.parquet", "images_disk/train"} {
		o := options(t, "testdata/"+name)
		o.ValFraction = 0.3
		s, err := Open(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.Eval.Len(); n < 3 || n > 16 || s.Train.Len()+n != 30 || s.OwnEval {
			t.Errorf("%s: %d of 30 rows are held out, want about 9", name, n)
		}
		o.ValFraction, o.All = 0, true
		if s, err = Open(context.Background(), o); err != nil || !s.Same {
			t.Fatalf("%v, %v", s, err)
		}
		check(t, name, s.Eval, train)
		s.Close()
	}
}

func TestACopyThatIsDamagedIsWrittenAgain(t *testing.T) {
	train, _ := rowsOf(t)
	o := options(t, "testdata/images_snappy.parquet")
	for _, damage := range []func(path string) error{
		func(string) error { return nil },
		func(path string) error { return os.Truncate(path, 500) },
		func(path string) error { return os.WriteFile(path, make([]byte, 20000), 0o644) },
	} {
		copies, err := filepath.Glob(filepath.Join(o.CacheDir, "columns/*.column"))
		if err != nil || len(copies) > 1 {
			t.Fatal(copies, err)
		}
		for _, path := range copies {
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		check(t, "copy", s.Train, train)
		s.Close()
	}
}

// The test truncates one of two files of a split.
func TestDamagedFilesAreLeftOut(t *testing.T) {
	train, _ := rowsOf(t)
	for _, c := range []struct {
		files, ending string
		keep          int // number of bytes of the second file
	}{{"images_disk/train/data-0000%d-of-00002.arrow", ".arrow", 3000}, {"images_disk/train/data-0000%d-of-00002.arrow", ".arrow", 40},
		{"images_parquet/data/train-0000%d-of-00002.parquet", ".parquet", 3000}} {
		dir := t.TempDir()
		for k := range 2 {
			contents, err := os.ReadFile("testdata/" + fmt.Sprintf(c.files, k))
			if err != nil {
				t.Fatal(err)
			}
			if k == 1 {
				contents = contents[:c.keep]
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("train-0000%d-of-00002%s", k, c.ending)), contents,
				0o644); err != nil {
				t.Fatal(err)
			}
		}
		o := options(t, dir)
		if _, err := Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), "train-00001-of-00002") {
			t.Errorf("%s: got %v, want a fault that names the second file", c.ending, err)
		}
		o.SkipDamaged = true
		s, err := Open(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		check(t, c.ending, s.Train, train[:15])
		s.Close()
		if len(s.LeftOut) != 1 || !s.LeftOut[0].Whole ||
			!strings.HasPrefix(filepath.Base(s.LeftOut[0].Path), "train-00001") {
			t.Errorf("left out %v, want the second file", s.LeftOut)
		}
	}
}

// If the rows that are left are no data set, the error must first name all damaged files.
func TestDamageComesBeforeConclusions(t *testing.T) {
	whole, err := os.ReadFile("testdata/images_parquet/data/train-00001-of-00002.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ files, want string }{
		{"train-00000-of-00001.parquet", "no rows to train on"},
		{"train-00000-of-00002.parquet train-00001-of-00002.parquet", "no rows to train on"},
	} {
		dir := t.TempDir()
		names := strings.Fields(c.files)
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, name), whole[:3000], 0o644); err != nil {
				t.Fatal(err)
			}
		}
		o := options(t, dir)
		o.SkipDamaged = true
		_, err := Open(context.Background(), o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "all labels") {
			t.Fatalf("%s: got %v, want %q", c.files, err, c.want)
		}
		for _, name := range names {
			if at := strings.Index(err.Error(), name); at < 0 || at > strings.Index(err.Error(), c.want) {
				t.Errorf("%v: want the damage of %s before %q", err, name, c.want)
			}
		}
	}
	b := &builder{files: 3, left: []data.LeftOut{{Path: "x.parquet", Whole: true, Reason: errors.New("truncated")}}}
	want := "1 of 3 files are damaged: x.parquet: truncated; without them: one class"
	if err := b.withDamage(errors.New("one class")); err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSplitsAndColumnsByName(t *testing.T) {
	train, test := rowsOf(t)
	o := options(t, "testdata/images_disk")
	o.TrainSplit, o.EvalSplit, o.Image, o.Label = "test", "train", "image", "label"
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	check(t, "train", s.Train, test)
	check(t, "eval", s.Eval, train)
	for _, c := range []struct {
		change func(o *Options)
		want   string
	}{
		{func(o *Options) { o.TrainSplit = "training" }, `there is no split "training"; the splits are ["train" "test"]`},
		{func(o *Options) { o.Image = "img" }, `there is no column "img"; the columns are ["image" "label"]`},
		{func(o *Options) { o.Image = "label" }, `column "label" has integer, want bytes, paths`},
		{func(o *Options) { o.Label = "image" }, `column "image" has structure, want whole numbers, lists of whole numbers, or texts`},
		{func(o *Options) { o.Path = "testdata/texts_disk" }, "data.image_column: no column has images"},
		{func(o *Options) { o.Path = "testdata" }, "the folder has Arrow files and Parquet files"},
		{func(o *Options) { o.Path = "testdata/rows.json" }, "neither an Arrow nor a Parquet file"},
		{func(o *Options) { o.Path = "missing" }, "no such file"},
		{func(o *Options) { o.Path, o.CacheDir = "testdata/images_snappy.parquet", "images_test.go" },
			"cache folder images_test.go/columns: mkdir images_test.go: not a directory; set data.cache_dir"},
	} {
		o := options(t, "testdata/images_disk")
		c.change(&o)
		_, err := Open(context.Background(), o)
		var fault *data.Fault
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want a fault with %q", err, c.want)
		}
	}
}

// The installed version of the Python library datasets writes the data sets of this test. They contain paths, rows
// without an image, and names as labels.
func TestDataSetsOfThisMachinesLibrary(t *testing.T) {
	python := os.Getenv("HETERO_TORCH")
	if python == "" {
		python = "python3"
	}
	if out, err := exec.Command(python, "-c", "import datasets, PIL").CombinedOutput(); err != nil {
		needtest.Missing(t, "datasets", string(out))
	}
	dir := t.TempDir()
	script := `
import datasets, sys
from datasets import Dataset, Features, Image, Value
from PIL import Image as P
import os
os.makedirs("pictures")
for k in range(6):
    P.new("RGB", (4 + k, 5), (k * 40, 0, 0)).save(f"pictures/{k}.png")
here = os.path.abspath("pictures")
paths = [f"{here}/{k}.png" for k in range(6)]
names = ["b", "a", "b", "a", "c", "a"]
f = Features({"photo": Image(), "kind": Value("string")})
d = Dataset.from_dict({"photo": paths, "kind": names}, features=f)
import pyarrow as pa
with pa.OSFile("paths.arrow", "wb") as out, pa.ipc.new_stream(out, d.data.schema) as w:
    for b in d.data.to_batches(): w.write_batch(b)
d.save_to_disk("disk", num_shards=2)
d.to_parquet("embedded.parquet")
`
	cmd := exec.Command(python, "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"paths.arrow", "disk", "embedded.parquet"} {
		o := options(t, filepath.Join(dir, name))
		o.Label = "kind"
		s, err := Open(context.Background(), o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := fmt.Sprint(s.Train.Classes()); got != "[a b c]" {
			t.Errorf("%s: classes %s", name, got)
		}
		r, err := s.Train.NewReader()
		if err != nil {
			t.Fatal(err)
		}
		for i, label := range []int{1, 0, 1, 0, 2, 0} {
			var img data.Image
			if err := r.Read(i, nil, &img); err != nil || img.Width != 4+i || s.Train.Label(i) != label {
				t.Errorf("%s: row %d: width %d, label %d, %v, want %d and %d", name, i, img.Width, s.Train.Label(i),
					err, 4+i, label)
			}
		}
		r.Close()
		s.Close()
	}
	o := options(t, filepath.Join(dir, "paths.arrow"))
	o.Label, o.FollowLinks = "kind", false
	_, r := opened(t, o)
	if err := r.Read(0, nil, new(data.Image)); err == nil || !strings.Contains(err.Error(), "the path leads out of the folder") {
		t.Errorf("got %v", err)
	}
}

// With SkipDamaged, only damaged files may be left out. If a file cannot be opened for another reason, Open must still
// return an error.
func TestFilesThatCannotBeOpenedAreNotLeftOut(t *testing.T) {
	loop := filepath.Join(t.TempDir(), "train-00001-of-00002.arrow")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	b := &builder{o: Options{SkipDamaged: true}, set: &source{}}
	if _, err := b.part(t.Context(), filepath.Dir(loop), []string{loop}); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("got %v, left out %v, want the error of the system", err, b.left)
	}
	if !isDamage(&damagedError{errors.New("bad page")}) || isDamage(&damagedError{syscall.EMFILE}) ||
		isDamage(errors.New("bad label")) {
		t.Error("want only bad contents to be damage")
	}
}
