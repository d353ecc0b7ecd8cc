package stored

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/objects"
	"github.com/hetero-train/hetero-train/engine/objects/s3test"
)

func body(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// forget removes the state of the package. The process then behaves as if it had not accessed any object.
func forget() {
	state.Lock()
	defer state.Unlock()
	state.options, state.known, state.cache = Options{CacheDir: "\x00"}, nil, nil
}

// serve starts a server, and configures a cache of at most limit bytes. 0 means no cache.
func serve(t *testing.T, limit int64) (*s3test.Server, string) {
	t.Helper()
	s := s3test.New(t)
	dir := t.TempDir()
	forget()
	Configure(Options{CacheDir: dir, CacheBytes: limit, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(forget)
	return s, dir
}

func gets(s *s3test.Server) (n int, received int64) {
	for _, r := range s.Requests() {
		if r.Method == "GET" && r.Range != "" {
			n++
			received += r.Bytes
		}
	}
	return n, received
}

// cached returns the number and the total size of the blocks in a cache. others contains the names of all other files.
func cached(t *testing.T, dir string) (blocks int, size int64, others []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") {
			others = append(others, d.Name())
			return nil
		}
		info, err := d.Info()
		blocks, size = blocks+1, size+info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return blocks, size, others
}

func TestAnObjectReadsLikeAFile(t *testing.T) {
	for _, limit := range []int64{0, 1 << 30} {
		s, dir := serve(t, limit)
		want := body(3*blockBytes + 777)
		s.Store("data", "set/a.tar", want)
		for _, open := range []func(string) (File, os.FileInfo, error){Open, OpenRandom} {
			f, info, err := open("s3://data/set/a.tar")
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() != int64(len(want)) || info.Name() != "a.tar" || !info.Mode().IsRegular() {
				t.Errorf("got %v", info)
			}
			got, err := io.ReadAll(f)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("limit %d: %d bytes, %v", limit, len(got), err)
			}
			for range 50 {
				at, n := rand.IntN(len(want)), rand.IntN(2*blockBytes)
				p := make([]byte, n)
				read, err := f.ReadAt(p, int64(at))
				if end := min(at+n, len(want)); !bytes.Equal(p[:read], want[at:end]) || err != nil && err != io.EOF ||
					(err == io.EOF) != (at+n > len(want)) {
					t.Fatalf("%d bytes at %d: %d, %v", n, at, read, err)
				}
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		blocks, size, others := cached(t, dir)
		if limit > 0 && (blocks != 4 || size != int64(len(want))) || limit == 0 && blocks != 0 || len(others) > 0 {
			t.Errorf("limit %d: %d blocks of %d bytes, and %q", limit, blocks, size, others)
		}
	}
}

func TestManyReadersFetchABlockOnce(t *testing.T) {
	s, _ := serve(t, 1<<30)
	want := body(5 * blockBytes)
	s.Store("data", "a", want)
	s.Delay(5 * time.Millisecond)
	var all sync.WaitGroup
	for w := range 16 {
		all.Go(func() {
			f, _, err := []func(string) (File, os.FileInfo, error){Open, OpenRandom}[w%2]("s3://data/a")
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			p := make([]byte, 1000)
			for k := range 40 {
				at := (w*7919 + k*104729) * 131 % (len(want) - len(p))
				if _, err := f.ReadAt(p, int64(at)); err != nil || !bytes.Equal(p, want[at:at+len(p)]) {
					t.Errorf("at %d: %v", at, err)
				}
			}
		})
	}
	all.Wait()
	if n, bytes := gets(s); n != 5 || bytes != int64(len(want)) {
		t.Errorf("%d requests of %d bytes, want 5 of %d", n, bytes, len(want))
	}
}

func TestADataSetThatExceedsTheCacheIsReadByExactRanges(t *testing.T) {
	s, dir := serve(t, blockBytes)
	s.Store("data", "a", body(2*blockBytes))
	if err := Plan(t.Context(), []string{"s3://data/a", "/local"}); err != nil {
		t.Fatal(err)
	}
	f, _, err := OpenRandom("s3://data/a")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s.Requests()
	for k := range 10 {
		if _, err := f.ReadAt(make([]byte, 100), int64(k*1000)); err != nil {
			t.Fatal(err)
		}
	}
	if n, bytes := gets(s); n != 10 || bytes != 1000 {
		t.Errorf("%d requests of %d bytes, want 10 of 1000", n, bytes)
	}
	if blocks, _, _ := cached(t, dir); blocks != 0 {
		t.Errorf("the cache keeps %d blocks", blocks)
	}
}

func TestTheCacheRemovesTheLeastRecentlyUsedBlocks(t *testing.T) {
	s, dir := serve(t, 4*blockBytes)
	read := func(name string) {
		t.Helper()
		f, _, err := OpenRandom("s3://data/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.ReadAt(make([]byte, 10), 0); err != nil {
			t.Fatal(err)
		}
	}
	for k := range 8 {
		name := fmt.Sprint(k)
		s.Store("data", name, body(blockBytes+0*k))
		read(name)
		read("0") // sets the time of block 0 to the present
		// The kernel may give files that are written at nearly the same time equal times. Set different times in the
		// past instead.
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			info, infoErr := d.Info()
			if err != nil || infoErr != nil || d.IsDir() {
				return err
			}
			return os.Chtimes(path, time.Time{}, info.ModTime().Add(-2*time.Minute))
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, size, _ := cached(t, dir); size > 4*blockBytes {
			t.Errorf("the cache has %d bytes, want at most %d", size, 4*blockBytes)
		}
	}
	s.Requests()
	read("0")
	read("7")
	if n, _ := gets(s); n != 0 {
		t.Errorf("%d requests for blocks that were used last", n)
	}
	read("1")
	if n, _ := gets(s); n != 1 {
		t.Errorf("%d requests for a block that was used long ago, want 1", n)
	}
}

func TestAnInterruptedFetchLeavesNothing(t *testing.T) {
	s, dir := serve(t, 1<<30)
	want := body(blockBytes)
	s.Store("data", "a", want)
	f, _, err := OpenRandom("s3://data/a")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{}, 100)
	s.Inject(func(s3test.Request) *s3test.Fault {
		started <- struct{}{}
		return &s3test.Fault{Cut: 1 << 20}
	})
	done := make(chan error)
	go func() {
		_, err := f.ReadAt(make([]byte, 10), 0)
		done <- err
	}()
	<-started
	f.Close()
	if err := <-done; err == nil {
		t.Error("a read of a closed object succeeded")
	}
	if blocks, _, others := cached(t, dir); blocks != 0 || len(others) > 0 {
		t.Errorf("the cache has %d blocks and the files %q", blocks, others)
	}
	s.Inject(nil)
	f, _, err = OpenRandom("s3://data/a")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, 10)
	if _, err := f.ReadAt(p, 0); err != nil || !bytes.Equal(p, want[:10]) {
		t.Error(err)
	}
	// If a crash of the machine has truncated a block, the block must be fetched again.
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = os.Truncate(path, 5)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(p, 0); err != nil || !bytes.Equal(p, want[:10]) {
		t.Error(err)
	}
}

func TestAChangedObjectIsAnError(t *testing.T) {
	s, _ := serve(t, 0)
	s.Store("data", "a", body(100))
	f, old, err := OpenRandom("s3://data/a")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s.Store("data", "a", body(101)[:100])
	var e *objects.Error
	if _, err := f.ReadAt(make([]byte, 10), 0); !errors.As(err, &e) || !strings.Contains(err.Error(), "changed") {
		t.Errorf("got %v", err)
	}
	forget() // continues as another process would
	_, info, err := Open("s3://data/a")
	if err != nil || Version(info) == Version(old) {
		t.Errorf("the version is the same: %v", err)
	}
}

func TestFoldersOfObjects(t *testing.T) {
	s, _ := serve(t, 0)
	s.Store("data", "set/train/1.tar", []byte("1"))
	s.Store("data", "set/train-2.tar", []byte("12"))
	for _, k := range []struct {
		name string
		dir  bool
		ok   bool
	}{{"s3://data/set", true, true}, {"s3://data/set/", true, true}, {"s3://data", true, true},
		{"s3://data/set/train", true, true}, {"s3://data/set/train-2.tar", false, true}, {"s3://data/se", false, false},
		{"s3://missing-bucket/x", false, false}, {"s3://other", false, false}} {
		info, err := Stat(k.name)
		if (err == nil) != k.ok || k.ok && info.IsDir() != k.dir || !k.ok && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, %v", k.name, info, err)
		}
	}
	list, err := List(context.Background(), "s3://data/set")
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}

func TestPathsOfObjects(t *testing.T) {
	for _, k := range [][2]string{
		{Join("s3://b/x", "y/z"), "s3://b/x/y/z"}, {Join("s3://b", "../../x"), "s3://b/x"}, {Dir("s3://b/x/y"), "s3://b/x"},
		{Dir("s3://b/x"), "s3://b"}, {Dir("s3://b"), "s3://b"}, {Clean("s3://b//x/./y/"), "s3://b/x/y"},
		{Join("/a", "b/c"), filepath.Join("/a", "b", "c")},
	} {
		if k[0] != k[1] {
			t.Errorf("got %s, want %s", k[0], k[1])
		}
	}
}
