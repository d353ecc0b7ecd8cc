package layout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

const (
	// keepFrom is the minimum number of files and folders for which Scan stores the list. Local disks list fewer files
	// within milliseconds, and such a list needs little memory.
	keepFrom = 1000
	// mostTries is the number of lists of other processes that a Scan checks before it lists the folder itself.
	mostTries = 3
	// unusedAfter is the age at which a list of another machine or device is removed. If the machine still uses the
	// list, it lists the folder again. Containers have a new name at each start, and would otherwise leave one list
	// each.
	unusedAfter = 30 * 24 * time.Hour
)

// lockWait limits the time for which a Scan waits for another process. It also applies to file systems whose locks do
// not work. A test replaces it.
var lockWait = 5 * time.Minute

// hostName is the name of this machine, which a test replaces.
var hostName = os.Hostname

// keptList is the file of a stored list.
type keptList struct {
	path   string
	key    string // identifies the folder and the machine; also stored in the file
	prefix string // common prefix of the file names of this folder, on all machines and devices
}

// newKeptList returns the file for a folder in cacheDir. Machines may share cacheDir, but have different folders of the
// same name. Each machine therefore has its own file.
func newKeptList(cacheDir, folder, links string, device uint64) keptList {
	host, err := hostName()
	if err != nil {
		host = "unknown"
	}
	id, _ := os.ReadFile("/etc/machine-id") //nolint:errcheck // containers often have none
	what := folder + "\x00" + links
	where := fmt.Sprintf("\x00%s\x00%s\x00%d", host, id, device)
	prefix := filepath.Base(folder) + "-" + hash(what)
	return keptList{filepath.Join(cacheDir, prefix+"-"+hash(where)+".files"), what + where, prefix + "-"}
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// load returns the list, or nil if the list is missing or damaged. The result info identifies the file; it is nil if
// the file is missing.
//
// On a local file system, load maps the file. The mapping is never removed, because names in messages may refer to it.
// Its memory belongs to the page cache.
func (k keptList) load(o ScanOptions) (t *Tree, info os.FileInfo) {
	file, info, err := regular.Open(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		defer file.Close() // read only
		t, err = k.read(file, int(info.Size()))
	}
	if err == nil {
		return t, info
	}
	if o.Unkept != nil {
		o.Unkept(fmt.Errorf("read the kept list %s: %w", k.path, err))
	}
	return nil, info
}

func (k keptList) read(file *os.File, size int) (*Tree, error) {
	if !fileSystemOf(file).Local {
		contents := make([]byte, size)
		if _, err := io.ReadFull(file, contents); err != nil {
			return nil, err
		}
		return openTree(contents, k.key)
	}
	mapped, err := platform.Map(file, size)
	if err != nil {
		return nil, err
	}
	t, err := openTree(mapped, k.key)
	if err != nil {
		return nil, errors.Join(err, platform.Unmap(mapped))
	}
	return t, nil
}

// replaced reports whether another process has written the file since load returned seen.
func (k keptList) replaced(seen os.FileInfo) bool {
	info, err := os.Stat(k.path)
	if err != nil {
		return false
	}
	return seen == nil || !os.SameFile(info, seen) || !info.ModTime().Equal(seen.ModTime())
}

// used calls o.Kept and returns t.
func (k keptList) used(t *Tree, o ScanOptions) *Tree {
	if t != nil && o.Kept != nil {
		o.Kept(k.path)
	}
	return t
}

// remove removes a file that no longer describes the folder.
func (k keptList) remove(o ScanOptions) {
	if err := os.Remove(k.path); err != nil && !errors.Is(err, fs.ErrNotExist) && o.Unkept != nil {
		o.Unkept(fmt.Errorf("remove the old list: %w", err))
	}
}

// lock locks the file for one writer. A goroutine makes the call, because some network file systems block it forever.
func (k keptList) lock(ctx context.Context) (*filelock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	var lock *filelock.Lock
	ended := make(chan error, 1)
	go func() {
		err := os.MkdirAll(filepath.Dir(k.path), 0o755)
		if err == nil {
			lock, err = filelock.Acquire(ctx, k.path+".lock")
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		return lock, err
	case <-ctx.Done():
		go func() {
			if <-ended == nil {
				lock.Release() //nolint:errcheck // this process has already listed the folder
			}
		}()
		return nil, fmt.Errorf("wait at most %s for the lock %s.lock: %w", lockWait, k.path, ctx.Err())
	}
}

// write replaces the file, and removes lists of the folder that are probably unused. Processes that have mapped a file
// keep its contents.
func (k keptList) write(parts [][]byte) (err error) {
	out, err := regular.Create(k.path + ".part")
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err == nil {
			_, err = out.Write(part)
		}
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(k.path+".part", k.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(k.path+".part"))
	}
	entries, err := os.ReadDir(filepath.Dir(k.path))
	for _, e := range entries {
		name := e.Name()
		if name == filepath.Base(k.path) || !strings.HasPrefix(name, k.prefix) || !strings.HasSuffix(name, ".files") {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > unusedAfter {
			os.Remove(filepath.Join(filepath.Dir(k.path), name)) //nolint:errcheck // it only occupies space
		}
	}
	return err
}
