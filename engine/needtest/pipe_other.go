//go:build !unix

package needtest

import (
	"errors"
	"fmt"
	"runtime"
)

// MakePipe returns errors.ErrUnsupported: a file system of this system has no named pipes.
func MakePipe(path string) error {
	return fmt.Errorf("create the named pipe %s on %s: %w", path, runtime.GOOS, errors.ErrUnsupported)
}
