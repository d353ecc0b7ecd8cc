//go:build !linux

package measure

import (
	"errors"
	"os"
)

// forget cannot drop a file from the page cache on this system.
func forget(*os.File) error { return errors.ErrUnsupported }

// freeBytes is not available on this system.
func freeBytes(string) (int64, bool) { return 0, false }
