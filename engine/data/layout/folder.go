package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hetero-train/hetero-train/engine/data/stored"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// FollowKey is the configuration key that selects whether links may leave a folder.
const FollowKey = "data.follow_links"

// maxDepth limits the depth of nested folders.
const maxDepth = 32

// Folder lists and opens the files below a folder. It is safe for concurrent use.
type Folder struct {
	path string
	root *os.Root // refuses links that leave the folder; nil: links are followed
	// objects lists the objects below a folder of a bucket, sorted by name; nil: the folder is on this machine.
	objects []string
	// If Broken is true, broken links are listed as files, so that opening them reports the cause. Otherwise a broken
	// link is an error.
	Broken bool
}

// Entry is a file or a folder.
type Entry struct {
	Name string // path relative to the folder, with slashes
	Mode fs.FileMode
}

// OpenFolder opens a folder. The parameter follow allows links that leave the folder.
func OpenFolder(name string, follow bool) (*Folder, error) {
	if stored.Remote(name) {
		return openRemote(name)
	}
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

// Path returns the path of a file for use in this process.
func (f *Folder) Path(name string) string { return stored.Join(f.path, name) }

// Open opens a regular file; see [regular.Open].
func (f *Folder) Open(name string) (stored.File, os.FileInfo, error) {
	if f.root == nil {
		return stored.Open(f.Path(name))
	}
	file, info, err := regular.OpenIn(f.root, filepath.FromSlash(name))
	if err != nil {
		return nil, nil, err // a nil *os.File in the interface would not compare equal to nil
	}
	return file, info, nil
}

func (f *Folder) stat(name string) (os.FileInfo, error) {
	if f.root == nil {
		return os.Stat(f.Path(name))
	}
	return f.root.Stat(filepath.FromSlash(name))
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
	case errors.Is(err, syscall.ELOOP):
		return fmt.Errorf("the link %.200q (target %.200q) needs too many links after each other: "+
			"let the link lead to the final target: %w", name, target, err)
	case f.root != nil && outside == nil:
		return fmt.Errorf("the link %.200q leads out of the folder or is absolute (target %.200q): copy the target into the folder, or set %s = true to follow such links",
			name, target, FollowKey)
	case errors.Is(outside, fs.ErrNotExist):
		return fmt.Errorf("the link %.200q is broken: there is no %.200q; fetch the target (dvc pull, git annex get), or delete the link: %w",
			name, target, fs.ErrNotExist)
	}
	return fmt.Errorf("follow the link %.200q to %.200q: %w", name, target, err)
}

// Check returns an error if follow is false and file is a link that leaves its folder. It is for files that the program
// finds next to the data. A file that the user names may be any link.
func Check(file string, follow bool) error {
	if follow || stored.Remote(file) {
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
