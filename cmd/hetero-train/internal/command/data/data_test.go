package data

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
)

func TestAFileThatCameMeanwhileIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	for _, path := range []string{from, to} {
		if err := os.WriteFile(path, []byte(path), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := nameAnew(from, to); !errors.Is(err, fs.ErrExist) || string(clitest.ReadFile(t, to)) != to {
		t.Errorf("got %v, and the file holds %q", err, clitest.ReadFile(t, to))
	}
}

func TestTheColumnsOfAListDetermineTheDataSet(t *testing.T) {
	for _, c := range []struct {
		base, start string
		images      bool
	}{
		{"base.csv", "file_name,label\na/1.jpg,a\n", true},
		{"base.tsv", "label\tfile_name\na\ta/1.jpg\n", true},
		{"base.jsonl", `{"file_name":"a/1.jpg","label":"a"}` + "\n", true},
		{"text.csv", "text,label\nyes,a\n", false},
		{"text.tsv", "text\tlabel\nyes\ta\n", false},
		{"text.jsonl", `{"text":"yes","label":"a"}` + "\n", false},
		{"origin.jsonl", `{"file_name":"1.txt","text":"yes","label":"a"}` + "\n", false},
	} {
		path := filepath.Join(t.TempDir(), c.base)
		if err := os.WriteFile(path, []byte(c.start), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := guessDataset(context.Background(), path) == "huggingface"; got != c.images {
			t.Errorf("%s: list of images: got %v, want %v", c.base, got, c.images)
		}
		texts := !c.images && filepath.Ext(path) != ".csv"
		if got := namesLabelled(new(cli.App), []string{path}); got != texts {
			t.Errorf("%s: labelled texts: got %v, want %v", c.base, got, texts)
		}
	}
}

func TestTheFilesDetermineTheDataSet(t *testing.T) {
	for files, want := range map[string]string{
		"00000.tar 00000.parquet 00001.tar 00001.parquet": "webdataset", // files that img2dataset writes
		"a/1.jpg b/2.jpg metadata.csv":                    "images",
		"data/train-00000-of-00001.parquet":               "huggingface",
	} {
		dir := t.TempDir()
		for name := range strings.FieldsSeq(files) {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, []byte("id,author\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if got := guessDataset(context.Background(), dir); got != want {
			t.Errorf("%s: got %s, want %s", files, got, want)
		}
	}
}
