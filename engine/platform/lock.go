package platform

import "errors"

// ErrLocked means that another process holds the lock, or that this process holds it through another open file.
var ErrLocked = errors.New("another process has locked the file")
