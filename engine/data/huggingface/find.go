package huggingface

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/data/stored"
	"github.com/hetero-train/hetero-train/engine/data/table"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Source describes where a data set is.
type Source struct {
	Path    string // a folder or a file
	ValPath string // a folder or a file, all rows of which are for evaluation; "": use the splits of Path
	// TrainSplit and EvalSplit are names of splits; "": the part of a split follows from its name.
	TrainSplit, EvalSplit string
	// If All is set, Train and Eval both contain the same rows: those of the evaluation part if Path has one, otherwise
	// all rows. Package layout defines the parts.
	All         bool
	FollowLinks bool // follow links that leave a folder
}

// Found lists the files of a data set.
type Found struct {
	Train, Eval []string                 // paths
	EvalFrom    string                   // origin of Eval; see data.Splits
	Same        bool                     // Train and Eval are the same files
	Unused      string                   // names of splits that are neither in Train nor in Eval
	Features    map[string]table.Feature // of dataset_info.json; nil if there is none
}

// Open opens one of the files. If the file has no features, it uses those of dataset_info.json. Errors are *data.Fault.
func (f Found) Open(path string) (*table.File, error) {
	t, err := table.Open(path)
	if err != nil {
		return nil, data.FileFault("open data set", path, err)
	}
	if t.Features == nil {
		t.Features = f.Features
	}
	return t, nil
}

// SplitError reports that the names of files and folders do not determine which of them to use.
type SplitError struct {
	Err  error
	Cure string // advice that names keys of the configuration
}

func (e *SplitError) Error() string { return fmt.Sprintf("%v: %s", e.Err, e.Cure) }

// Unwrap returns the error without the advice.
func (e *SplitError) Unwrap() error { return e.Err }

func ambiguous(cure, format string, args ...any) error {
	return &SplitError{fmt.Errorf(format, args...), cure}
}

// file is a data file: Arrow, Parquet, or a list such as metadata.csv.
type file struct {
	path, split string
	dir         string // folder within the data set, with slashes; "" if the data set names its splits
}

const advice = "want a folder of datasets' save_to_disk, of its cache, with .parquet files, or of images with metadata.csv or metadata.jsonl"

// Find lists the files. Its errors are *data.Fault.
func Find(ctx context.Context, s Source) (Found, error) {
	f, err := s.find(ctx)
	if err == nil {
		err = stored.Plan(ctx, slices.Concat(f.Train, f.Eval))
	}
	if err == nil {
		return f, nil
	}
	if ctx.Err() != nil {
		return f, ctx.Err()
	}
	fault := data.FileFault("open data set", s.Path, err)
	if !errors.Is(err, os.ErrNotExist) {
		fault.Advice = advice
	}
	return f, fault
}

