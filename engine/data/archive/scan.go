package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Compression is the compression of an archive file.
type Compression string

// The known compressions. The first bytes of a file determine its compression.
const (
	None Compression = "none"
	Gzip Compression = "gzip"
	Zstd Compression = "zstd"
)

// Detect returns the compression of archive r.
func Detect(r io.ReaderAt) (Compression, error) {
	var magic [4]byte
	n, err := r.ReadAt(magic[:], 0)
	if n < len(magic) && err != nil && err != io.EOF {
		return "", err
	}
	switch m := magic[:n]; {
	case n >= 2 && m[0] == 0x1F && m[1] == 0x8B:
		return Gzip, nil
	case n == 4 && m[0]&0xF0 == 0x50 && m[1] == 0x2A && m[2] == 0x4D && m[3] == 0x18, // a skippable frame
		n == 4 && m[0] == 0x28 && m[1] == 0xB5 && m[2] == 0x2F && m[3] == 0xFD:
		return Zstd, nil
	}
	return None, nil
}

// Layout is the information that is necessary to read a decompressed archive at any offset. Its fields are exported so
// that a Layout can be stored.
type Layout struct {
	Compression Compression
	Stored      int64   // size of the file in bytes
	Size        int64   // size of the plain tar in bytes
	Chunks      []Chunk // chunks in order; empty for a plain tar
	// Unmarked states that the end mark is missing. The archive may have been truncated between two members.
	Unmarked bool
}

// Chunk is a part of a compressed archive that is always decompressed as a whole.
type Chunk struct {
	Out int64  // byte offset in the plain tar; the chunk ends at Out of the next chunk
	In  int64  // byte offset in the file
	End int64  // byte offset in the file at which the last frame of the chunk ends
	Sum uint32 // CRC-32C of the decompressed bytes
}

const (
	// chunkBytes is the minimum content size of a chunk in bytes. A read of a sample decompresses all chunks that
	// contain a part of the sample.
	chunkBytes = 256 << 10
	// storedBytes limits the distance between the first and the last frame of a chunk. It is measured in the file, in
	// bytes, between the starts of the two frames. A read of the chunk also reads the bytes between its frames.
	storedBytes = 1 << 20
)

// Largest returns the content size of the largest chunk in bytes, or 0 for a plain tar.
func (l *Layout) Largest() int64 {
	largest := int64(0)
	for k := range l.Chunks {
		largest = max(largest, l.chunkSize(k))
	}
	return largest
}

func (l *Layout) chunkSize(k int) int64 {
	if k+1 < len(l.Chunks) {
		return l.Chunks[k+1].Out - l.Chunks[k].Out
	}
	return l.Size - l.Chunks[k].Out
}

// Scan reads the archive r once, calls visit for each regular file and folder, and returns the layout for random
// access. The parameter size is the size of r in bytes.
//
// In a plain tar, Scan reads only the headers and the contents that visit reads. It decompresses a zstd file completely
// and checks the checksums. It refuses compressed archives that exceed the limits. A gzip stream does not permit random
// access, so Scan returns an error; Plain can expand such a file. If a plain tar is truncated, Scan returns its layout
// together with the *CutError.
func Scan(ctx context.Context, r io.ReaderAt, size int64, limits Limits, progress func(done, total int64),
	visit func(m Member, contents io.Reader) error) (Layout, error) {
	limits = limits.withDefaults()
	compression, err := Detect(r)
	if err != nil {
		return Layout{}, err
	}
	l := Layout{Compression: compression, Stored: size, Size: size}
	in := newCounterAt(ctx, r, size, progress)
	switch compression {
	case Gzip:
		return Layout{},
			errors.New(
				"got a gzip stream, want a tar or zstd frames, because a gzip stream can be read only from its start")
	case Zstd:
		z, err := newFrames(in, size)
		if err != nil {
			return Layout{}, err
		}
		defer z.close()
		if l.Size, l.Unmarked, err = scanStream(z, in, limits, visit); err != nil {
			return Layout{}, err
		}
		l.Chunks = z.chunks
	default:
		marked, err := indexPlain(in, size, limits, visit)
		if l.Unmarked = !marked; err != nil {
			return l, err
		}
	}
	return l, nil
}

// Stream calls visit for each regular file and folder of the archive r, in the order of the archive. The archive may be
// compressed. The parameter size is the size of r in bytes. In a plain tar, Stream reads only the headers and the
// contents that visit reads. It stops at the first error of visit.
func Stream(ctx context.Context, r io.ReaderAt, size int64, limits Limits,
	visit func(m Member, contents io.Reader) error) error {
	limits = limits.withDefaults()
	in := newCounterAt(ctx, r, size, nil)
	c, err := Detect(r)
	if err != nil {
		return err
	}
	if c == None {
		_, err := indexPlain(in, size, limits, visit)
		return err
	}
	z, free, err := decompress(in, size)
	if err != nil {
		return err
	}
	defer free()
	_, _, err = scanStream(z, in, limits, visit)
	return err
}

// scanStream processes a decompressed stream. It reads the stream to the end, because the decoder compares checksums
// there.
func scanStream(z io.Reader, in *counterAt, limits Limits, visit func(Member, io.Reader) error) (size int64,
	unmarked bool, err error) {
	b, last := &bound{r: z, in: &in.counter, limits: limits}, int64(0)
	err = walk(b, limits, func(m Member, contents io.Reader) error {
		m.Offset = b.n // archive/tar has read exactly the bytes before the contents
		last = m.Offset + blocks(m.Size)
		return visit(m, contents)
	})
	if err == nil {
		_, err = io.Copy(io.Discard, struct{ io.Reader }{b})
	}
	return b.n, b.n < last+blockBytes, err
}

// Check returns an error if the layout is invalid, for example because it comes from a damaged file.
func (l *Layout) Check() error {
	if l.Size < 0 || l.Stored < 0 || l.Compression != None && len(l.Chunks) == 0 {
		return errors.New("invalid layout: no chunks")
	}
	last := int64(0)
	for k, c := range l.Chunks {
		if k == 0 && c.Out != 0 || l.chunkSize(k) < 0 {
			return fmt.Errorf("invalid layout: chunk %d is at byte %d of %d", k, c.Out, l.Size)
		}
		if c.In < last || c.End <= c.In || c.End > l.Stored {
			return fmt.Errorf("invalid layout: chunk %d is stored at bytes %d to %d of %d", k, c.In, c.End, l.Stored)
		}
		last = c.End
	}
	return nil
}
