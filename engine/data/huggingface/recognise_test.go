package huggingface

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data/datatest"
)

func TestRecognise(t *testing.T) {
	for name, c := range map[string]struct {
		files         string
		tables, lists bool
	}{
		"save_to_disk":            {files: "dataset_dict.json train/state.json", tables: true},
		"save_to_disk, one split": {files: "state.json dataset_info.json data-00000-of-00001.arrow", tables: true},
		"a cache":                 {files: "default/0.0.0/0a1/dataset_info.json default/0.0.0/0a1/x-train.arrow", tables: true},
		"Parquet":                 {files: "data/train-00000-of-00001.parquet README.md", tables: true},
		"the cache of the hub":    {files: "blobs/12 refs/main snapshots/0a1/data/train-00000-of-00001.parquet", tables: true},
		"folders behind links":    {files: "blobs/x/t.parquet data->blobs/x", tables: true},
		"img2dataset":             {files: "00000.tar 00000.parquet 00000_stats.json 00001.tar 00001.parquet"},
		"shards in a folder":      {files: "part/00000.tar part/00000.parquet"},
		"another program's state": {files: "state.json a/1.jpg b/2.jpg"},
		"classes":                 {files: "train/a/1.jpg train/b/2.jpg"},
		"classes and notes":       {files: "train/a/1.jpg metadata.csv:id,author a/metadata.jsonl:{\"x\":1}"},
		"a list":                  {files: "1.jpg metadata.csv:file_name,label", lists: true},
		"a list with semicolons":  {files: "1.jpg metadata.csv:\ufeffx;label;file_name", lists: true},
		"lists of parts":          {files: `train/1.jpg train/metadata.jsonl:{"file_name":"1.jpg","label":0}`, lists: true},
		"a list without labels":   {files: "a/1.jpg metadata.csv:file_name,caption"},
	} {
		dir := datatest.Plant(t, strings.Fields(c.files)...)
		if tables, lists := Recognise(dir), RecogniseList(dir); tables != c.tables || lists != c.lists {
			t.Errorf("%s: tables %v, lists %v, want %v and %v", name, tables, lists, c.tables, c.lists)
		}
	}
}

// In a large folder such as ImageNet, Recognise must examine few files. On network storage, it would take minutes to
// examine all of them.
func TestRecogniseReadsFewNames(t *testing.T) {
	dir := t.TempDir()
	for k := range 2 * recogniseEntries {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(k)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if files, folders := look(dir); len(files) != recogniseEntries || len(folders) != 0 {
		t.Errorf("%d files and %d folders, want %d files", len(files), len(folders), recogniseEntries)
	}
}
