package stored

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/regular"
)

const (
	// A read updates the modification time of a block if this time is at least usedAgain ago. A lower value writes more
	// inodes.
	usedAgain = time.Minute
	// If a removal of blocks is necessary, it frees an additional 1/spareCache of the limit, so that not every new
	// block removes another one. Each process may exceed the limit by 1/spareCache before it checks the folder again.
	spareCache = 16
)

// cache keeps blocks of objects in a folder. All processes of a machine may share it.
type cache struct {
	dir    string
	limit  int64 // bytes
	log    *slog.Logger
	broken atomic.Bool // the folder cannot be written
	added  atomic.Int64

	mu      sync.Mutex
	flights map[string]*flight // keys are paths of blocks
}

func newCache(dir string, limit int64, log *slog.Logger) *cache {
	c := &cache{dir: dir, limit: limit, log: log, flights: map[string]*flight{}}
	c.added.Store(limit) // the first new block triggers a check of the folder
	return c
}

// path returns the path of a block. It depends on the server, and on the name, the size and the ETag of the object.
func (c *cache) path(o *object, k int64) string {
	key := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s\x00%d", o.client.Endpoint(), o.info.Name, o.info.Size,
		o.info.ETag, blockBytes))
	return filepath.Join(c.dir, hex.EncodeToString(key[:12]), fmt.Sprintf("%06d", k))
}

// read fills p from a block in the folder. It returns false if the block is missing or damaged.
func (c *cache) read(o *object, k, from int64, p []byte) bool {
	path := c.path(o, k)
	f, info, err := regular.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // read only
	if info.Size() != o.blockSize(k) {
		return false // damaged; the next write replaces it
	}
	if n, _ := f.ReadAt(p, from); n < len(p) {
		return false
	}
	if now := time.Now(); now.Sub(info.ModTime()) > usedAgain {
		os.Chtimes(path, now, now) //nolint:errcheck // after a failure, the block only looks older
	}
	return true
}

// fetch requests a block and stores it. Of all processes, only one goroutine requests the block.
func (c *cache) fetch(ctx context.Context, o *object, k int64) ([]byte, error) {
	path := c.path(o, k)
	c.mu.Lock()
	f := c.flights[path]
	if f != nil {
		c.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if f.err == nil || ctx.Err() != nil || !errors.Is(f.err, os.ErrClosed) {
			return f.p, f.err
		}
		return o.request(ctx, k) // the object of the other reader was closed
	}
	f = &flight{done: make(chan struct{})}
	c.flights[path] = f
	c.mu.Unlock()
	f.p, f.err = c.fetchOnce(ctx, o, k, path)
	c.mu.Lock()
	delete(c.flights, path)
	c.mu.Unlock()
	close(f.done)
	return f.p, f.err
}

func (c *cache) fetchOnce(ctx context.Context, o *object, k int64, path string) ([]byte, error) {
	if c.broken.Load() {
		return o.request(ctx, k)
	}
	folder, name := filepath.Split(path)
	hidden := filepath.Join(folder, "."+name)
	err := os.MkdirAll(folder, 0o755)
	var lock *filelock.Lock
	if err == nil {
		lock, err = filelock.Acquire(ctx, hidden+".lock")
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c.fail(err)
		return o.request(ctx, k)
	}
	defer func() {
		// A process that waits for the removed lock file gets its lock, finds the block, and requests nothing.
		os.Remove(hidden + ".lock") //nolint:errcheck // an empty file
		lock.Release()              //nolint:errcheck // the end of the process releases it, too
	}()
	p := make([]byte, o.blockSize(k))
	if c.read(o, k, 0, p) {
		return p, nil
	}
	if err := o.client.ReadRange(ctx, o.info, k*blockBytes, p); err != nil {
		return nil, err
	}
	if err := write(folder, path, p); err != nil {
		c.fail(err)
	} else if c.added.Add(int64(len(p))) > c.limit/spareCache {
		c.added.Store(0)
		c.trim()
	}
	return p, nil
}

// write writes the complete file atomically.
func write(folder, path string, p []byte) error {
	// The name is unique: after a failed fetch, two processes may hold locks on a removed and on a new lock file.
	f, err := os.CreateTemp(folder, ".part-*")
	if err != nil {
		return err
	}
	temporary := f.Name()
	_, err = f.Write(p)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		os.Remove(temporary) //nolint:errcheck // the first error is returned
	}
	return err
}

// fail disables the folder for this process.
func (c *cache) fail(err error) {
	if !c.broken.Swap(true) {
		c.log.Warn("the cache of objects cannot be written, so this process keeps none of them: set data.cache_dir to a folder with enough free space",
			"folder", c.dir, "reason", err)
	}
}

// block is a file of the cache.
type block struct {
	path  string
	bytes int64
	used  time.Time
}

// trim removes the least recently used blocks until the cache is smaller than its limit.
func (c *cache) trim() {
	var blocks []block
	total := int64(0)
	now := time.Now()
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // another process may have removed it
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if strings.HasPrefix(d.Name(), ".") { // temporary file of a process that writes, or that was killed
			if now.Sub(info.ModTime()) > time.Hour {
				os.Remove(path) //nolint:errcheck // another process may have removed it
			}
			return nil
		}
		total += info.Size()
		blocks = append(blocks, block{path, info.Size(), info.ModTime()})
		return nil
	})
	if err != nil || total <= c.limit {
		return
	}
	slices.SortFunc(blocks, func(a, b block) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path))
	})
	for _, b := range blocks {
		if total <= c.limit-c.limit/spareCache {
			break
		}
		if os.Remove(b.path) == nil {
			total -= b.bytes
		}
	}
}
