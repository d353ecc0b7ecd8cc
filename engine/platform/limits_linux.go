package platform

import "golang.org/x/sys/unix"

// LockLimit returns the amount of memory, in bytes, that this process may lock to prevent swapping. The result ok is
// false if the limit is unknown.
func LockLimit() (bytes uint64, ok bool) { return limitOf(unix.RLIMIT_MEMLOCK) }

// Space returns the size of the file system of a folder, and the free space that this process may use, both in bytes.
func Space(folder string) (total, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize, nil
}

// ClockFollows reports whether the kernel's clock follows a time server. The result ok is false if this is unknown.
func ClockFollows() (follows, ok bool) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return false, false
	}
	return state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0, true
}
