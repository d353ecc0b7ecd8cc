// Package regular opens files of unknown origin for reading. What is no regular file is refused: a named pipe has no end that can be waited for, and no
// place in it can be read at random.
package regular

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// flags: without O_NONBLOCK, opening a pipe would wait for a writer.
const flags = os.O_RDONLY | syscall.O_NONBLOCK

// Open opens the regular file path and tells what it is.
func Open(path string) (*os.File, os.FileInfo, error) {
	f, err := os.OpenFile(path, flags, 0)
	return check(f, err)
}

// OpenIn is Open of a name below root.
func OpenIn(root *os.Root, name string) (*os.File, os.FileInfo, error) {
	f, err := root.OpenFile(name, flags, 0)
	return check(f, err)
}

func check(f *os.File, err error) (*os.File, os.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %v, want a regular file", f.Name(), info.Mode())
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}
