package huggingface

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// If a ClassLabel column was cast to text, the metadata still contain the names of the classes. The labels must then
// have the numbers of these names.
func TestTextsOfAClassLabel(t *testing.T) {
	type textRow struct {
		Image []byte `parquet:"image"`
		Label string `parquet:"label"`
	}
	features := parquet.KeyValueMetadata("huggingface",
		`{"info": {"features": {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["rose", "daisy", "tulip"]}}}}`)
	for last, want := range map[string]string{"rose": "[2 1 0]", "lily": `"lily" is none of the 3 names of the ClassLabel`} {
		path := filepath.Join(t.TempDir(), "x.parquet")
		image := []byte("x")
		writeRows(t, path, []textRow{{image, "tulip"}, {image, "daisy"}, {image, last}}, features)
		s, err := Open(context.Background(), options(t, path))
		got := fmt.Sprint(err)
		if err == nil {
			labels := []int{}
			for i := range s.Train.Len() {
				labels = append(labels, s.Train.Label(i))
			}
			got = fmt.Sprint(labels)
			s.Close()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", last, got, want)
		}
	}
	type boolRow struct {
		Image []byte `parquet:"image"`
		Label bool   `parquet:"label"`
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	writeRows(t, path, []boolRow{{nil, true}, {nil, false}}, features)
	if _, err := Open(context.Background(), options(t, path)); err == nil || !strings.Contains(err.Error(), "has boolean") {
		t.Errorf("got %v", err)
	}
}

func TestFingerprintsDependOnPaths(t *testing.T) {
	seen := map[string]string{}
	for _, order := range []string{"1.png,a\n2.png,b", "2.png,a\n1.png,b", "1.png,a\n1.png,b"} {
		dir := plant(t, map[string]string{"1.png": "", "2.png": "", "metadata.csv": "file_name,label\n" + order + "\n"})
		s, err := Open(context.Background(), options(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		if other, twice := seen[s.Fingerprint]; twice {
			t.Errorf("the lists %q and %q have the same fingerprint", order, other)
		}
		seen[s.Fingerprint] = order
		s.Close()
	}
}

func heldOut(t testing.TB, dir string, fraction float64) (train, eval string) {
	t.Helper()
	o := options(t, dir)
	o.ValFraction = fraction
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Eval == nil {
		return describe(t, s.Train), ""
	}
	return describe(t, s.Train), describe(t, s.Eval)
}

func TestHeldOutRows(t *testing.T) {
	files := map[string]string{}
	list := "file_name,label\n"
	for k := range 9 {
		files[fmt.Sprintf("%d.png", k+1)] = ""
		list += fmt.Sprintf("%d.png,%c\n", k+1, 'a'+k%2)
	}
	files["metadata.csv"] = list
	dir := plant(t, files)
	for _, fraction := range []float64{1e-9, 0.9} {
		train, eval := heldOut(t, dir, fraction)
		if train == "" || eval == "" || len(strings.Fields(train+" "+eval)) != 9 {
			t.Errorf("fraction %g: %q and %q, want both parts", fraction, train, eval)
		}
	}
	train, eval := heldOut(t, dir, 0)
	if len(strings.Fields(train)) != 9 || eval != "" {
		t.Errorf("fraction 0: %q and %q", train, eval)
	}
}

// If a file is added to the folder, no row may move from one part to the other. Otherwise, a resumed run would evaluate
// on rows of its training.
func TestOtherFilesDoNotChangeTheHeldOutRows(t *testing.T) {
	part := func(files ...string) (eval string) {
		dir := t.TempDir()
		for _, file := range files {
			rows := make([]plainRow, 20)
			for k := range rows {
				rows[k] = plainRow{[]byte{'x'}, int64(k % 2)}
			}
			writeRows(t, filepath.Join(dir, file), rows)
		}
		o := options(t, dir)
		o.Image, o.ValFraction = "image", 0.3
		s, err := Open(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := range s.Eval.Len() {
			if name, _ := s.Eval.(*dataset).Describe(i); strings.HasPrefix(name, "train-00001") {
				eval += name + " "
			}
		}
		return eval
	}
	one := part("train-00001-of-00002.parquet")
	if both := part("train-00000-of-00002.parquet", "train-00001-of-00002.parquet"); one != both || one == "" {
		t.Errorf("got %q alone, and %q with another file", one, both)
	}
}

// Relative paths in a list of data.val_path must be relative to the folder of this list.
func TestListOfAnotherFolderWithoutFollowingLinks(t *testing.T) {
	list := "file_name,label\n1.png,a\n2.png,b\n"
	o := options(t, plant(t, map[string]string{"1.png": "", "2.png": "", "metadata.csv": list}))
	o.FollowLinks = false
	o.ValPath = plant(t, map[string]string{"1.png": "", "2.png": "", "metadata.csv": list})
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := describe(t, s.Eval); got != "1:a 2:b" {
		t.Errorf("got %s", got)
	}
}
