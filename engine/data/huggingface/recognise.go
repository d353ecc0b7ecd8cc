package huggingface

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/data/stored"
)

// Limits of Recognise and RecogniseList. Folders of images on slow storage may have millions of files. Therefore only a
// few names are read, and no properties of files.
const (
	recogniseEntries = 4096 // number of entries per folder
	recogniseFolders = 16   // number of subfolders
)

// version matches the folder name of a version of a data set in the cache of datasets.
var version = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

// Recognise reports whether a path is a data set in one of the forms of this package, other than a list. It reads only
// some names in at most two levels of folders. Tables next to tar archives describe the archives (img2dataset) and are
// not data sets.
func Recognise(name string) bool {
	if isTable(name) {
		return true
	}
	files, folders := look(name)
	if slices.ContainsFunc(files, isArchive) {
		return false
	}
	has := func(folder string) bool { return slices.Contains(folders, folder) }
	if slices.ContainsFunc(files, isTable) || slices.Contains(files, "dataset_dict.json") ||
		slices.Contains(files, "state.json") && slices.Contains(files, "dataset_info.json") ||
		has("snapshots") && (has("refs") || has("blobs")) { // a folder in the cache of the hub
		return true
	}
	return anyFolder(name, folders, func(folder string) bool {
		files, within := look(folder)
		return !slices.ContainsFunc(files, isArchive) &&
			(slices.ContainsFunc(files, isTable) || slices.ContainsFunc(within, version.MatchString))
	})
}

// anyFolder reports whether check is true for one of the first recogniseFolders folders below name. It checks them at
// the same time: on slow storage each needs some round trips.
func anyFolder(name string, folders []string, check func(folder string) bool) bool {
	var found atomic.Bool
	var all sync.WaitGroup
	for _, folder := range folders[:min(len(folders), recogniseFolders)] {
		all.Go(func() {
			if check(stored.Join(name, folder)) {
				found.Store(true)
			}
		})
	}
	all.Wait()
	return found.Load()
}

func isTable(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".parquet" || ext == ".arrow"
}

func isArchive(name string) bool {
	for _, ending := range []string{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.zstd"} {
		if strings.HasSuffix(strings.ToLower(name), ending) {
			return true
		}
	}
	return false
}

// look returns the names of files and of folders in a folder, at most recogniseEntries. A link without a file extension
// counts as a folder. For a path that is not a readable folder, it returns nothing. Opening the data set later reports
// the cause.
func look(name string) (files, folders []string) {
	if stored.Remote(name) {
		return lookRemote(name)
	}
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil
	}
	defer f.Close() // read only
	for range recogniseEntries / 256 {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			switch base := e.Name(); {
			case strings.HasPrefix(base, "."):
			case e.IsDir() || e.Type()&fs.ModeSymlink != 0 && filepath.Ext(base) == "":
				folders = append(folders, base)
			default:
				files = append(files, base)
			}
		}
		if err != nil {
			break
		}
	}
	slices.Sort(folders) // makes the choice independent of the file system
	return files, folders
}

// lookRemote does the same as look, but for a folder of objects.
func lookRemote(name string) (files, folders []string) {
	folder, err := layout.OpenFolder(name, true)
	if err != nil {
		return nil, nil
	}
	entries, err := folder.List(".")
	if err != nil {
		return nil, nil
	}
	for _, e := range entries[:min(len(entries), recogniseEntries)] {
		if e.Mode.IsDir() {
			folders = append(folders, e.Name)
		} else {
			files = append(files, e.Name)
		}
	}
	return files, folders
}

// RecogniseList reports whether a folder, or one of its subfolders, has a list of images with labels: metadata.csv or
// metadata.jsonl with the columns file_name and label.
func RecogniseList(name string) bool {
	if hasList(name) {
		return true
	}
	_, folders := look(name)
	return anyFolder(name, folders, hasList)
}

func hasList(folder string) bool {
	for _, base := range []string{"metadata.csv", "metadata.jsonl"} {
		if columns, err := columnsOfList(stored.Join(folder, base)); err == nil &&
			slices.Contains(columns, pathColumn) && slices.Contains(columns, labelColumn) {
			return true
		}
	}
	return false
}

// RecogniseListFile reports whether a file is a list of images: a CSV, TSV or JSON Lines file with the columns
// file_name and label. A file that also has the column text contains labelled texts, and is not a list of images.
func RecogniseListFile(name string) bool {
	if !isList(name) {
		return false
	}
	columns, err := columnsOfList(name)
	return err == nil && slices.Contains(columns, pathColumn) && slices.Contains(columns, labelColumn) &&
		!slices.Contains(columns, "text")
}

// columnsOfList returns the columns of the first row of a list.
func columnsOfList(path string) ([]string, error) {
	const most = 1 << 16 // bytes of the first row
	f, _, err := stored.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only
	in := bufio.NewReader(io.LimitReader(f, most))
	skipMark(in)
	if ext := strings.ToLower(filepath.Ext(path)); ext == ".csv" || ext == ".tsv" {
		r := csv.NewReader(in)
		r.Comma = separator(in, ext == ".tsv")
		return r.Read()
	}
	line, err := in.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var object map[string]json.RawMessage
	err = json.Unmarshal(bytes.TrimSpace(line), &object)
	var columns []string
	for column := range object {
		columns = append(columns, column)
	}
	return columns, err
}

// skipMark skips the byte order mark of UTF-8, which editors on Windows write.
func skipMark(in *bufio.Reader) {
	if start, err := in.Peek(3); err == nil && string(start) == "\ufeff" {
		in.Discard(3)
	}
}

// separator returns the separator of a CSV or TSV file. The reader must be at the header.
func separator(in *bufio.Reader, tabs bool) rune {
	if tabs {
		return '\t'
	}
	start, _ := in.Peek(4096) // if the file is shorter, start is the whole file
	header, _, _ := bytes.Cut(start, []byte("\n"))
	if bytes.IndexByte(header, ',') < 0 && bytes.IndexByte(header, ';') >= 0 {
		return ';'
	}
	return ','
}
