//go:build !linux

package platform

import "os"

// ChangeTime returns 0, because each system has another name for this field of its structure.
func ChangeTime(os.FileInfo) int64 { return 0 }
