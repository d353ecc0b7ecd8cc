package images

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data/layout"
)

// folder is a folder whose name is that of a part or of a class.
type folder struct {
	name    string
	prefix  string  // path of the folder, with a slash at the end
	members []int32 // indices of its images in the listing
	deep    bool    // some of the images are in subfolders, which are their classes
}

// partFolders are the folders of the parts of a data set.
type partFolders struct {
	around  string                 // folder that encloses all images, with a slash at the end; "" if there is none
	folders map[layout.Part]folder // nil: the data set has no parts
}

// evaluation returns the part for evaluation: the validation part if there is one, otherwise the test part, or None
// without either.
func (p partFolders) evaluation() (layout.Part, folder) {
	for _, part := range []layout.Part{layout.Validation, layout.Test} {
		if f, ok := p.folders[part]; ok {
			return part, f
		}
	}
	return layout.None, folder{}
}

// list lists the folders for messages.
func (p partFolders) list() string {
	var names []string
	for _, part := range []layout.Part{layout.Train, layout.Validation, layout.Test} {
		if f, ok := p.folders[part]; ok {
			names = append(names, f.prefix)
		}
	}
	return strings.Join(names, ", ")
}

// from describes the origin of the evaluation part.
func from(part layout.Part, f folder) string { return fmt.Sprintf("part %s, %s", part, f.prefix) }

// findParts finds the folders that name parts. A folder with images, but without subfolders of images, is a class, even
// if its name is train or test. findParts returns an error for ambiguous names.
func findParts(l *listing, a *arrangement) (p partFolders, err error) {
	if l.len() == 0 {
		if err := refuseForeign(l.foreign); err != nil {
			return p, err
		}
		return p, errors.New("no image files (" + classEndingsText + ")")
	}
	if l.len() > math.MaxInt32 {
		return p, fmt.Errorf("%d files, want at most %d", l.len(), math.MaxInt32)
	}
	if l.ignored > 0 {
		a.notes = append(a.notes, fmt.Sprintf("%d files without the ending of an image were skipped", l.ignored))
		l.ignored = 0
	}
	if note := skipped(l.foreign); note != "" {
		a.notes = append(a.notes, note)
	}
	p.around = wrapper(l)
	tops, loose := topFolders(l, p.around)
	var named, rest []folder
	var names []string
	deep := false
	for _, f := range tops {
		part, err := layout.PartOf(f.name)
		if err != nil && f.deep {
			return p, err
		}
		if part == layout.None {
			rest = append(rest, f)
			continue
		}
		named, names, deep = append(named, f), append(names, f.name), deep || f.deep
	}
	if !deep {
		return p, flatParts(named, rest)
	}
	parts, err := layout.Folders(names)
	if err != nil {
		return p, err
	}
	if len(rest) > 0 && !slices.ContainsFunc(names, layout.Exact) {
		return p, fmt.Errorf("the folder %.200q may be a part or a class, because the name of %.200q does not name a part: move the class folders into a folder train, or name the parts train, val and test",
			names[0], rest[0].name)
	}
	p.folders = map[layout.Part]folder{}
	for part, name := range parts {
		p.folders[part] = named[slices.Index(names, name)]
	}
	for _, f := range rest {
		loose += len(f.members)
	}
	if loose > 0 {
		a.notes = append(a.notes, fmt.Sprintf("%d images outside the parts (%s) were skipped", loose, p.list()))
	}
	return p, nil
}

// flatParts returns an error for folders that name parts, but have no class folders. A single such name among class
// folders is the name of a class.
func flatParts(named, rest []folder) error {
	exact := map[layout.Part]string{}
	for _, f := range named {
		if part, err := layout.PartOf(f.name); err == nil && layout.Exact(f.name) {
			exact[part] = f.name
		}
	}
	if len(named) > 0 && len(rest) == 0 || len(exact) > 1 {
		return fmt.Errorf("the folder %.200q names a part, but has no class folders, so its images have no classes",
			named[0].name)
	}
	return nil
}

// wrapper returns "NAME/" if a single folder encloses all files, and this folder is neither a part nor a class.
// Otherwise it returns "".
func wrapper(l *listing) string {
	first, _, _ := strings.Cut(l.name(0), "/")
	if part, err := layout.PartOf(first); err == nil && part != layout.None && layout.Exact(first) {
		return ""
	}
	for i := range int32(l.len()) {
		if name := l.name(i); !strings.HasPrefix(name, first+"/") || strings.Count(name, "/") < 2 {
			return ""
		}
	}
	return first + "/"
}

// topFolders groups files by their first folder after prefix, sorted by name. It also counts the files that are not in
// a folder.
func topFolders(l *listing, prefix string) (tops []folder, loose int) {
	index := map[string]int{}
	for i := range int32(l.len()) {
		name, rest, inFolder := strings.Cut(l.name(i)[len(prefix):], "/")
		if !inFolder {
			loose++
			continue
		}
		k, ok := index[name]
		if !ok {
			k = len(tops)
			index[name] = k
			tops = append(tops, folder{name: name, prefix: prefix + name + "/"})
		}
		tops[k].members = append(tops[k].members, i)
		tops[k].deep = tops[k].deep || strings.Contains(rest, "/")
	}
	slices.SortFunc(tops, func(x, y folder) int { return strings.Compare(x.name, y.name) })
	return tops, loose
}
