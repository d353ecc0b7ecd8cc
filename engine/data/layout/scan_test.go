package layout

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// onFileSystem sets the file system that the scans of a test see.
func onFileSystem(t *testing.T, of func(*os.File) platform.FileSystem) {
	fileSystemOf = of
	t.Cleanup(func() { fileSystemOf = platform.FileSystemOf })
}

// settled makes all folders look old to the scans of a test.
func settled(t *testing.T) {
	now = func() time.Time { return time.Now().Add(time.Minute) }
	t.Cleanup(func() { now = time.Now })
}

// manyFiles creates folders with enough files for a stored list.
func manyFiles(t *testing.T, dir string) {
	t.Helper()
	for c := range 4 {
		class := filepath.Join(dir, fmt.Sprintf("train/c%d", c))
		if err := os.MkdirAll(class, 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			if err := os.WriteFile(filepath.Join(class, fmt.Sprintf("%d.jpg", i)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func paths(t *testing.T, tree *Tree) string {
	t.Helper()
	var names []string
	if err := tree.Walk(func(e Entry) error {
		names = append(names, fmt.Sprint(e.Name, " ", e.Mode))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, "\n")
}

// scanned scans a folder with a stored list. fresh is the number of folders whose entries the scan read.
func scanned(t *testing.T, dir, cache string) (tree *Tree, fresh int) {
	t.Helper()
	f, err := OpenFolder(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read := foldersRead.Load()
	tree, err = f.Scan(context.Background(), ScanOptions{CacheDir: cache, Unkept: func(err error) { t.Log(err) }})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := f.Scan(context.Background(), ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := paths(t, tree), paths(t, whole); got != want {
		t.Errorf("the kept list has\n%s\nwant\n%s", got, want)
	}
	return tree, int(foldersRead.Load()-read) - whole.Folders()
}

func TestAKeptListIsCheckedByTheTimesOfItsFolders(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	manyFiles(t, dir)
	settled(t)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string) { t.Helper(); do(os.WriteFile(filepath.Join(dir, name), nil, 0o644)) }
	for _, c := range []struct {
		name   string
		change func()
		fresh  int // number of folders that the scan reads
	}{
		{"the first scan", func() {}, 6},
		{"nothing changed", func() {}, 0},
		{"a file was added", func() { write("train/c1/x.jpg") }, 1},
		{"a file was removed", func() { do(os.Remove(filepath.Join(dir, "train/c2/7.jpg"))) }, 1},
		{"a folder was added", func() { do(os.Mkdir(in("train/c0/a"), 0o755)); write("train/c0/a/1") }, 2},
		{"a folder was renamed", func() { do(os.Rename(in("train/c0"), in("train/b"))) }, 3},
		{"a folder became a link", func() {
			do(os.Rename(filepath.Join(dir, "train/c3"), filepath.Join(dir, "elsewhere")))
			do(os.Symlink("../elsewhere", filepath.Join(dir, "train/c3")))
		}, 4},
		{"the target of the link changed", func() { write("elsewhere/0/../x.png") }, 2},
		{"an old time was restored", func() {
			class := filepath.Join(dir, "train/c1")
			info, err := os.Stat(class)
			do(err)
			write("train/c1/y.jpg")
			do(os.Chtimes(class, info.ModTime(), info.ModTime()))
		}, 1},
	} {
		if c.name == "the target of the link changed" {
			do(os.Mkdir(filepath.Join(dir, "elsewhere/0"), 0o755))
			scanned(t, dir, cache)
		}
		c.change()
		if _, fresh := scanned(t, dir, cache); fresh != c.fresh {
			t.Errorf("%s: read %d folders, want %d", c.name, fresh, c.fresh)
		}
	}
}

func TestAFolderThatHasJustChangedIsReadAgain(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	changed := time.Now()
	manyFiles(t, dir)
	now = func() time.Time { return changed } // a fixed time, because a slow machine may need more than 2 s
	t.Cleanup(func() { now = time.Now })
	for range 2 {
		if _, fresh := scanned(t, dir, cache); fresh != 6 {
			t.Errorf("read %d folders, want all 6, because a change within the same step of time is not seen", fresh)
		}
	}
}

func TestADamagedKeptListIsReplaced(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	manyFiles(t, dir)
	settled(t)
	scanned(t, dir, cache)
	kept, err := filepath.Glob(filepath.Join(cache, "*.files"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("got %v, %v, want one kept list", kept, err)
	}
	whole, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	key := string(whole[headerBytes : headerBytes+binary.LittleEndian.Uint32(whole[12:])])
	if tree, err := openTree(whole, key); err != nil || tree.Files() != 1200 {
		t.Fatalf("got %v, want a list of 1200 files", err)
	}
	if _, err := openTree(whole, key+"x"); err == nil {
		t.Error("a list with another key was opened")
	}
	for at := 0; at < len(whole); at += len(whole)/97 + 1 {
		damaged := append([]byte(nil), whole...)
		damaged[at] ^= 1 << (at % 8)
		for _, b := range [][]byte{damaged, whole[:at], append(append([]byte(nil), whole...), 0)} {
			if tree, err := openTree(b, key); err == nil {
				t.Errorf("byte %d: got %d files, want an error", at, tree.Files())
			}
		}
		if at%5 == 0 {
			if err := os.Remove(kept[0]); err != nil { // removed, not modified in place, because the list is mapped
				t.Fatal(err)
			}
			if err := os.WriteFile(kept[0], damaged, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, fresh := scanned(t, dir, cache); fresh != 6 {
				t.Errorf("byte %d: read %d folders, want 6", at, fresh)
			}
		}
	}
}

func TestRanksThatScanTogether(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	manyFiles(t, dir)
	settled(t)
	before := foldersRead.Load()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			f, err := OpenFolder(dir, true)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			tree, err := f.Scan(context.Background(), ScanOptions{CacheDir: cache})
			if err != nil || tree.Files() != 1200 || tree.Folders() != 6 {
				t.Errorf("got %v, want 1200 files in 6 folders", err)
			}
		})
	}
	all.Wait()
	if n := foldersRead.Load() - before; n != 6 {
		t.Errorf("8 scans read %d folders, want 6", n)
	}
}

func TestAWaitingScanSaysSo(t *testing.T) {
	t.Parallel()
	dir, cache := t.TempDir(), t.TempDir()
	manyFiles(t, dir)
	f, err := OpenFolder(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	scan := func(ctx context.Context, progress func(ScanProgress)) error {
		_, err := f.Scan(ctx, ScanOptions{CacheDir: cache, Progress: progress})
		return err
	}
	if err := scan(t.Context(), nil); err != nil { // creates the lock file
		t.Fatal(err)
	}
	locks, err := filepath.Glob(filepath.Join(cache, "*.lock"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("got %v, %v, want one lock", locks, err)
	}
	lock, err := filelock.Acquire(t.Context(), locks[0])
	if err != nil {
		t.Fatal(err)
	}
	write := filepath.Join(dir, "train/c0/new.jpg") // makes the stored list out of date
	if err := os.WriteFile(write, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	waits, released := false, false
	if err := scan(t.Context(), func(p ScanProgress) {
		waits = waits || p.Waiting
		if p.Waiting && !released {
			released = true
			lock.Release()
		}
	}); err != nil || !waits {
		t.Errorf("got %v, waiting %v, want a report that the scan waits", err, waits)
	}
}

func TestAListThatCannotBeKept(t *testing.T) {
	dir := t.TempDir()
	manyFiles(t, dir)
	cache := filepath.Join(t.TempDir(), "file") // a file, not a folder
	if err := os.WriteFile(cache, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFolder(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got error
	tree, err := f.Scan(context.Background(), ScanOptions{CacheDir: cache, Unkept: func(err error) { got = err }})
	if err != nil || tree.Files() != 1200 || got == nil || !strings.Contains(got.Error(), "keep the list of") {
		t.Errorf("got %v and %v", err, got)
	}
}

// BenchmarkScan lists 200,000 files in 200 folders.
func BenchmarkScan(b *testing.B) {
	dir, cache := b.TempDir(), b.TempDir()
	for c := range 200 {
		class := filepath.Join(dir, fmt.Sprintf("c%03d", c))
		if err := os.Mkdir(class, 0o755); err != nil {
			b.Fatal(err)
		}
		for i := range 1000 {
			f, err := os.Create(filepath.Join(class, fmt.Sprintf("c%03d_%05d.jpg", c, i)))
			if err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	}
	now = func() time.Time { return time.Now().Add(time.Minute) }
	defer func() { now = time.Now }()
	for name, o := range map[string]ScanOptions{"all": {}, "kept": {CacheDir: cache}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f, err := OpenFolder(dir, true)
				if err != nil {
					b.Fatal(err)
				}
				if tree, err := f.Scan(context.Background(), o); err != nil || tree.Files() != 200_000 {
					b.Fatal(err)
				}
				f.Close()
			}
		})
	}
}

func TestTimesAreTrustedOnlyWhereTheyAreMaintained(t *testing.T) {
	elsewhere, err := os.MkdirTemp("/dev/shm", "layout") // another device
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(elsewhere)
	manyFiles(t, elsewhere)
	local := platform.FileSystem{Name: "ext", FolderTimes: true, Local: true}
	for _, c := range []struct {
		name string
		of   func(*os.File) platform.FileSystem
		kept int
	}{
		{"all folders maintain times", func(*os.File) platform.FileSystem { return local }, 1},
		{"the folder is on an unknown file system", func(*os.File) (fs platform.FileSystem) { return fs }, 0},
		{"a link leads to an unknown file system", func(d *os.File) platform.FileSystem {
			if filepath.Base(d.Name()) == "link" {
				return platform.FileSystem{}
			}
			return local
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, cache := t.TempDir(), t.TempDir()
			manyFiles(t, dir)
			if err := os.Symlink(elsewhere, filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			settled(t)
			onFileSystem(t, c.of)
			want := 12
			for range 2 {
				if _, fresh := scanned(t, dir, cache); fresh != want {
					t.Errorf("read %d folders, want %d", fresh, want)
				}
				want = 12 * (1 - c.kept)
			}
			if kept, err := filepath.Glob(filepath.Join(cache, "*.files")); err != nil || len(kept) != c.kept {
				t.Errorf("kept %v, %v, want %d lists", kept, err, c.kept)
			}
		})
	}
}

func TestTheUseOfAKeptListIsReported(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	manyFiles(t, dir)
	settled(t)
	f, err := OpenFolder(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var used []string
	for range 2 {
		used = nil
		if _, err := f.Scan(t.Context(), ScanOptions{CacheDir: cache,
			Kept: func(file string) { used = append(used, file) }}); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := filepath.Glob(filepath.Join(cache, "*.files"))
	if err != nil || len(kept) != 1 || len(used) != 1 || used[0] != kept[0] {
		t.Errorf("got %q, %v, want the name of the kept list %q", used, err, kept)
	}
}

// scanOf returns the error of a scan of a folder.
func scanOf(t *testing.T, dir string, follow bool) error {
	t.Helper()
	f, err := OpenFolder(dir, follow)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.Scan(t.Context(), ScanOptions{})
	return err
}

func TestLinksThatMultiplyFoldersAreRefused(t *testing.T) {
	dir := t.TempDir()
	const levels, links = 5, 6 // 7,776 paths; if there were no limit, the test would still end soon
	for level := range levels + 1 {
		d := filepath.Join(dir, fmt.Sprint("d", level))
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		for k := range links {
			if level == levels {
				break
			}
			if err := os.Symlink(fmt.Sprint("../d", level+1), filepath.Join(d, fmt.Sprint(k))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, follow := range []bool{false, true} {
		err := scanOf(t, dir, follow)
		if err == nil || !strings.Contains(err.Error(), "more than 1000 paths lead to the folder") ||
			!strings.Contains(err.Error(), "delete the link") {
			t.Errorf("follow %v: got %v, want an error that names a link", follow, err)
		}
	}
}

func TestTheNumberOfFoldersIsLimited(t *testing.T) {
	dir := t.TempDir()
	for i := range 10 {
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprintf("c%d/x", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f, err := OpenFolder(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for limit, want := range map[int]bool{19: false, 20: true} {
		s := f.newScan(t.Context(), nil)
		s.limit = limit
		if _, err := s.run(); (err == nil) != want {
			t.Errorf("limit %d: got %v", limit, err)
		}
	}
}

func TestALongChainOfLinksIsNamed(t *testing.T) {
	dir := t.TempDir()
	const links = 300 // more than os.Root and Linux follow
	if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(links)), 0o755); err != nil {
		t.Fatal(err)
	}
	for k := range links {
		if err := os.Symlink(fmt.Sprint(k+1), filepath.Join(dir, fmt.Sprint(k))); err != nil {
			t.Fatal(err)
		}
	}
	for _, follow := range []bool{false, true} {
		err := scanOf(t, dir, follow)
		if err == nil || !strings.Contains(err.Error(), "too many links") || strings.Contains(err.Error(), "leads out") {
			t.Errorf("follow %v: got %v, want an error for too many links", follow, err)
		}
	}
}
