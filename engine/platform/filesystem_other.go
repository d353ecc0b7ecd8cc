//go:build !linux

package platform

import "os"

// FileSystemOf returns the zero value, because only Linux is supported.
func FileSystemOf(*os.File) FileSystem { return FileSystem{} }
