package data

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// DefaultCacheBytes is the default limit of Cached, in bytes. CIFAR needs 0.18 GiB.
const DefaultCacheBytes = 1 << 30

const (
	slabBytes       = 4 << 20
	cacheEntryBytes = 8 // width and height, 4 bytes each, stored before the pixels
)

// Cached keeps decoded images in memory after their first read, up to limit bytes. It keeps only images of at most
// FullDecodePixels pixels. A limit of 0 means DefaultCacheBytes. If the limit is negative, Cached returns ds.
//
// Reading a cached image copies nothing, because Image.Pix refers to the cache. Images that are too large or do not fit
// into the cache are read from ds each time.
func Cached(ds Dataset, limit int64) Dataset { return cachedWithin(ds, limit, nil) }

// Budget is an amount of memory that several caches share. A cache reserves memory in slabs of 4 MiB. It stops growing
// when the budget is used up. The zero value has no memory. A Budget is safe for concurrent use.
type Budget struct {
	left, held, reserved atomic.Int64 // bytes: free, used by caches, and withheld by Reserve
}

// Set sets the remaining memory in bytes. A lower value is permitted only until the caches are first used.
func (b *Budget) Set(bytes int64) { b.left.Store(bytes) }

// Held returns the memory of the caches, bytes.
func (b *Budget) Held() int64 { return b.held.Load() }

// Reserve withholds bytes of the budget from the caches, so that other code can use the memory. Later calls can only
// raise the number of withheld bytes. Reserve returns the number of bytes that it could not withhold, because the
// caches use them or the budget is too small. Only one goroutine at a time may call it.
func (b *Budget) Reserve(bytes int64) (missing int64) {
	for {
		more := bytes - b.reserved.Load()
		left := b.left.Load()
		if more <= 0 || left <= 0 {
			return max(more, 0)
		}
		if more = min(more, left); b.left.CompareAndSwap(left, left-more) {
			b.reserved.Add(more)
		}
	}
}

// take moves bytes from the budget to a cache. It returns false if less than bytes remains.
func (b *Budget) take(bytes int64) bool {
	for b != nil {
		left := b.left.Load()
		if left < bytes {
			return false
		}
		if b.left.CompareAndSwap(left, left-bytes) {
			b.held.Add(bytes)
			break
		}
	}
	return true
}

func cachedWithin(ds Dataset, limit int64, budget *Budget) Dataset {
	if limit < 0 {
		return ds
	}
	if limit == 0 {
		limit = DefaultCacheBytes
	}
	// A small limit shortens the last slab, so that the cache never exceeds the limit.
	return &cached{
		Dataset: ds,
		limit:   limit,
		budget:  budget,
		entry:   make([]atomic.Int64, ds.Len()),
		slabs:   make([][]byte, (limit+slabBytes-1)/slabBytes),
	}
}

// CachedBytes returns the memory that the cache of one part uses for images of the given size. An entry never crosses
// slabs, so images that need more than a slab are not cached.
func CachedBytes(images, width, height int) int64 {
	entry := cacheEntryBytes + 3*int64(width)*int64(height)
	inSlab := slabBytes / entry
	if inSlab == 0 {
		return 0
	}
	return (int64(images) + inSlab - 1) / inSlab * slabBytes
}

type cached struct {
	Dataset
	limit  int64
	budget *Budget        // nil: only limit applies
	entry  []atomic.Int64 // for each sample: 1 + the position of its entry in the slabs; 0: not cached

	mu    sync.Mutex
	slabs [][]byte // allocated in order; the slab of an entry is allocated before the entry is set
	end   int64    // position after the last entry
}

func (c *cached) NewReader() (Reader, error) {
	r, err := c.Dataset.NewReader()
	if err != nil {
		return nil, err
	}
	return &cachedReader{Reader: r, c: c}, nil
}

type cachedReader struct {
	Reader
	c *cached
}

func (r *cachedReader) Read(i int, sizer Sizer, img *Image) error {
	if at := r.c.entry[i].Load(); at != 0 {
		r.c.view(at-1, img)
		return nil
	}
	if err := r.Reader.Read(i, sizer, img); err != nil {
		return err
	}
	if img.Width*img.Height <= FullDecodePixels && img.Width == img.FullWidth && img.Height == img.FullHeight {
		r.c.keep(i, img)
	}
	return nil
}

// view sets img to the image of the entry at position at.
func (c *cached) view(at int64, img *Image) {
	slab := c.slabs[at/slabBytes][at%slabBytes:]
	w, h := int(binary.LittleEndian.Uint32(slab)), int(binary.LittleEndian.Uint32(slab[4:]))
	size := cacheEntryBytes + 3*w*h
	*img = Image{Pix: slab[cacheEntryBytes:size:size], Width: w, Height: h, FullWidth: w, FullHeight: h}
}

// keep copies img into the cache if there is room. If two Readers copy the same sample, the second of the two equal
// copies is used.
func (c *cached) keep(i int, img *Image) {
	at, slab := c.reserve(cacheEntryBytes + int64(len(img.Pix)))
	if slab == nil {
		return
	}
	binary.LittleEndian.PutUint32(slab, uint32(img.Width))
	binary.LittleEndian.PutUint32(slab[4:], uint32(img.Height))
	copy(slab[cacheEntryBytes:], img.Pix)
	c.entry[i].Store(at + 1)
}

// reserve returns the position and memory of a new entry, or nil if the cache is full.
func (c *cached) reserve(size int64) (int64, []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.end
	if at%slabBytes+size > slabBytes { // an entry must not cross slabs
		at = (at/slabBytes + 1) * slabBytes
	}
	if at+size > c.limit {
		return 0, nil
	}
	k := at / slabBytes
	if c.slabs[k] == nil {
		if !c.budget.take(min(slabBytes, c.limit-k*slabBytes)) {
			return 0, nil
		}
		c.slabs[k] = make([]byte, min(slabBytes, c.limit-k*slabBytes))
	}
	c.end = at + size
	return at, c.slabs[k][at%slabBytes:][:size:size]
}
