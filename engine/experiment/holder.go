package experiment

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// HeldBy returns the process that last locked the run's folder, and whether it still holds the lock. HeldBy itself does
// not lock the folder, so it cannot prevent a run from starting. The result held is nil if this machine cannot know the
// state of the lock: the process runs on another machine or in another container, or the system does not list its
// locks. Without a lock file, HeldBy returns fs.ErrNotExist.
func HeldBy(run *os.Root) (holder Holder, held *bool, err error) {
	lock, info, err := regular.OpenIn(run, lockFile)
	if err != nil {
		return Holder{}, nil, err
	}
	defer lock.Close() // read only
	holder = readHolder(lock)
	_, inode, ok := platform.FileID(info)
	host, err := os.Hostname()
	if !ok || err != nil || host != holder.Host {
		return holder, nil, nil
	}
	if own := self(host); differ(own.Boot, holder.Boot) || differ(own.Namespace, holder.Namespace) {
		return holder, nil, nil // for this process, holder.PID denotes another process or none
	}
	is, err := flocked(inode, holder.PID)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return holder, nil, nil
	}
	return holder, &is, err
}

// differ reports whether two known values are different. The values are unknown on systems without /proc.
func differ(a, b string) bool { return a != "" && b != "" && a != b }

// flocked reports whether /proc/locks lists an exclusive flock(2) of process pid on a file with this inode number. For
// some file systems, the device names in the list differ from those of stat(2). Therefore the process must identify the
// file system.
func flocked(inode uint64, pid int) (bool, error) {
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return false, err
	}
	defer locks.Close() // read only
	for lines := bufio.NewScanner(locks); ; {
		if !lines.Scan() {
			return false, lines.Err()
		}
		// 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
		field := strings.Fields(lines.Text())
		if len(field) < 6 || field[1] != "FLOCK" || field[3] != "WRITE" || field[4] != strconv.Itoa(pid) {
			continue
		}
		if strings.HasSuffix(field[5], fmt.Sprintf(":%d", inode)) {
			return true, nil
		}
	}
}
