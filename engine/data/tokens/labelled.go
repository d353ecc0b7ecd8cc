package tokens

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/data/stored"
)

// LabelledEnds are the extensions of files of labelled texts.
var LabelledEnds = []string{".tsv", ".jsonl", ".ndjson"}

// FindLabelled lists the files of labelled texts at path, which is a file or a folder of files. In a folder, the file
// names determine the parts; see package layout. Each part has one file. The parameter followLinks allows links that
// leave the folder.
func FindLabelled(path string, followLinks bool) (Found, error) {
	info, err := stored.Stat(path)
	if err == nil && !info.IsDir() {
		return Found{Train: []string{path}}, nil
	}
	var f Found
	if err == nil {
		f, err = labelledIn(path, followLinks)
	}
	if err != nil {
		advice := ""
		if errors.Is(err, os.ErrNotExist) {
			advice = "set data.path to a file of tab-separated values whose first line is \"text<TAB>label\", or of JSON lines such as {\"text\": \"…\", \"label\": \"…\"}"
		}
		return Found{}, fault("find labelled texts", path, advice, err)
	}
	f.Folder = true
	return f, nil
}

func labelledIn(dir string, followLinks bool) (f Found, err error) {
	folder, err := layout.OpenFolder(dir, followLinks)
	if err != nil {
		return f, err
	}
	defer folder.Close() // read only
	entries, err := folder.List(".")
	if err != nil {
		return f, err
	}
	var files []string
	for _, e := range entries {
		if !e.Mode.IsDir() && slices.Contains(LabelledEnds, filepath.Ext(e.Name)) {
			files = append(files, folder.Path(e.Name))
		}
	}
	if len(files) == 0 {
		return f, errors.New("no files that end in " + strings.Join(LabelledEnds, ", "))
	}
	if f, _, err = divide(files); err != nil {
		return f, err
	}
	for _, list := range [][]string{f.Train, f.Eval} {
		if len(list) > 1 {
			return f, fmt.Errorf("%q and %q are files of the same part, want one file for each part: set data.path and data.val_path to files",
				filepath.Base(list[0]), filepath.Base(list[1]))
		}
	}
	return f, nil
}
