package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/data/stored"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Compressed reports whether r is compressed with gzip or zstd. The first bytes of r determine the result.
func Compressed(r io.ReaderAt) (bool, error) {
	c, err := Detect(r)
	return err == nil && c != None, err
}

// CacheError reports that the cache folder is full, or cannot be created or written.
type CacheError struct {
	Dir string
	Err error
}

// CacheAdvice tells the user how to avoid a CacheError.
const CacheAdvice = "set data.cache_dir to a writable folder with enough free space for the expanded archive, or unpack the archive and set data.path to the folder"

func (e *CacheError) Error() string { return fmt.Sprintf("cache folder %s: %v", e.Dir, e.Err) }

// Unwrap returns the error of the system.
func (e *CacheError) Unwrap() error { return e.Err }

// Plain returns the path of a plain tar with the contents of the compressed tar at source. The first call creates this
// file in cacheDir, and later calls find it. Its name contains a hash of the absolute path, size and modification time
// of source.
//
// The file appears atomically when it is complete (temporary file, fsync, rename). Concurrent processes that need the
// same file wait for the first process. Plain checks members like Index. If progress is not nil, Plain calls it a few
// times per second with the number of compressed bytes read and their total. Errors of cacheDir are *CacheError.
func Plain(ctx context.Context, source, cacheDir string, limits Limits, progress func(done, total int64)) (string,
	error) {
	f, info, err := stored.Open(source)
	if err != nil {
		return "", err
	}
	defer f.Close()
	absolute, err := stored.Abs(source)
	if err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(absolute + "\x00" + strconv.FormatInt(info.Size(), 10) + "\x00" +
		strconv.FormatInt(stored.Version(info), 10)))
	name := plainName(source) + "-" + hex.EncodeToString(key[:8]) + ".tar"
	target := filepath.Join(cacheDir, name)
	inCache := func(err error) error {
		if err == nil {
			return nil
		}
		return &CacheError{Dir: cacheDir, Err: err}
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return "", inCache(err)
	}
	lock, err := filelock.Acquire(ctx, target+".lock")
	switch {
	case err != nil && ctx.Err() != nil:
		return "", err
	case err != nil:
		return "", inCache(err)
	}
	defer lock.Release()
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	// While this process holds the lock, no other process uses the temporary name. A file that an interrupted run left
	// there is therefore replaced. So is a link, which another user may have created.
	out, err := regular.Create(target + ".part")
	if err == nil {
		err = expand(ctx, f, info.Size(), out, target, limits.withDefaults(), progress, inCache)
	} else {
		err = inCache(err)
	}
	if err != nil {
		return "", fmt.Errorf("expand %s into %s: %w", source, cacheDir, err)
	}
	return target, nil
}

// plainName returns the readable part of a file name in the cache.
func plainName(source string) string {
	base := filepath.Base(source)
	for _, end := range []string{".gz", ".tgz", ".zst", ".tzst", ".tar"} {
		base = strings.TrimSuffix(base, end)
	}
	return base
}

// expand decompresses packed (size bytes) to out, which is the empty file target.part. It closes out, and renames the
// file to target. The function inCache wraps errors of writing the file.
func expand(ctx context.Context, packed io.ReaderAt, size int64, out *os.File, target string, limits Limits,
	progress func(done, total int64), inCache func(error) error) (err error) {
	temporary := target + ".part"
	defer func() {
		out.Close() // after Sync, no data can be lost
		if err != nil {
			err = errors.Join(err, os.Remove(temporary))
		}
	}()
	in := newCounterAt(ctx, packed, size, progress)
	if compressed, err := Compressed(packed); err != nil || !compressed {
		return errors.Join(err, errors.New("got a file that is not compressed, want gzip or zstd"))
	}
	z, free, err := decompress(in, size)
	if err != nil {
		return err
	}
	defer free()
	bounded := &bound{r: z, in: &in.counter, limits: limits}
	n, err := io.CopyBuffer(marked{out, inCache}, struct{ io.Reader }{bounded}, make([]byte, 1<<20))
	if err != nil {
		return err
	}
	if err := Index(out, n, limits, func(Member) error { return ctx.Err() }); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return inCache(err)
	}
	if err := os.Rename(temporary, target); err != nil {
		return inCache(err)
	}
	return inCache(platform.SyncFolder(filepath.Dir(target)))
}

// decompress returns the uncompressed stream of in, which may be compressed or plain.
func decompress(in *counterAt, size int64) (z io.Reader, free func(), err error) {
	c, err := Detect(in.at)
	if err != nil {
		return nil, nil, err
	}
	switch c {
	case Zstd:
		f, err := newFrames(in, size)
		if err != nil {
			return nil, nil, err
		}
		return f, f.close, nil
	case Gzip:
		g, err := gzip.NewReader(&in.counter)
		return g, func() {}, err
	}
	return &in.counter, func() {}, nil
}

// marked applies mark to the errors of a writer. This distinguishes them from errors of the reader.
type marked struct {
	w    io.Writer
	mark func(error) error
}

func (m marked) Write(p []byte) (int, error) {
	n, err := m.w.Write(p)
	return n, m.mark(err)
}

// counter counts the bytes read and reports progress.
type counter struct {
	r        io.Reader
	stopped  func() error // reading stops with the error of stopped; nil: never
	n, total int64
	progress func(done, total int64)
	reported time.Time
}

func (c *counter) Read(p []byte) (int, error) {
	if err := c.stopped(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.count(n, err != nil)
	return n, err
}

func (c *counter) count(n int, last bool) {
	c.n += int64(n)
	if c.progress != nil && (last || time.Since(c.reported) > 200*time.Millisecond) {
		c.progress(c.n, c.total)
		c.reported = time.Now()
	}
}

// counterAt is a counter that also supports reads at offsets.
type counterAt struct {
	counter
	at io.ReaderAt
}

// newCounterAt returns a counter for r. The parameter size is the size of r in bytes. The counter supports sequential
// reads and reads at offsets.
func newCounterAt(ctx context.Context, r io.ReaderAt, size int64, progress func(done, total int64)) *counterAt {
	return &counterAt{
		at: r, counter: counter{r: io.NewSectionReader(r, 0, size), stopped: ctx.Err, total: size, progress: progress}}
}

func (c *counterAt) ReadAt(p []byte, offset int64) (int, error) {
	if err := c.stopped(); err != nil {
		return 0, err
	}
	n, err := c.at.ReadAt(p, offset)
	c.count(n, err != nil)
	return n, err
}

// bound returns an error if a decompressed stream exceeds its limits.
type bound struct {
	r      io.Reader
	in     *counter
	n      int64
	limits Limits
}

func (b *bound) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.n += int64(n)
	if b.n > b.limits.TotalBytes {
		return n, fmt.Errorf("archive expands to more than %d bytes: %w", b.limits.TotalBytes, ErrRefused)
	}
	if b.n > b.limits.ExpandFree && b.n/b.limits.ExpandFactor > b.in.n {
		return n, fmt.Errorf("archive expands to more than %d times its size (%d bytes from %d): %w",
			b.limits.ExpandFactor, b.n, b.in.n, ErrRefused)
	}
	return n, err
}
