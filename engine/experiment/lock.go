package experiment

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

const lockFile = ".lock"

// lockFolder creates the folder name in output if necessary, and locks it. When the process ends for any reason, the
// kernel releases the lock.
func lockFolder(output *os.Root, name string) (*os.File, error) {
	dir := filepath.Join(output.Name(), name)
	for {
		if err := output.MkdirAll(name, 0o755); err != nil {
			return nil, folderError("create", dir, err)
		}
		lock, err := regular.WriteIn(output, filepath.Join(name, lockFile), os.O_RDWR|os.O_CREATE)
		if errors.Is(err, os.ErrNotExist) {
			continue // another process has just moved the folder
		}
		if err != nil {
			return nil, folderError("lock", dir, err)
		}
		if err := platform.TryLock(lock); err != nil {
			holder := readHolder(lock)
			lock.Close()
			if errors.Is(err, platform.ErrLocked) {
				return nil, &InUseError{Dir: dir, Holder: holder}
			}
			return nil, folderError("lock", dir, err)
		}
		if !isStill(output, name, lock) {
			lock.Close() // another process has moved the folder of this lock
			continue
		}
		if err := writeHolder(lock); err != nil {
			lock.Close()
			return nil, folderError("lock", dir, err)
		}
		return lock, nil
	}
}

func isStill(output *os.Root, name string, lock *os.File) bool {
	held, err := lock.Stat()
	if err != nil {
		return false
	}
	there, err := output.Stat(filepath.Join(name, lockFile))
	return err == nil && os.SameFile(held, there)
}

// self returns the identity of this process.
func self(host string) Holder {
	h := Holder{PID: os.Getpid(), Host: host, Since: time.Now().Round(0)}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		h.Boot = strings.TrimSpace(string(boot))
	}
	if namespace, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		h.Namespace = namespace // such as "pid:[4026531836]"
	}
	return h
}

func writeHolder(lock *os.File) error {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	text, err := json.Marshal(self(host))
	if err != nil {
		return err
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err = lock.WriteAt(append(text, '\n'), 0)
	return err
}

// readHolder returns the identity of the process that holds the lock. It returns the zero Holder if the text is
// incomplete.
func readHolder(lock *os.File) Holder {
	text := make([]byte, 4096)
	n, _ := lock.ReadAt(text, 0)
	var holder Holder
	if json.Unmarshal(text[:n], &holder) != nil {
		return Holder{}
	}
	return holder
}
