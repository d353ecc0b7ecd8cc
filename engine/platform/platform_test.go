package platform

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func TestALockExcludesEveryOtherOpenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("contents"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, second := opened(t, path), opened(t, path)
	if err := TryLock(first); err != nil {
		t.Fatal(err)
	}
	if err := TryLock(second); !errors.Is(err, ErrLocked) {
		t.Errorf("a second lock: got %v, want %v", err, ErrLocked)
	}
	// On Windows, other processes cannot read locked bytes. TryLock therefore locks a byte beyond the end of the file,
	// and the contents must remain readable.
	if text, err := os.ReadFile(path); string(text) != "contents" || err != nil {
		t.Errorf("a locked file: got %q, %v, want its contents", text, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := TryLock(second); err != nil {
		t.Errorf("after the first file is closed: got %v, want the lock", err)
	}
}

func opened(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestAMapOutlivesItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("contents"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := Map(f, 7)
	f.Close()
	if err != nil || string(mapped) != "content" {
		t.Fatalf("got %q, %v, want the first 7 bytes", mapped, err)
	}
	if err := Unmap(mapped); err != nil {
		t.Error(err)
	}
}

func TestFoldersAreSynced(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := SyncDir(dir); err != nil {
		t.Error(err)
	}
}

func TestFilesHaveIdentities(t *testing.T) {
	dir := t.TempDir()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	parent, err := os.Stat(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	device, inode, ok := FileID(info)
	if ok != (runtime.GOOS != "windows") {
		t.Errorf("got ok = %v on %s", ok, runtime.GOOS)
	}
	if d, i, _ := FileID(parent); ok && d == device && i == inode {
		t.Errorf("two folders have the number %d:%d", d, i)
	}
}

func TestProcessTimeGrowsWithWork(t *testing.T) {
	before, err := ProcessTime()
	if err != nil {
		t.Fatal(err)
	}
	// The clock of Windows advances in steps of 16 ms, so the test waits for a change.
	for began := time.Now(); ; {
		after, err := ProcessTime()
		if err != nil {
			t.Fatal(err)
		}
		if after-before > 20*time.Millisecond {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("after a minute of work: got %v of CPU time", after-before)
		}
	}
}

func TestFileSystemsAreRecognised(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("file systems are recognised on Linux only")
	}
	for dir, want := range map[string]FileSystem{
		"/proc":    {}, // the times of its files do not follow their contents
		"/dev/shm": {Name: "tmpfs", FolderTimes: true, Local: true},
	} {
		f, err := os.Open(dir)
		if err != nil {
			t.Skip(err)
		}
		defer f.Close()
		if got := FileSystemOf(f); got != want {
			t.Errorf("%s: got %+v, want %+v", dir, got, want)
		}
	}
}
