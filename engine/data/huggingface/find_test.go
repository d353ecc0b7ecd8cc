package huggingface

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data/datatest"
)

func TestSplitsOfFiles(t *testing.T) {
	for name, c := range map[string]struct {
		files               string
		source              Source
		train, eval, unused string // relative paths; if train begins with "error: ", its rest is the error
	}{
		"files of the hub": {files: "data/train-00000-of-00002.parquet data/train-00001-of-00002-0a1b.parquet " +
			"data/test-00000-of-00001.parquet README.md",
			train: "data/train-00000-of-00002.parquet data/train-00001-of-00002-0a1b.parquet",
			eval:  "data/test-00000-of-00001.parquet"},
		"folders of splits": {files: "default/train/0000.parquet default/train/0001.parquet " +
			"default/validation/0000.parquet default/test/0000.parquet",
			train: "default/train/0000.parquet default/train/0001.parquet", eval: "default/validation/0000.parquet",
			unused: "default/test"},
		"the cache of the hub": {files: "blobs/12 refs/main snapshots/0a1/data/train-00000-of-00001.parquet->../../../blobs/12",
			train: "snapshots/0a1/data/train-00000-of-00001.parquet"},
		"two versions": {files: "snapshots/0a1/train.parquet snapshots/0b2/train.parquet",
			train: "error: the folder has 2 versions of the data set"},
		"another split": {files: "train.parquet unsupervised.parquet test.parquet",
			train: `error: the splits are ["test" "train" "unsupervised"]: or set data.train_split and data.eval_split`},
		"named splits": {files: "train.parquet unsupervised.parquet test.parquet",
			source: Source{TrainSplit: "unsupervised", EvalSplit: "train"},
			train:  "unsupervised.parquet", eval: "train.parquet", unused: "test"},
		"one named split": {files: "a.parquet b.parquet", source: Source{EvalSplit: "b"}, train: "a.parquet",
			eval: "b.parquet"},
		"only a test":  {files: "test.parquet validation.parquet", train: "error: no split is for training"},
		"a test alone": {files: "test.parquet", train: "test.parquet"},
		"evaluation of all": {files: "train.parquet test.parquet", source: Source{All: true}, train: "train.parquet",
			eval: "test.parquet"},
		"evaluation without parts": {files: "x.arrow", source: Source{All: true}, train: "x.arrow", eval: "x.arrow"},
		"results of map":           {files: "x-train.arrow cache-12.arrow tmp34.arrow", train: "x-train.arrow"},
		"configurations": {files: "cola/train/0000.parquet mnli/train/0000.parquet",
			train: `error: the folders "cola/train" and "mnli/train" may be different configurations`},
		"configurations with files of parts": {files: "en/train-00000-of-00001.parquet de/train-00000-of-00001.parquet",
			train: `error: the folders "de" and "en"`},
		"configurations by size": {files: "full/0000.parquet small/0000.parquet", train: `error: the folders "full" and "small"`},
		"parts of different configurations": {files: "cola/train/0000.parquet mnli/test/0000.parquet",
			train: `error: the folders "cola/train" and "mnli/test"`},
		"configurations within parts": {files: "train/en/0000.parquet train/de/0000.parquet",
			train: `error: the folders "train/de" and "train/en"`},
		"a split of all configurations": {files: "cola/train/0000.parquet mnli/train/0000.parquet",
			source: Source{TrainSplit: "train"}, train: `error: the folders "cola/train"`},
		"a split of one configuration": {files: "cola/train/0000.parquet mnli/train/0000.parquet mnli/test/0000.parquet",
			source: Source{TrainSplit: "mnli/train", EvalSplit: "mnli/test"},
			train:  "mnli/train/0000.parquet", eval: "mnli/test/0000.parquet", unused: "cola/train"},
		"partitions": {files: "year=2023/a.parquet year=2024/a.parquet",
			train: "year=2023/a.parquet year=2024/a.parquet"},
		"lists of configurations": {files: "a/metadata.csv b/metadata.csv", train: `error: the folders "a" and "b"`},
		"both forms":              {files: "a.arrow b.parquet", train: "error: Arrow files and Parquet files"},
		"nothing":                 {files: "a.txt", train: "error: no .arrow and no .parquet files"},
		"an empty description":    {files: "state.json", train: "error: EOF"},
	} {
		s := c.source
		s.Path, s.FollowLinks = datatest.Plant(t, strings.Fields(c.files)...), true
		found, err := Find(context.Background(), s)
		if want, bad := strings.CutPrefix(c.train, "error: "); bad {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, %v, want %q", name, found, err, want)
			}
			continue
		}
		relative := func(paths []string) string {
			var names []string
			for _, path := range paths {
				rel, err := filepath.Rel(s.Path, path)
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, filepath.ToSlash(rel))
			}
			return strings.Join(names, " ")
		}
		train, eval := relative(found.Train), relative(found.Eval)
		if err != nil || train != c.train || eval != c.eval || found.Unused != c.unused {
			t.Errorf("%s: got %s, %s, unused %q, %v, want %s, %s, unused %q", name, train, eval, found.Unused, err,
				c.train, c.eval, c.unused)
		}
	}
}

func TestSavedDataSetsThatLeadOutOfTheirFolderAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"_data_files": [{"filename": "../x.arrow"}]}`:                                     "want a file of the folder",
		`{"_data_files": [{"filename": "/x.arrow"}]}`:                                       "want a file of the folder",
		`{"_data_files": []}`:                                                               "lists no files",
		`{"_data_files": [{"filename": "x"}], "_indices_files": [{"filename": "i.arrow"}]}`: "flatten_indices",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Find(context.Background(), Source{Path: dir}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestLinksOfSavedDataSetsStayInTheFolder(t *testing.T) {
	outside := datatest.Plant(t, "x.arrow")
	dir := datatest.Plant(t, "in.arrow", "link.arrow->in.arrow", "away.arrow->"+filepath.Join(outside, "x.arrow"))
	for file, follows := range map[string]bool{"in.arrow": true, "link.arrow": true, "away.arrow": false} {
		state := `{"_data_files": [{"filename": "` + file + `"}]}`
		if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte(state), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Find(context.Background(), Source{Path: dir})
		if follows && err != nil || !follows && (err == nil || !strings.Contains(err.Error(), "data.follow_links = true")) {
			t.Errorf("%s: got %v", file, err)
		}
		if _, err := Find(context.Background(), Source{Path: dir, FollowLinks: true}); err != nil {
			t.Errorf("%s: got %v with follow_links", file, err)
		}
	}
}

// If a description cannot be read, this must be an error. Otherwise, the files would lose their splits and features.
func TestUnreadableDescriptionsAreErrors(t *testing.T) {
	dir := datatest.Plant(t, "dataset_dict.json->dataset_dict.json", "train.parquet") // a link to itself
	if found, err := Find(context.Background(), Source{Path: dir, FollowLinks: true}); err == nil ||
		!strings.Contains(err.Error(), "dataset_dict.json") {
		t.Errorf("got %v, %v", found, err)
	}
}
