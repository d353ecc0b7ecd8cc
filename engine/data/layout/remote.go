package layout

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data/stored"
	"github.com/hetero-train/hetero-train/engine/objects"
)

// openRemote lists the objects below a folder of a bucket.
func openRemote(name string) (*Folder, error) {
	list, err := stored.List(context.Background(), name)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no object has this prefix: %w", name, fs.ErrNotExist)
	}
	root, err := objects.Parse(name)
	if err != nil {
		return nil, err
	}
	prefix := strings.TrimSuffix(root.Key, "/")
	if prefix != "" {
		prefix += "/"
	}
	f := &Folder{path: stored.Clean(name), objects: []string{}}
	for _, o := range list {
		within, _ := strings.CutPrefix(o.Name.Key, prefix)
		if within == "" || strings.HasSuffix(within, "/") {
			continue // programs create such objects to show empty folders
		}
		if !fs.ValidPath(within) { // for example a//b, which is not a path
			return nil, fmt.Errorf("got the object %.200q, want a key without empty parts, . and ..", o.Name.String())
		}
		f.objects = append(f.objects, within)
	}
	return f, nil
}

// remoteTree returns the folders and files of a bucket.
func (f *Folder) remoteTree() (*node, error) {
	root := &node{name: ".", known: -1}
	folders := map[string]*node{".": root}
	var folder func(name string) *node
	folder = func(name string) *node {
		n := folders[name]
		if n == nil {
			parent := folder(path.Dir(name))
			n = &node{name: name, parent: parent, depth: parent.depth + 1, known: -1}
			folders[name] = n
			parent.children = append(parent.children, n)
		}
		return n
	}
	for _, name := range f.objects {
		if slices.ContainsFunc(strings.Split(name, "/"), System) {
			continue
		}
		n := folder(path.Dir(name))
		if n.depth > maxDepth {
			return nil, fmt.Errorf("folder %.200q is more than %d levels deep", n.name, maxDepth)
		}
		n.names = append(n.names, path.Base(name)...)
		n.ends, n.kinds = append(n.ends, int32(len(n.names))), append(n.kinds, kindOf(0))
	}
	// Folders are sorted by their last element, as on a disk, and not by their whole names.
	for _, n := range folders {
		slices.SortFunc(n.children, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	}
	return root, nil
}

// remoteEntries returns the entries of one folder of a bucket.
func (f *Folder) remoteEntries(dir string) (entries []Entry, err error) {
	root, err := f.remoteTree()
	if err != nil {
		return nil, err
	}
	n := root
	for n.name != path.Clean(dir) {
		k := slices.IndexFunc(n.children, func(c *node) bool {
			return c.name == path.Clean(dir) || strings.HasPrefix(path.Clean(dir), c.name+"/")
		})
		if k < 0 {
			return nil, fmt.Errorf("%s: %w", f.Path(dir), fs.ErrNotExist)
		}
		n = n.children[k]
	}
	start := int32(0)
	for _, end := range n.ends {
		entries = append(entries, Entry{path.Join(n.name, string(n.names[start:end])), 0})
		start = end
	}
	for _, c := range n.children {
		entries = append(entries, Entry{c.name, fs.ModeDir})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}
