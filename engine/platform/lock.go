package platform

import "errors"

// ErrLocked means that another open file has the lock, of this process or of another one.
var ErrLocked = errors.New("another process has locked the file")
