package platform

import "errors"

// ErrLocked means that another open file, of this process or of another one, has the lock.
var ErrLocked = errors.New("another process has locked the file")
