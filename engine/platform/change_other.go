//go:build !linux

package platform

import "os"

// ChangeTime returns 0: only Linux is supported, because this field has another name on each system.
func ChangeTime(os.FileInfo) int64 { return 0 }
