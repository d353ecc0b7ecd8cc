// Package regular opens untrusted files and refuses any file that is not regular. Opening a named pipe may block
// forever, and a pipe does not support random access.
package regular

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Error is the reason why a file was refused.
type Error struct{ Path, Reason string }

func (e *Error) Error() string { return e.Path + ": " + e.Reason }

// Open opens the regular file path for reading and returns its size and mode.
func Open(path string) (*os.File, os.FileInfo, error) {
	return checked(os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0))
}

// OpenIn is Open for a name in root.
func OpenIn(root *os.Root, name string) (*os.File, os.FileInfo, error) {
	return checked(root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0))
}

// Write opens the regular file path for writing, with the flags of os.OpenFile. Files that it creates are readable by
// all users.
func Write(path string, flags int) (*os.File, error) {
	f, _, err := checked(os.OpenFile(path, flags|syscall.O_NONBLOCK, 0o644))
	return f, err
}

// WriteIn is Write for a name in root.
func WriteIn(root *os.Root, name string, flags int) (*os.File, error) {
	f, _, err := checked(root.OpenFile(name, flags|syscall.O_NONBLOCK, 0o644))
	return f, err
}

// Read returns the contents of the regular file path, at most most bytes; a larger file is an error.
func Read(path string, most int64) ([]byte, error) {
	f, info, err := Open(path)
	return contents(f, info, most, err)
}

// ReadIn is Read for a name in root.
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
	if err == nil && int64(len(text)) > most { // the file has grown meanwhile
		err = &Error{f.Name(), fmt.Sprintf("got more than %d bytes, want at most that", most)}
	}
	return text, err
}

// checked closes and refuses files that are not regular. The flags must include O_NONBLOCK, otherwise opening a pipe
// would wait for its other end.
func checked(f *os.File, err error) (*os.File, os.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &Error{f.Name(), fmt.Sprintf("%v, want a regular file", info.Mode())}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}
