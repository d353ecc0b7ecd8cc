package webdataset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/data/stored"
)

// shards contains the paths of the shards of a data set.
type shards struct {
	train, eval []string
	evalFrom    string // see data.Splits
	unused      string
}

// find lists the shards of both parts.
func (o Options) find(ctx context.Context) (s shards, err error) {
	all, explicit, err := o.expand(ctx, o.Path)
	if err != nil {
		return s, err
	}
	d, relative, err := divide(all)
	if explicit && len(all) == 1 {
		d, err = layout.Division{Train: []int{0}}, nil // nothing to divide
	}
	if err != nil {
		return s, err
	}
	if explicit && len(d.Train) == 0 && len(d.Unused) == 0 { // all shards belong to one part
		d.Train, d.Eval, d.Part = d.Eval, nil, layout.None
	}
	s.train, s.eval, s.unused = pick(all, d.Train), pick(all, d.Eval), names(pick(relative, d.Unused))
	switch {
	case o.All && len(s.train) == 0:
		s.train, s.eval = s.eval, nil
	case len(s.train) == 0:
		return s,
			fmt.Errorf(
				"%s names part %s, but no shard names the training part: rename the training shards, or give a pattern",
				s.eval[0], d.Part)
	case o.ValPath != "" && !o.All:
		s.unused = names(pick(relative, d.Eval))
		return o.findEval(ctx, s)
	}
	if d.Part != layout.None {
		s.evalFrom = fmt.Sprintf("part %s, %s", d.Part, names(pick(relative, d.Eval)))
	} else if o.All {
		s.evalFrom = "all samples"
	}
	return s, nil
}

// findEval lists the shards of ValPath.
func (o Options) findEval(ctx context.Context, s shards) (shards, error) {
	held, _, err := o.expand(ctx, o.ValPath)
	if err != nil {
		return s, err
	}
	d, _, err := divide(held)
	if err == nil && (len(d.Train) > 0 && len(d.Eval) > 0 || len(d.Unused) > 0) {
		err = fmt.Errorf("data.val_path: the shards have parts, %s names part %s: want the shards of one part",
			held[d.Eval[0]], d.Part)
	}
	s.eval, s.evalFrom = held, "all samples of "+o.ValPath
	return s, err
}

func pick(all []string, index []int) (some []string) {
	for _, i := range index {
		some = append(some, all[i])
	}
	return some
}

// names describes a list of shards.
func names(list []string) string {
	switch len(list) {
	case 0:
		return ""
	case 1:
		return list[0]
	}
	return fmt.Sprintf("%s to %s (%d shards)", list[0], list[len(list)-1], len(list))
}

// divide divides shards by their names. The result relative contains the names relative to the folder that contains all
// shards.
func divide(list []string) (d layout.Division, relative []string, err error) {
	separator := string(filepath.Separator)
	if stored.Remote(list[0]) {
		separator = "/"
	}
	common := stored.Dir(list[0])
	for _, s := range list {
		for !strings.HasPrefix(s, common+separator) && common != "." && common != stored.Dir(common) {
			common = stored.Dir(common)
		}
	}
	relative = make([]string, len(list))
	for i, s := range list {
		relative[i] = filepath.ToSlash(strings.TrimPrefix(s, strings.TrimSuffix(common, separator)+separator))
	}
	d, err = layout.Divide(relative)
	return d, relative, err
}

// Expand lists the shards of a pattern in order; the package comment describes patterns. It reads folders and lists,
// but no shards. If a list is a named pipe, Expand waits for the writer until ctx ends.
func Expand(ctx context.Context, pattern string, followLinks bool) ([]string, error) {
	all, _, err := Options{FollowLinks: followLinks}.expand(ctx, pattern)
	return all, err
}

// expand implements Expand. The result explicit is true if the pattern names no folder.
func (o Options) expand(ctx context.Context, pattern string) (all []string, explicit bool, err error) {
	explicit = true
	for _, part := range strings.Split(pattern, "::") {
		if part == "" {
			return nil, false, fmt.Errorf("empty pattern in %.200q", pattern)
		}
		info, err := stat(part)
		var list []string
		switch {
		case err == nil && info.IsDir():
			explicit = false
			list, err = o.inFolder(part)
		case err == nil && filepath.Ext(part) == ".txt" && stored.Remote(part):
			return nil, false, fmt.Errorf("%s: a list of shards must be a file of this machine; its lines may name objects",
				part)
		case err == nil && filepath.Ext(part) == ".txt":
			list, err = fromList(ctx, part)
		case stored.Remote(part) && err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, false, err
		case err == nil:
			list = []string{part} // the file exists, so the braces belong to its name
		default:
			list, err = braces(part, maxShards)
		}
		if err != nil {
			return nil, false, err
		}
		if all = append(all, list...); len(all) > maxShards {
			return nil, false, fmt.Errorf("more than %d shards", maxShards)
		}
	}
	return all, explicit, nil
}

// stat does the same as stored.Stat, but makes no request for patterns of objects.
func stat(part string) (os.FileInfo, error) {
	if stored.Remote(part) && strings.ContainsAny(part, "{}") {
		return nil, fs.ErrNotExist
	}
	return stored.Stat(part)
}

// inFolder lists the shards in a folder and in its subfolders that name parts, sorted by name.
func (o Options) inFolder(dir string) ([]string, error) {
	folder, err := layout.OpenFolder(dir, o.FollowLinks)
	if err != nil {
		return nil, err
	}
	defer folder.Close() // read only
	entries, err := folder.List(".")
	if err != nil {
		return nil, err
	}
	var all, parts []string
	for _, e := range entries {
		if !e.Mode.IsDir() {
			if isShard(e.Name) {
				all = append(all, folder.Path(e.Name))
			}
			continue
		}
		// A folder name with two parts is an error only if the folder contains shards.
		part, err := layout.PartOf(e.Name)
		if part == layout.None && err == nil {
			continue
		}
		within, listErr := folder.List(e.Name)
		if listErr != nil {
			return nil, listErr
		}
		found := false
		for _, w := range within {
			if !w.Mode.IsDir() && isShard(path.Base(w.Name)) {
				all, found = append(all, folder.Path(w.Name)), true
			}
		}
		if found && err != nil {
			return nil, err
		}
		if found {
			parts = append(parts, e.Name)
		}
	}
	if _, err := layout.Folders(parts); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("no .tar, .tar.gz or .tar.zst in " + dir)
	}
	return all, nil
}
