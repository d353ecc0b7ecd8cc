package platform

import (
	"os"
	"syscall"
)

// ChangeTime returns the time of the last change of a file or its properties, in nanoseconds. Programs cannot set this
// time. It is 0 if the system does not report it.
func ChangeTime(info os.FileInfo) int64 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return stat.Ctim.Nano()
}
