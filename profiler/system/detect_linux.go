package system

import "os"

// Detect describes this machine. If a part cannot be read, it returns the other parts together with an error.
func Detect() (Host, error) { return read(os.DirFS("/"), ownInterfaces()) }
