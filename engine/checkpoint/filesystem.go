package checkpoint

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// fileSystem contains the operations of this package on files in a folder. Names are relative to the folder. The
// interface is small, so that a test can simulate a crash between any two operations.
type fileSystem interface {
	Mkdir(name string) error
	Create(name string) (writeFile, error) // returns an error if name exists
	Rename(from, to string) error          // replaces an existing file
	Remove(name string) error              // removes a file or an empty folder
	SyncDir(name string) error             // flushes created, renamed and removed entries to disk
	Open(name string) (readFile, error)
	ReadDir(name string) ([]string, error)
	Exists(name string) (bool, error)
}

type writeFile interface {
	io.WriteCloser
	Sync() error
}

type readFile interface {
	io.ReaderAt
	io.Closer
	Size() (int64, error)
}

// folder is a fileSystem on disk. Symbolic links cannot lead outside the folder.
type folder struct{ root *os.Root }

func openFolder(path string) (folder, error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() { // OpenRoot of a named pipe would block
		return folder{}, &os.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	root, err := os.OpenRoot(path)
	return folder{root}, err
}

func (f folder) Mkdir(name string) error      { return f.root.Mkdir(name, 0o755) }
func (f folder) Rename(from, to string) error { return f.root.Rename(from, to) }
func (f folder) Remove(name string) error     { return f.root.Remove(name) }

func (f folder) Create(name string) (writeFile, error) {
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err // a nil *os.File in the interface would not compare equal to nil
	}
	return file, nil
}

func (f folder) SyncDir(name string) error {
	dir, err := f.root.Open(name)
	if err != nil {
		return err
	}
	err = platform.SyncDir(dir)
	if closeErr := dir.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (f folder) Open(name string) (readFile, error) {
	file, _, err := regular.OpenIn(f.root, name)
	if err != nil {
		return nil, err
	}
	return diskFile{file}, nil
}

func (f folder) ReadDir(name string) ([]string, error) {
	dir, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

func (f folder) Exists(name string) (bool, error) {
	_, err := f.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

type diskFile struct{ *os.File }

func (d diskFile) Size() (int64, error) {
	stat, err := d.Stat()
	if err != nil {
		return 0, err
	}
	return stat.Size(), nil
}

// removeTree removes a file, or a folder with its contents. It returns no error if name does not exist.
func removeTree(fsys fileSystem, name string) error {
	err := fsys.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	entries, listErr := fsys.ReadDir(name)
	if listErr != nil {
		return err
	}
	for _, entry := range entries {
		if err := removeTree(fsys, name+"/"+entry); err != nil {
			return err
		}
	}
	return fsys.Remove(name)
}

// replaceFile atomically replaces the contents of the named file with text, and flushes them to disk.
func replaceFile(fsys fileSystem, name string, text []byte) error {
	temporary := "." + name + temporarySuffix
	if err := removeTree(fsys, temporary); err != nil {
		return err
	}
	err := createFile(fsys, temporary, text)
	if err == nil {
		err = fsys.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(err, removeTree(fsys, temporary))
	}
	return fsys.SyncDir(".")
}

func createFile(fsys fileSystem, name string, text []byte) error {
	file, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