func (s Source) find(ctx context.Context) (Found, error) {
	files, features, err := s.list(ctx, s.Path)
	if err != nil {
		return Found{}, err
	}
	out := Found{Features: features}
	var splits []string
	of := map[string][]file{}
	for _, f := range files {
		if of[f.split] == nil {
			splits = append(splits, f.split)
		}
		of[f.split] = append(of[f.split], f)
	}
	filesOf := func(index []int) (all []file) {
		for _, i := range index {
			all = append(all, of[splits[i]]...)
		}
		return all
	}
	name := func(index []int) string {
		var all []string
		for _, i := range index {
			all = append(all, splits[i])
		}
		return strings.Join(all, ", ")
	}
	d, err := s.divide(splits)
	if err != nil {
		return out, err
	}
	train, eval := filesOf(d.Train), filesOf(d.Eval)
	together := [][]file{train, eval}
	if s.TrainSplit == "" || s.EvalSplit == "" {
		together = [][]file{append(slices.Clone(train), eval...)}
	}
	for _, all := range together {
		if err := oneDataSet(all); err != nil {
			return out, err
		}
	}
	out.Train, out.Eval, out.Unused = paths(train), paths(eval), name(d.Unused)
	if d.Part != layout.None || len(d.Eval) > 0 {
		out.EvalFrom = "split " + name(d.Eval)
	}
	switch {
	case s.All && out.Eval == nil:
		out.Eval, out.EvalFrom, out.Same = out.Train, "all samples", true
		if len(splits) > 1 {
			out.EvalFrom = "split " + name(d.Train)
		}
	case s.All && out.Train == nil:
		out.Train, out.Same = out.Eval, true
	case out.Train == nil:
		return out, ambiguous("set data.train_split", "no split is for training; the splits are %q", splits)
	case s.ValPath != "" && !s.All:
		held, _, err := s.list(ctx, s.ValPath)
		if err != nil {
			return out, fmt.Errorf("data.val_path: %w", err)
		}
		if out.Eval != nil {
			out.Unused = name(append(slices.Clone(d.Eval), d.Unused...))
		}
		out.Eval = nil
		for _, f := range held {
			if f.split != held[0].split {
				return out, fmt.Errorf("data.val_path has the splits %q and %q, want one of them", held[0].split,
					f.split)
			}
			out.Eval = append(out.Eval, f.path)
		}
		out.EvalFrom = "all samples of " + s.ValPath
	}
	return out, nil
}

func paths(files []file) (all []string) {
	for _, f := range files {
		all = append(all, f.path)
	}
	return all
}

// oneDataSet returns an error if files are in folders whose names differ in more than the part. Such folders are
// configurations of a data set: languages, tasks, sizes. Folders such as year=2024 are partitions of one data set.
func oneDataSet(files []file) error {
	rest := func(dir string) (elements []string) {
		named := false
		for element := range strings.SplitSeq(path.Clean(dir), "/") {
			part, err := layout.PartOf(element)
			if first := err == nil && part != layout.None && !named; first {
				named = true
			} else if !strings.Contains(element, "=") && element != "." {
				elements = append(elements, element)
			}
		}
		return elements
	}
	for k := 1; k < len(files); k++ {
		if x, y := files[0].dir, files[k].dir; !slices.Equal(rest(x), rest(y)) {
			return ambiguous(
				"set data.path to one configuration, or name its splits in data.train_split and data.eval_split",
				"the folders %q and %q may be different configurations of the data set", path.Clean(x), path.Clean(y))
		}
	}
	return nil
}

// divide assigns the splits to parts, by their names or by the user's choice.
func (s Source) divide(splits []string) (d layout.Division, err error) {
	if s.TrainSplit == "" && s.EvalSplit == "" {
		if len(splits) == 1 && !s.All {
			return layout.Division{Train: []int{0}}, nil
		}
		if d, err = layout.Divide(splits); err != nil {
			err = ambiguous("or set data.train_split and data.eval_split", "%w; the splits are %q", err, splits)
		}
		return d, err
	}
	chosen := func(key, want string) (index []int, err error) {
		for i, split := range splits {
			if want != "" && (split == want || path.Base(split) == want) {
				index = append(index, i)
			}
		}
		if want != "" && index == nil {
			err = fmt.Errorf("%s: there is no split %q; the splits are %q", key, want, splits)
		}
		return index, err
	}
	if d.Train, err = chosen("data.train_split", s.TrainSplit); err != nil {
		return d, err
	}
	if d.Eval, err = chosen("data.eval_split", s.EvalSplit); err != nil {
		return d, err
	}
	if s.TrainSplit == "" {
		rest, err := layout.Divide(splits)
		if err != nil {
			return d, ambiguous("or set data.train_split", "%w; the splits are %q", err, splits)
		}
		d.Train = slices.DeleteFunc(rest.Train, func(i int) bool { return slices.Contains(d.Eval, i) })
	}
	for i := range splits {
		if !slices.Contains(d.Train, i) && !slices.Contains(d.Eval, i) {
			d.Unused = append(d.Unused, i)
		}
	}
	return d, nil
}

