package stored

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/objects"
)

const (
	// blockBytes is the size of a block. Larger blocks need fewer requests, but delay the first sample.
	blockBytes = 4 << 20
	// mostAhead limits the number of blocks that a sequential reader prefetches into memory.
	mostAhead = 8
	// Without a cache, the first firstReads reads of a sequential reader request exactly their own bytes, if each has
	// at most firstBytes. Many readers only read the start and the end of an object, and blocks would be several MiB.
	firstReads = 3
	firstBytes = 64 << 10
	// waits is the waiting time for a block above which a sequential reader prefetches more blocks.
	waits = time.Millisecond
)

// object is an open object.
type object struct {
	client  *objects.Client
	info    objects.Info
	ordered bool
	cache   *cache // nil: blocks are not stored
	ctx     context.Context
	end     context.CancelCauseFunc

	mu     sync.Mutex
	at     int64             // position of Read
	blocks map[int64]*flight // of a sequential reader: the blocks around its position
	last   int64             // newest block that was read
	reads  int               // number of exact reads of a sequential reader
	ahead  int64             // number of blocks to prefetch
}

// flight is the fetch of a block, in progress or complete.
type flight struct {
	done chan struct{}
	p    []byte
	err  error
}

func newObject(client *objects.Client, info objects.Info, ordered bool) *object {
	ctx, end := context.WithCancelCause(whole())
	return &object{client: client, info: info, ordered: ordered, cache: kept(), ctx: ctx, end: end,
		blocks: map[int64]*flight{}, last: -1, ahead: 1}
}

func (o *object) Name() string               { return o.info.Name.String() }
func (o *object) Stat() (os.FileInfo, error) { return objectInfo{Info: o.info}, nil }

// Close implements [io.Closer]. It ends all requests of the object.
func (o *object) Close() error {
	if context.Cause(o.ctx) == os.ErrClosed {
		return os.ErrClosed
	}
	o.end(os.ErrClosed)
	return nil
}

// Read implements [io.Reader].
func (o *object) Read(p []byte) (int, error) {
	o.mu.Lock()
	at := o.at
	o.mu.Unlock()
	n, err := o.ReadAt(p, at)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	o.mu.Lock()
	o.at = at + int64(n)
	o.mu.Unlock()
	return n, err
}

// ReadAt implements [io.ReaderAt].
func (o *object) ReadAt(p []byte, offset int64) (n int, err error) {
	if err := context.Cause(o.ctx); err != nil {
		return 0, err // closed, or the run ends
	}
	if offset < 0 {
		return 0, fmt.Errorf("read %s: got offset %d, want 0 or more", o.Name(), offset)
	}
	if offset >= o.info.Size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), o.info.Size-offset)]
	// If the cache cannot be written, blocks are not stored. Reading by blocks would then request a block for each
	// sample.
	keeps := o.cache != nil && !o.cache.broken.Load()
	if !keeps && (!o.ordered || o.looks(len(want))) {
		if !o.has(want, offset) {
			if err := o.client.ReadRange(o.ctx, o.info, offset, want); err != nil {
				return 0, err
			}
		}
		n = len(want)
	}
	for n < len(want) {
		k := (offset + int64(n)) / blockBytes
		from := offset + int64(n) - k*blockBytes
		read, err := o.readBlock(want[n:], k, from)
		n += read
		if err != nil {
			return n, err
		}
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// has fills p from a cached block. The block may have been stored before the cache could no longer be written.
func (o *object) has(p []byte, offset int64) bool {
	k := offset / blockBytes
	return o.cache != nil && (offset+int64(len(p))-1)/blockBytes == k && o.cache.read(o, k, offset-k*blockBytes, p)
}

// looks reports whether a read of a sequential reader is small and among the first.
func (o *object) looks(bytes int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if bytes > firstBytes || o.reads >= firstReads {
		o.reads = firstReads
		return false
	}
	o.reads++
	return true
}

// blockSize returns the number of bytes of block k.
func (o *object) blockSize(k int64) int64 { return min(blockBytes, o.info.Size-k*blockBytes) }

// readBlock copies bytes of block k, beginning at offset from in the block.
func (o *object) readBlock(p []byte, k, from int64) (int, error) {
	if !o.ordered {
		p = p[:min(int64(len(p)), o.blockSize(k)-from)]
		if o.cache.read(o, k, from, p) {
			return len(p), nil
		}
		block, err := o.cache.fetch(o.ctx, o, k)
		if err != nil {
			return 0, err
		}
		return copy(p, block[from:]), nil
	}
	o.mu.Lock()
	f := o.start(k)
	if k == o.last+1 {
		for next := k + 1; next <= k+o.ahead && next*blockBytes < o.info.Size; next++ {
			o.start(next)
		}
	}
	if k != o.last {
		o.last = k
		for old := range o.blocks { // keep the previous block for readers that step back
			if old < k-1 || old > k+mostAhead {
				delete(o.blocks, old)
			}
		}
	}
	o.mu.Unlock()
	began := time.Now()
	<-f.done
	if f.err != nil {
		o.mu.Lock()
		if o.blocks[k] == f {
			delete(o.blocks, k) // the next read tries again
		}
		o.mu.Unlock()
		return 0, f.err
	}
	if time.Since(began) > waits {
		o.mu.Lock()
		o.ahead = min(2*o.ahead, mostAhead)
		o.mu.Unlock()
	}
	return copy(p, f.p[from:]), nil
}

// start returns block k. If the block is not in memory, start fetches it. The caller must hold the lock.
func (o *object) start(k int64) *flight {
	if f := o.blocks[k]; f != nil {
		return f
	}
	f := &flight{done: make(chan struct{})}
	o.blocks[k] = f
	go func() {
		defer close(f.done)
		if o.cache != nil {
			f.p = make([]byte, o.blockSize(k))
			if !o.cache.read(o, k, 0, f.p) {
				f.p, f.err = o.cache.fetch(o.ctx, o, k)
			}
			return
		}
		f.p, f.err = o.request(o.ctx, k)
	}()
	return f
}

// request requests block k from the server.
func (o *object) request(ctx context.Context, k int64) ([]byte, error) {
	p := make([]byte, o.blockSize(k))
	return p, o.client.ReadRange(ctx, o.info, k*blockBytes, p)
}
