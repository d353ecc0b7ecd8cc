// Package regular opens untrusted files and refuses all files that are not regular. A named pipe does not support
// random access, and opening it may block forever.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Error reports why a file was refused.
type Error struct{ Path, Reason string }

func (e *Error) Error() string { return e.Path + ": " + e.Reason }

// Open opens the regular file path for reading. It also returns the size and mode of the file.
func Open(path string) (*os.File, os.FileInfo, error) {
	return checked(os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0))
}

// OpenIn opens the regular file name in root; see Open.
func OpenIn(root *os.Root, name string) (*os.File, os.FileInfo, error) {
	return checked(root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0))
}

// Write opens the regular file path for writing, with the given flags of os.OpenFile. If it creates the file, all
// users may read it.
func Write(path string, flags int) (*os.File, error) {
	f, _, err := checked(os.OpenFile(path, flags|syscall.O_NONBLOCK, 0o644))
	return f, err
}

// WriteIn opens the regular file name in root; see Write.
func WriteIn(root *os.Root, name string, flags int) (*os.File, error) {
	f, _, err := checked(root.OpenFile(name, flags|syscall.O_NONBLOCK, 0o644))
	return f, err
}

// Create removes the file or link path, and creates a regular file for reading and writing. Unlike os.Create, it never
// follows a link at path, because another user may have made the link.
func Create(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && !info.IsDir() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
}

// Reopen opens the regular file path for reading and writing, or creates it. Like Create, it follows no link: it
// removes a link at path.
func Reopen(path string) (*os.File, error) {
	for range 10 { // another process may create or remove the file between two calls
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
			if errors.Is(err, fs.ErrExist) {
				continue
			}
			return f, err
		case err != nil:
			return nil, err
		case info.Mode()&fs.ModeSymlink != 0:
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			continue
		}
		f, opened, err := checked(os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case os.SameFile(info, opened):
			return f, nil
		}
		f.Close() // not a regular file of this folder: a link may have led to it
	}
	return nil, &Error{path, "another process replaces the file all the time"}
}

// Read returns the contents of the regular file path. A file of more than limit bytes is an error.
func Read(path string, limit int64) ([]byte, error) {
	f, info, err := Open(path)
	return contents(f, info, limit, err)
}

// ReadIn returns the contents of the regular file name in root; see Read.
func ReadIn(root *os.Root, name string, most int64) ([]byte, error) {
	f, info, err := OpenIn(root, name)
	return contents(f, info, most, err)
}

func contents(f *os.File, info os.FileInfo, most int64, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only
	if info.Size() > most {
		return nil, &Error{f.Name(), fmt.Sprintf("got %d bytes, want at most %d", info.Size(), most)}
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most { // the file has grown since its size was read
		err = &Error{f.Name(), fmt.Sprintf("got more than %d bytes, want at most that", most)}
	}
	return text, err
}

// Kind names the kind of a file for error messages, with an article.
func Kind(mode os.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a regular file"
	case mode.IsDir():
		return "a folder"
	case mode&os.ModeSymlink != 0:
		return "a symbolic link"
	case mode&os.ModeNamedPipe != 0:
		return "a pipe"
	case mode&os.ModeSocket != 0:
		return "a socket"
	case mode&os.ModeDevice != 0:
		return "a device"
	}
	return "a file of an unknown kind"
}

// checked closes and refuses a file that is not regular. The caller must have opened the file with O_NONBLOCK;
// otherwise, opening a pipe could block.
func checked(f *os.File, err error) (*os.File, os.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &Error{f.Name(), fmt.Sprintf("got %s, want a regular file", Kind(info.Mode()))}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}
