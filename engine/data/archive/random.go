package archive

import (
	"container/list"
	"fmt"
	"hash/crc32"
	"io"
	"sort"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Random reads archives at any offset of their decompressed tar. It keeps the most recently used decompressed chunks in
// memory, up to a limit for all archives together. It is safe for concurrent use. If several goroutines need the same
// chunk, only one of them decompresses it.
type Random struct {
	limit int64 // limit for held, in bytes

	mu       sync.Mutex
	room     sync.Cond // signals that a chunk has been decompressed
	chunks   map[chunkKey]*chunk
	recent   *list.List // elements are *chunk, most recently used first
	held     int64      // total size of the chunks in bytes, including chunks that are being decompressed
	inFlight int        // number of chunks that are being decompressed
}

type chunkKey struct {
	archive int
	number  int
}

type chunk struct {
	key   chunkKey
	size  int64         // decompressed size in bytes
	ready chan struct{} // closed when out and err are set
	out   []byte
	err   error
	at    *list.Element
}

// NewRandom returns a Random that keeps up to limit bytes of decompressed chunks in memory.
func NewRandom(limit int64) *Random {
	c := &Random{limit: limit, chunks: map[chunkKey]*chunk{}, recent: list.New()}
	c.room.L = &c.mu
	return c
}

// ReadAt fills p with bytes of an archive, beginning at offset. r contains the archive, l describes it, and number
// identifies it. If the archive ends before p is full, ReadAt returns io.ErrUnexpectedEOF, because the archive was
// longer at the scan.
func (c *Random) ReadAt(number int, r io.ReaderAt, l *Layout, p []byte, offset int64) error {
	if offset < 0 || offset > l.Size-int64(len(p)) {
		return fmt.Errorf("read bytes %d to %d of an archive of %d bytes: %w", offset, offset+int64(len(p)), l.Size,
			io.ErrUnexpectedEOF)
	}
	if l.Compression == None {
		n, err := r.ReadAt(p, offset)
		if n == len(p) {
			return nil
		}
		if err == io.EOF {
			err = fmt.Errorf("the archive became shorter after it was opened: %w", io.ErrUnexpectedEOF)
		}
		return err
	}
	k := sort.Search(len(l.Chunks), func(k int) bool { return l.Chunks[k].Out > offset }) - 1
	for ; len(p) > 0; k++ {
		out, err := c.chunk(chunkKey{number, k}, r, l)
		if err != nil {
			return err
		}
		n := copy(p, out[offset-l.Chunks[k].Out:])
		p, offset = p[n:], offset+int64(n)
	}
	return nil
}

// chunk returns a decompressed chunk. If the chunk is not in memory, it decompresses the chunk. If the limit is
// reached, it first waits until other decompressions are complete. A single chunk may exceed the limit.
func (c *Random) chunk(key chunkKey, r io.ReaderAt, l *Layout) ([]byte, error) {
	size := l.chunkSize(key.number)
	c.mu.Lock()
	for {
		if e, ok := c.chunks[key]; ok {
			c.recent.MoveToFront(e.at)
			c.mu.Unlock()
			<-e.ready
			return e.out, e.err
		}
		if c.makeRoom(size); c.held+size <= c.limit || c.inFlight == 0 {
			break
		}
		c.room.Wait()
	}
	e := &chunk{key: key, size: size, ready: make(chan struct{})}
	e.at = c.recent.PushFront(e)
	c.chunks[key] = e
	c.held += size
	c.inFlight++
	c.mu.Unlock()

	e.out, e.err = c.decode(r, l, key.number)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	close(e.ready)
	if e.err != nil {
		c.forget(e) // the next read then tries again
	}
	c.makeRoom(0)
	c.room.Broadcast()
	return e.out, e.err
}

// makeRoom drops the least recently used chunks until size more bytes fit. It keeps chunks that are being decompressed.
// The caller must hold the lock.
func (c *Random) makeRoom(size int64) {
	for at := c.recent.Back(); at != nil && c.held+size > c.limit; {
		e, before := at.Value.(*chunk), at.Prev()
		select {
		case <-e.ready:
			c.forget(e)
		default:
		}
		at = before
	}
}

// forget drops a chunk from the cache. Goroutines may continue to use the data of the chunk. The caller must hold the
// lock.
func (c *Random) forget(e *chunk) {
	delete(c.chunks, e.key)
	c.recent.Remove(e.at)
	c.held -= e.size
}

// decode decompresses chunk k, and compares its checksum with the one that the scan computed.
func (c *Random) decode(r io.ReaderAt, l *Layout, k int) (out []byte, err error) {
	size := l.chunkSize(k)
	out, err = unzstd(r, l, k, size)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && crc32.Checksum(out, castagnoli) != l.Chunks[k].Sum {
		err = fmt.Errorf("bytes %d to %d have changed since the archive was indexed", l.Chunks[k].Out,
			l.Chunks[k].Out+size)
	}
	if err != nil {
		return nil, fmt.Errorf("decompress the archive from byte %d on: %w", l.Chunks[k].Out, err)
	}
	return out, nil
}

// decodeFrames returns the common decoder for all archives. It is safe for concurrent use, because DecodeAll keeps no
// state between calls.
var decodeFrames = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxChunk),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderConcurrency(0))
})

// maxChunk is the maximum decompressed size of a chunk, in bytes.
const maxChunk = 8 << 30

func unzstd(r io.ReaderAt, l *Layout, k int, size int64) ([]byte, error) {
	in := make([]byte, l.Chunks[k].End-l.Chunks[k].In)
	if n, err := r.ReadAt(in, l.Chunks[k].In); n < len(in) {
		return nil, err
	}
	d, err := decodeFrames()
	if err != nil {
		return nil, err
	}
	// The capacity limits the output. If a frame now has more content than at the scan, DecodeAll returns an error
	// instead of allocating more memory.
	out, err := d.DecodeAll(in, make([]byte, 0, size))
	if err == nil && int64(len(out)) != size {
		err = fmt.Errorf("%d bytes, want %d", len(out), size)
	}
	return out, err
}
