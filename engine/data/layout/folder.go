package layout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// FollowKey is the configuration key that selects whether links may leave a folder.
const FollowKey = "data.follow_links"

// maxDepth limits the depth of nested folders.
const maxDepth = 32

// Folder lists and opens the files below a folder. Its methods are safe for concurrent use.
type Folder struct {
	path string
	root *os.Root // refuses links that leave the folder; nil: links are followed
	// Broken lists broken links as files, so that opening them reports the cause. Otherwise a broken link is an error.
	Broken bool
}

// Entry is a file or a folder.
type Entry struct {
	Name string // path relative to the folder, with slashes
	Mode fs.FileMode
}

// OpenFolder opens a folder. follow allows links that leave it.
func OpenFolder(name string, follow bool) (*Folder, error) {
	info, err := os.Stat(name)
	if err == nil && !info.IsDir() {
		err = &regular.Error{Path: name, Reason: fmt.Sprintf("got %s, want a folder", regular.Kind(info.Mode()))}
	}
	if err != nil {
		return nil, err
	}
	f := &Folder{path: name}
	if !follow {
		f.root, err = os.OpenRoot(name)
	}
	return f, err
}

// Close releases the folder.
func (f *Folder) Close() error {
	if f.root == nil {
		return nil
	}
	return f.root.Close()
}

// Path returns the path of a file that the current process can open.
func (f *Folder) Path(name string) string { return filepath.Join(f.path, filepath.FromSlash(name)) }

// Open opens a regular file; see [regular.Open].
func (f *Folder) Open(name string) (*os.File, os.FileInfo, error) {
	if f.root == nil {
		return regular.Open(f.Path(name))
	}
	return regular.OpenIn(f.root, filepath.FromSlash(name))
}

func (f *Folder) stat(name string) (os.FileInfo, error) {
	if f.root == nil {
		return os.Stat(f.Path(name))
	}
	return f.root.Stat(filepath.FromSlash(name))
}

// List returns the entries of a folder, sorted by name, without those of storage systems. Links have the mode of their
// targets.
func (f *Folder) List(dir string) ([]Entry, error) {
	var d *os.File
	var err error
	if f.root == nil {
		d, err = os.Open(f.Path(dir))
	} else {
		d, err = f.root.Open(filepath.FromSlash(dir))
	}
	if err != nil {
		return nil, err
	}
	found, err := d.ReadDir(-1)
	d.Close() // read only
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	entries := make([]Entry, 0, len(found))
	var links []*Entry
	for _, e := range found {
		if System(e.Name()) {
			continue
		}
		entries = append(entries, Entry{path.Join(dir, e.Name()), e.Type()})
		if e.Type()&fs.ModeSymlink != 0 {
			links = append(links, &entries[len(entries)-1]) // entries has its final capacity
		}
	}
	return entries, f.resolve(links)
}

// resolve sets the modes of links to those of their targets. Network storage needs a round trip for each link, so it
// resolves several at a time.
func (f *Folder) resolve(links []*Entry) error {
	const atOnce = 16
	var all sync.WaitGroup
	errs := make([]error, len(links))
	for w := range min(atOnce, len(links)) {
		all.Go(func() {
			for k := w; k < len(links); k += atOnce {
				info, err := f.stat(links[k].Name)
				switch {
				case err == nil:
					links[k].Mode = info.Mode().Type()
				case f.Broken:
					links[k].Mode = 0
				default:
					errs[k] = err
				}
			}
		})
	}
	all.Wait()
	for k, err := range errs {
		if err != nil {
			return f.linkError(links[k].Name, err)
		}
	}
	return nil
}

// linkError explains why a link cannot be followed.
func (f *Folder) linkError(name string, err error) error {
	target, linkErr := os.Readlink(f.Path(name))
	if linkErr != nil {
		target = "?"
	}
	var sys *fs.PathError
	if errors.As(err, &sys) {
		err = sys.Err
	}
	_, outside := os.Stat(f.Path(name))
	switch {
	case f.root != nil && outside == nil:
		return fmt.Errorf("the link %.200q leads out of the folder or is absolute (target %.200q): copy the target into the folder, or set %s = true to follow such links",
			name, target, FollowKey)
	case errors.Is(outside, fs.ErrNotExist):
		return fmt.Errorf("the link %.200q is broken: there is no %.200q; fetch the target (dvc pull, git annex get), or delete the link: %w",
			name, target, fs.ErrNotExist)
	}
	return fmt.Errorf("follow the link %.200q to %.200q: %w", name, target, err)
}

// Walk calls visit for all files and folders below the folder, each folder before its contents, sorted by name. It
// leaves out files of storage systems. A link to a folder that contains the link is an error.
func (f *Folder) Walk(ctx context.Context, visit func(Entry) error) error {
	info, err := f.stat(".")
	if err != nil {
		return err
	}
	return f.walk(ctx, ".", []above{{".", info}}, visit)
}

// above is a folder that contains the current one.
type above struct {
	name string
	info os.FileInfo
}

func (f *Folder) walk(ctx context.Context, dir string, chain []above, visit func(Entry) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(chain) > maxDepth+1 {
		return fmt.Errorf("folder %.200q is more than %d levels deep", dir, maxDepth)
	}
	entries, err := f.List(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := visit(e); err != nil {
			return err
		}
		if !e.Mode.IsDir() {
			continue
		}
		info, err := f.stat(e.Name)
		if err != nil {
			return err
		}
		for _, a := range chain {
			if os.SameFile(a.info, info) {
				return fmt.Errorf("the link %.200q leads to folder %.200q, which contains it: delete the link", e.Name,
					a.name)
			}
		}
		if err := f.walk(ctx, e.Name, append(chain, above{e.Name, info}), visit); err != nil {
			return err
		}
	}
	return nil
}

// Check returns an error if follow is false and file is a link that leaves its folder. It is for a file that the
// program found next to the data; a file that the user names may be any link.
func Check(file string, follow bool) error {
	if follow {
		return nil
	}
	f, err := OpenFolder(filepath.Dir(file), false)
	if err != nil {
		return err
	}
	defer f.Close() // read only
	if _, err := f.stat(filepath.Base(file)); err != nil {
		return f.linkError(filepath.Base(file), err)
	}
	return nil
}
