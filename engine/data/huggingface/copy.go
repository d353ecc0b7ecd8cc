package huggingface

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/data/images"
	"github.com/hetero-train/hetero-train/engine/data/openfiles"
	"github.com/hetero-train/hetero-train/engine/data/stored"
	"github.com/hetero-train/hetero-train/engine/data/table"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// A copy consists of the values of a column without gaps, the end of each value (int64), the number of values (int64),
// the SHA-256 of the ends, and this line.
const copyFormat = "hetero-train column copy 1\n"

const copyTail = 8 + sha256.Size + len(copyFormat) // bytes

// copied is a copy of a column of byte strings.
type copied struct {
	path string
	ends []int64
}

// cacheName returns the path in the cache for a file that is derived from f. The result depends on the path, size,
// modification time and footer of f. It also depends on the parameter what, which names the kind of derived data.
func cacheName(dir string, f *table.File, what, ending string) (string, error) {
	absolute, err := stored.Abs(f.Path)
	if err != nil {
		return "", err
	}
	id := openfiles.Of(absolute, f.Info)
	key := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d\x00%x\x00%s", id.Path, id.Size, id.Time, f.Footer, what))
	base := filepath.Base(f.Path)
	return filepath.Join(dir, strings.TrimSuffix(base, filepath.Ext(base))+"-"+hex.EncodeToString(key[:8])+ending), nil
}

// copyColumn copies a column of a Parquet file to dir, or finds the copy of an earlier run. The copy appears atomically
// when it is complete. Other processes wait for it.
func copyColumn(ctx context.Context, f *table.File, column, dir string, progress func(done, total int64)) (copied,
	error) {
	path, err := cacheName(dir, f, column, ".column")
	if err != nil {
		return copied{}, err
	}
	c := copied{path: path}
	if c.ends, err = readEnds(c.path, f.Rows); err == nil {
		return c, nil
	}
	inCache := func(err error) error {
		if err == nil {
			return nil
		}
		return &archive.CacheError{Dir: dir, Err: err}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return c, inCache(err)
	}
	lock, err := filelock.Acquire(ctx, c.path+".lock")
	if err != nil {
		if ctx.Err() != nil {
			return c, err
		}
		return c, inCache(err)
	}
	defer lock.Release()
	if c.ends, err = readEnds(c.path, f.Rows); err == nil { // another process has written the copy
		return c, nil
	}
	out, err := regular.Create(c.path + ".part")
	if err != nil {
		return c, inCache(err)
	}
	err = c.write(ctx, f, column, out, inCache, progress)
	if err == nil {
		err = inCache(out.Sync())
	}
	err = errors.Join(err, inCache(out.Close()))
	if err == nil {
		err = inCache(os.Rename(c.path+".part", c.path))
	}
	if err != nil {
		return c, errors.Join(err, os.Remove(c.path+".part"))
	}
	return c, inCache(platform.SyncFolder(dir))
}

// A copy may have expandFactor times the bytes of its file, or expandFree bytes. It must leave 1/spareSpace of the free
// space unused. The limits protect the disk from a small file that repeats one image. Package archive has the same
// value of expandFactor.
const (
	expandFactor = 200
	expandFree   = 64 << 20 // bytes
	spareSpace   = 10
)

// space returns the largest permitted size of a copy in a folder, in bytes.
func space(dir string, fileBytes int64) (most int64, why string) {
	most = max(expandFree, min(fileBytes, math.MaxInt64/expandFactor)*expandFactor)
	why = fmt.Sprintf("%d times the size of the file", expandFactor)
	if _, free, err := platform.Space(dir); err == nil && free-free/spareSpace < most {
		return free - free/spareSpace, fmt.Sprintf("all but 1/%d of the free space of %d bytes", spareSpace, free)
	}
	return most, why // if the free space is unknown, writing fails once the disk is full
}

func (c *copied) write(ctx context.Context, f *table.File, column string, file *os.File, inCache func(error) error,
	progress func(done, total int64)) error {
	out := bufio.NewWriterSize(file, 1<<20)
	most, why := space(filepath.Dir(c.path), f.Info.Size())
	c.ends = nil
	end, reported := int64(0), time.Now()
	var own error // error of a limit or of writing, not of reading the file
	err := f.Scan(ctx, []table.Column{{Path: column}}, func(row []table.Value) error {
		size := int64(len(row[0].Bytes))
		if size > images.MaxFileBytes {
			own = fmt.Errorf("row %d: an image of %d bytes, want at most %d", len(c.ends), size, images.MaxFileBytes)
			return own
		}
		end += size
		c.ends = append(c.ends, end)
		if end+8*int64(len(c.ends))+int64(copyTail) > most {
			own = inCache(fmt.Errorf("the images of the first %d of %d rows have %d bytes, want at most %d (%s)",
				len(c.ends), f.Rows, end, most, why))
			return own
		}
		if progress != nil && time.Since(reported) > 200*time.Millisecond {
			reported = time.Now()
			done := float64(len(c.ends)) / float64(max(f.Rows, 1))
			progress(int64(float64(f.Info.Size())*done), f.Info.Size())
		}
		_, err := out.Write(row[0].Bytes)
		own = inCache(err)
		return own
	})
	switch {
	case err != nil && (own != nil || ctx.Err() != nil):
		return err
	case err != nil:
		return &damagedError{err}
	}
	if int64(len(c.ends)) != f.Rows {
		return fmt.Errorf("the file has %d rows, its metadata say %d", len(c.ends), f.Rows)
	}
	tail := make([]byte, 0, 8*len(c.ends)+copyTail)
	for _, end := range c.ends {
		tail = binary.LittleEndian.AppendUint64(tail, uint64(end))
	}
	sum := sha256.Sum256(tail)
	tail = binary.LittleEndian.AppendUint64(tail, uint64(len(c.ends)))
	tail = append(append(tail, sum[:]...), copyFormat...)
	_, err = out.Write(tail)
	return inCache(errors.Join(err, out.Flush()))
}

// readEnds reads the ends of the values of a copy. It returns an error if there is no valid copy.
func readEnds(path string, rows int64) ([]int64, error) {
	f, info, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only
	if rows < 0 || rows > (info.Size()-int64(copyTail))/8 {
		return nil, errors.New("too short")
	}
	tail := make([]byte, 8*rows+int64(copyTail))
	from := info.Size() - int64(len(tail))
	if _, err := f.ReadAt(tail, from); err != nil {
		return nil, err
	}
	stored, rest := tail[:8*rows], tail[8*rows:]
	sum := sha256.Sum256(stored)
	if int64(binary.LittleEndian.Uint64(rest)) != rows || !bytes.Equal(rest[8:][:len(sum)], sum[:]) ||
		string(rest[8+len(sum):]) != copyFormat {
		return nil, errors.New("not a copy of this column")
	}
	ends := make([]int64, rows)
	last := int64(0)
	for i := range ends {
		ends[i] = int64(binary.LittleEndian.Uint64(stored[8*i:]))
		if ends[i] < last {
			return nil, errors.New("negative length")
		}
		last = ends[i]
	}
	if last != from {
		return nil, errors.New("wrong length")
	}
	return ends, nil
}