// list lists the data files at a path.
func (s Source) list(ctx context.Context, name string) ([]file, map[string]table.Feature, error) {
	info, err := stored.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if !info.IsDir() {
		base, _, _ := strings.Cut(filepath.Base(name), ".")
		return []file{{path: name, split: splitOf(base)}}, nil, nil
	}
	folder, err := layout.OpenFolder(name, s.FollowLinks)
	if err != nil {
		return nil, nil, err
	}
	defer folder.Close() // read only
	l := lister{folder: folder, follow: s.FollowLinks}
	dict, err := l.has("dataset_dict.json")
	if err != nil {
		return nil, nil, err
	}
	state, err := l.has("state.json")
	if err != nil {
		return nil, nil, err
	}
	switch {
	case dict:
		var dict struct {
			Splits []string `json:"splits"`
		}
		if err = l.json("dataset_dict.json", &dict); err == nil && len(dict.Splits) == 0 {
			err = errors.New("dataset_dict.json lists no splits")
		}
		for _, split := range dict.Splits {
			if err == nil {
				err = l.saved(split, split)
			}
		}
	case state:
		err = l.saved(".", "")
	default:
		err = l.walk(ctx)
	}
	return l.files, l.features, err
}

// lister finds the data files of a folder: Arrow and Parquet files, or lists such as metadata.csv.
type lister struct {
	folder   *layout.Folder
	follow   bool // links may leave the folder
	files    []file
	features map[string]table.Feature
}

// has reports whether the folder contains a file. It returns an error if the file exists but cannot be opened.
func (l *lister) has(name string) (bool, error) {
	f, _, err := l.folder.Open(name)
	switch {
	case err == nil:
		f.Close() // read only
		return true, nil
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	}
	return false, err
}

