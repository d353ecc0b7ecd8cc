package webdataset

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/hetero-train/hetero-train/engine/data/stored"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// identity identifies the contents of a shard file.
type identity struct {
	path string // absolute path
	size int64  // size in bytes
	time int64  // modification time in ns, or the version of an object
	ends [sha256.Size]byte
}

const endBytes = 16 << 10 // number of bytes at each end of a shard that are hashed for identity.ends

func identify(path string, f stored.File) (identity, error) {
	info, err := f.Stat()
	if err != nil {
		return identity{}, err
	}
	absolute, err := stored.Abs(path)
	if err != nil {
		return identity{}, err
	}
	id := identity{path: absolute, size: info.Size(), time: stored.Version(info)}
	h := sha256.New()
	for _, from := range []int64{0, max(id.size-endBytes, 0)} {
		if _, err := io.Copy(h, io.NewSectionReader(f, from, endBytes)); err != nil {
			return identity{}, err
		}
	}
	h.Sum(id.ends[:0])
	return id, nil
}

// An index file consists of this line, the SHA-256 of the rest, and a zstd-compressed gob of the index.
const indexFormat = "hetero-train shard index 5\n"

const maxIndexBytes = 1 << 30 // largest size of the gob in bytes

// file returns the path of the index file of a shard. The name depends on all fields of the identity.
func (id identity) file(dir string) string {
	key := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d\x00%x", id.path, id.size, id.time, id.ends))
	base, _, _ := strings.Cut(filepath.Base(id.path), ".tar")
	return filepath.Join(dir, base+"-"+hex.EncodeToString(key[:8])+".idx")
}

// load returns the stored index. If the file is missing or damaged, load returns nil, and the caller must create the
// index.
func (id identity) load(dir string) *index {
	b, err := regular.Read(id.file(dir), maxIndexBytes)
	if err != nil || len(b) < len(indexFormat)+sha256.Size || string(b[:len(indexFormat)]) != indexFormat {
		return nil
	}
	b = b[len(indexFormat):]
	if sum := sha256.Sum256(b[sha256.Size:]); !bytes.Equal(sum[:], b[:sha256.Size]) {
		return nil
	}
	d, err := zstd.NewReader(bytes.NewReader(b[sha256.Size:]), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil
	}
	defer d.Close()
	return decodeIndex(d, id.size)
}

// decodeIndex returns the index of a shard of the given size, or nil if the text is not a valid index.
func decodeIndex(text io.Reader, size int64) *index {
	var x index
	if err := gob.NewDecoder(io.LimitReader(text, maxIndexBytes)).Decode(&x); err != nil || x.Layout.Stored != size ||
		!x.sound() {
		return nil
	}
	return &x
}

// sound reports whether the fields of an index are consistent.
func (x *index) sound() bool {
	n := len(x.Keys)
	if n == 0 || len(x.Ends) != n || len(x.Offsets) != n || len(x.Sizes) != n || len(x.Labels) != n ||
		x.Layout.Check() != nil {
		return false
	}
	for i, l := range x.Labels {
		if l < 0 || int(l) >= len(x.Texts) || x.Sizes[i] < 0 {
			return false
		}
	}
	return true
}

// save stores an index. It writes a temporary file and renames it, so the index file is always complete.
func (id identity) save(dir string, x *index) (err error) {
	var packed bytes.Buffer
	e, err := zstd.NewWriter(&packed, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	if err := errors.Join(gob.NewEncoder(e).Encode(x), e.Close()); err != nil {
		return err
	}
	sum := sha256.Sum256(packed.Bytes())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".index-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name()) // the first error is returned
		}
	}()
	_, err = f.Write(append(append([]byte(indexFormat), sum[:]...), packed.Bytes()...))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), id.file(dir)) // without fsync, because a damaged file is created again
}
