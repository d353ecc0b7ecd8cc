package layout

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/platform"
)

var (
	diskFS    = platform.FileSystem{Name: "ext", FolderTimes: true, Local: true}
	networkFS = platform.FileSystem{Name: "nfs", FolderTimes: true}
)

// scanWith scans a folder with the given options.
func scanWith(t *testing.T, dir string, o ScanOptions) *Tree {
	t.Helper()
	f, err := OpenFolder(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tree, err := f.Scan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func keptFiles(t *testing.T, cache, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cache, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestAListOnANetworkFileSystemOutlivesItsFile(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	manyFiles(t, dir)
	settled(t)
	onFileSystem(t, func(*os.File) platform.FileSystem { return networkFS })
	for range 2 {
		tree := scanWith(t, dir, ScanOptions{CacheDir: cache})
		want := paths(t, tree)
		for _, file := range keptFiles(t, cache, "*.files") {
			if err := os.Truncate(file, 0); err != nil { // as if another machine removed the file
				t.Fatal(err)
			}
		}
		if got := paths(t, tree); got != want { // if the file were mapped, SIGBUS would end the process
			t.Errorf("got %d bytes, want %d", len(got), len(want))
		}
	}
}

func TestFoldersAreOpenedForTheirTimesOnNetworkFileSystems(t *testing.T) {
	for fs, want := range map[platform.FileSystem]int64{diskFS: 2, networkFS: 7} { // one more for the file system
		dir, cache := t.TempDir(), t.TempDir()
		manyFiles(t, dir)
		settled(t)
		onFileSystem(t, func(*os.File) platform.FileSystem { return fs })
		scanWith(t, dir, ScanOptions{CacheDir: cache})
		opened, read := foldersOpened.Load(), foldersRead.Load()
		scanWith(t, dir, ScanOptions{CacheDir: cache})
		opened, read = foldersOpened.Load()-opened, foldersRead.Load()-read
		// Several workers may query the file system of the same device at the same time.
		if opened < want || fs.Local && opened > want+2 || read != 0 {
			t.Errorf("%s: opened %d folders and read %d, want %d and 0", fs.Name, opened, read, want)
		}
	}
}

func TestMachinesThatShareACacheHaveTheirOwnLists(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	manyFiles(t, dir)
	settled(t)
	t.Cleanup(func() { hostName = os.Hostname })
	for _, name := range []string{"a", "b", "a"} {
		hostName = func() (string, error) { return name, nil }
		scanned(t, dir, cache)
	}
	files := keptFiles(t, cache, "*.files")
	if len(files) != 2 {
		t.Fatalf("got %q, want a list for each machine", files)
	}
	old := time.Now().Add(-2 * unusedAfter)
	for _, file := range files {
		if err := os.Chtimes(file, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "train/new.jpg"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	scanned(t, dir, cache) // writes the list of folder a
	if files := keptFiles(t, cache, "*.files"); len(files) != 1 {
		t.Errorf("got %q, want one list: that of b is old", files)
	}
}

func TestASmallFolderNeedsNoLock(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "1.jpg"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	scanned(t, dir, cache)
	if files := keptFiles(t, cache, "*"); len(files) > 0 {
		t.Errorf("got %q, want no file", files)
	}
}

// held locks the list of dir in cache, as another process would. This list does not exist, and name is its path. list
// is a complete list of dir in another cache.
func held(t *testing.T, dir, cache string) (lock *filelock.Lock, list, name string) {
	t.Helper()
	first := t.TempDir()
	scanWith(t, dir, ScanOptions{CacheDir: first})
	files := keptFiles(t, first, "*.files")
	if len(files) != 1 {
		t.Fatalf("got %q, want one list", files)
	}
	name = filepath.Join(cache, filepath.Base(files[0]))
	lock, err := filelock.Acquire(t.Context(), name+".lock")
	if err != nil {
		t.Fatal(err)
	}
	return lock, files[0], name
}

func TestAScanThatGetsNoLockListsByItself(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	manyFiles(t, dir)
	lock, _, _ := held(t, dir, cache)
	defer lock.Release()
	lockWait = 20 * time.Millisecond
	t.Cleanup(func() { lockWait = 5 * time.Minute })
	var unkept error
	tree := scanWith(t, dir, ScanOptions{CacheDir: cache, Unkept: func(err error) { unkept = err }})
	if tree.Files() != 1200 || unkept == nil || !strings.Contains(unkept.Error(), "lock") {
		t.Errorf("got %d files and %v, want 1200 and an error of the lock", tree.Files(), unkept)
	}
	if files := keptFiles(t, cache, "*.files"); len(files) > 0 {
		t.Errorf("wrote %q without the lock", files)
	}
}

func TestAWaitingScanChecksWithoutTheLock(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	manyFiles(t, dir)
	settled(t)
	lock, list, name := held(t, dir, cache)
	checked := false
	onFileSystem(t, func(d *os.File) platform.FileSystem {
		if _, err := os.Stat(name); err == nil && d.Name() == dir { // the scan checks the list of the other process
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			l, err := filelock.Acquire(ctx, name+".lock")
			if err != nil {
				t.Error("the scan checks under the lock:", err)
				return diskFS
			}
			l.Release()
			checked = true
		}
		return diskFS
	})
	read := foldersRead.Load()
	released := false
	scanWith(t, dir, ScanOptions{CacheDir: cache, Progress: func(p ScanProgress) {
		if p.Waiting && !released {
			released = true
			if err := os.Rename(list, name); err != nil {
				t.Error(err)
			}
			lock.Release()
		}
	}})
	if n := foldersRead.Load() - read; n != 0 || !checked {
		t.Errorf("read %d folders, checked %v, want the list of the other process", n, checked)
	}
}

func TestACacheInTheFolderItselfKeepsNoList(t *testing.T) {
	for name, want := range map[string]int{".": 0, "train": 0, "lists": 0, ".cache/lists": 1} {
		dir := t.TempDir()
		manyFiles(t, dir)
		cache := filepath.Join(dir, name)
		settled(t)
		var unkept error
		scanWith(t, dir, ScanOptions{CacheDir: cache, Unkept: func(err error) { unkept = err }})
		if n := len(keptFiles(t, cache, "*.files")); n != want || (unkept == nil) != (want == 1) {
			t.Errorf("%s: got %d lists and %v, want %d", name, n, unkept, want)
		}
	}
}

func TestADamagedListWarnsOnce(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	manyFiles(t, dir)
	settled(t)
	scanWith(t, dir, ScanOptions{CacheDir: cache})
	for _, file := range keptFiles(t, cache, "*.files") {
		if err := os.Remove(file); err != nil { // removed, not truncated, because it is mapped
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("damaged"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{1, 0} {
		warnings := 0
		scanWith(t, dir, ScanOptions{CacheDir: cache, Unkept: func(error) { warnings++ }})
		if warnings != want {
			t.Errorf("got %d warnings, want %d", warnings, want)
		}
	}
}