// json parses a small file of the folder.
func (l *lister) json(name string, into any) error {
	const most = 64 << 20
	f, info, err := l.folder.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // read only
	if info.Size() > most {
		return &regular.Error{Path: l.folder.Path(name),
			Reason: fmt.Sprintf("%d bytes, want at most %d", info.Size(), most)}
	}
	if err := json.NewDecoder(f).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// saved lists the files of a folder of save_to_disk. If split is "", the split is the one in state.json.
func (l *lister) saved(dir, split string) error {
	if !filepath.IsLocal(dir) {
		return fmt.Errorf("dataset_dict.json: got split %.100q, want the name of a folder", dir)
	}
	var state struct {
		Files   []struct{ Filename string } `json:"_data_files"`
		Indices []struct{ Filename string } `json:"_indices_files"`
		Split   string                      `json:"_split"`
	}
	if err := l.json(path.Join(dir, "state.json"), &state); err != nil {
		return err
	}
	if len(state.Indices) > 0 {
		return fmt.Errorf("%s: the rows are selected by a separate file of indices: save the data set with a newer version of datasets, or call flatten_indices() before save_to_disk",
			path.Join(dir, "state.json"))
	}
	if len(state.Files) == 0 {
		return fmt.Errorf("%s lists no files", path.Join(dir, "state.json"))
	}
	if split == "" {
		split = state.Split
	}
	for _, one := range state.Files {
		if !filepath.IsLocal(one.Filename) {
			return fmt.Errorf("%s: got file %.100q, want a file of the folder", path.Join(dir, "state.json"),
				one.Filename)
		}
		name := path.Join(dir, one.Filename)
		if !l.follow {
			f, _, err := l.folder.Open(name)
			if err != nil {
				return fmt.Errorf("%s: %w; a link that leaves the folder needs %s = true", name, err, layout.FollowKey)
			}
			f.Close() // read only
		}
		l.files = append(l.files, file{path: l.folder.Path(name), split: split})
	}
	return l.info(dir)
}

// info reads the features of dataset_info.json, if there is one.
func (l *lister) info(dir string) error {
	name := path.Join(dir, "dataset_info.json")
	if l.features != nil {
		return nil
	}
	if found, err := l.has(name); !found {
		return err
	}
	var info struct {
		Features json.RawMessage `json:"features"`
	}
	err := l.json(name, &info)
	l.features = table.ParseFeatures(info.Features)
	return err
}

// shardName matches the end of a file name if a split has several files.
var shardName = regexp.MustCompile(`-\d{5}-of-\d{5}(-[0-9a-f]+)?$`)

// splitOf returns the name of the split of a file. The parameter name is the path of the file without its extension.
func splitOf(name string) string {
	name = shardName.ReplaceAllString(name, "")
	if dir, base := path.Split(name); dir != "" && strings.Trim(base, "0123456789") == "" {
		return path.Clean(dir) // train/0000.parquet
	}
	return name
}

// walk lists the Parquet files of a folder, or the Arrow files of a cache.
func (l *lister) walk(ctx context.Context) error {
	var parquet, arrow, infos, snapshots, lists []string
	err := l.folder.Walk(ctx, func(e layout.Entry) error {
		base := path.Base(e.Name)
		switch {
		case e.Mode.IsDir() && path.Base(path.Dir(e.Name)) == "snapshots":
			snapshots = append(snapshots, e.Name)
		case !e.Mode.IsRegular():
		case base == "dataset_info.json":
			infos = append(infos, path.Dir(e.Name))
		case isMetadata(base):
			lists = append(lists, e.Name)
		case path.Ext(base) == ".parquet":
			parquet = append(parquet, e.Name)
		case path.Ext(base) == ".arrow" && !strings.HasPrefix(base, "cache-") && !strings.HasPrefix(base, "tmp"):
			arrow = append(arrow, e.Name) // names with these prefixes are results of map and filter
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(snapshots) > 1:
		return ambiguous("set data.path to one of them",
			"the folder has %d versions of the data set, such as %q and %q", len(snapshots), snapshots[0], snapshots[1])
	case len(arrow) > 0 && len(parquet) > 0:
		return ambiguous("set data.path to the folder of one form",
			"the folder has Arrow files and Parquet files, such as %q and %q", arrow[0], parquet[0])
	case len(arrow)+len(parquet) == 0 && len(lists) == 0:
		return errors.New("the folder has no .arrow and no .parquet files, and no metadata.csv or metadata.jsonl")
	case len(arrow)+len(parquet) == 0:
		for k, name := range lists {
			if k > 0 && path.Dir(name) == path.Dir(lists[k-1]) {
				return fmt.Errorf("the folder has the lists %q and %q, want one of them", lists[k-1], name)
			}
			l.files = append(l.files, file{l.folder.Path(name), path.Dir(name), path.Dir(name)})
		}
		return nil
	case len(arrow) > 0 && len(infos) > 1:
		return ambiguous("set data.path to one of them", "the folder has several data sets, such as %q and %q",
			infos[0], infos[1])
	case len(arrow) > 0 && len(infos) == 1:
		return l.cached(infos[0], arrow)
	}
	for _, name := range append(arrow, parquet...) {
		l.files = append(l.files, file{l.folder.Path(name), splitOf(strings.TrimSuffix(name, path.Ext(name))),
			path.Dir(name)})
	}
	return nil
}

// cached lists the files of a cache of datasets. dataset_info.json names the splits.
func (l *lister) cached(dir string, arrow []string) error {
	var info struct {
		Splits map[string]json.RawMessage `json:"splits"`
	}
	if err := l.json(path.Join(dir, "dataset_info.json"), &info); err != nil {
		return err
	}
	for _, name := range arrow {
		base := splitOf(strings.TrimSuffix(path.Base(name), ".arrow"))
		found := base
		for split := range info.Splits {
			if strings.HasSuffix(base, "-"+split) && (found == base || len(split) > len(found)) {
				found = split
			}
		}
		l.files = append(l.files, file{path: l.folder.Path(name), split: found})
	}
	return l.info(dir)
}
