package data

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// Ahead is implemented by Datasets that prefetch stored bytes for their Readers; see Fetcher. Wrappers of Datasets
// forward the calls.
type Ahead interface {
	// Expect announces that sample i will be read soon. The order of the calls is the order of the reads.
	Expect(i int)
	// Horizon returns the number of samples that should be announced before they are read; 0 if reads are fast.
	Horizon() int
	// Forget drops all announcements.
	Forget()
}

const (
	// mostFetches limits the number of fetches in flight. Each blocks a thread, and usually has an open file.
	mostFetches = 256
	// AheadBytes limits the memory of fetched and unread samples, of fetches in flight and of unused buffers. Each part
	// of the data has this limit on each rank. About 600 JPEG files of ImageNet fit. A lower limit hides less latency.
	AheadBytes = 64 << 20
	// fastFetch is the mean time of a fetch below which the samples are assumed to be in memory. Prefetching would then
	// cost more time than it saves.
	fastFetch = 100 * time.Microsecond
	// mostBuffer limits the size of an unused buffer, as a multiple of the mean sample size. A higher limit lets a few
	// large samples enlarge all buffers.
	mostBuffer = 2
	// spareFetches is the ratio of fetches in flight to the number that the mean times require. With a lower ratio,
	// Readers wait whenever a few slow fetches follow each other.
	spareFetches = 2
	// mostProcess limits each processing time that enters the mean, as a multiple of the current mean.
	mostProcess = 8
	// weightOfTime is the weight of a new value in the mean times. The means adapt to a change within about 20 reads.
	weightOfTime = 0.1
)

// A Fetcher prefetches the stored bytes of samples. It hides the latency of the storage, up to its limits of fetches in
// flight and of memory. It computes the number of fetches in flight from measured times. If a fetch takes L, and W
// Readers each need P to process a sample, W*L/P fetches keep all Readers busy (Little's law). If the storage is fast,
// the Fetcher prefetches nothing, and Readers read their samples themselves. A Fetcher never changes results.
//
// A Fetcher is safe for concurrent use. Expect, Horizon, Forget and Open accept a nil Fetcher, which fetches nothing.
type Fetcher struct {
	fetch func(i int, buf []byte) ([]byte, error)
	most  int // largest number of fetches in flight

	mu      sync.Mutex
	queue   []int // announced samples in order; next skips those that are no longer in samples
	samples map[int]*fetching
	flying  int      // fetches in flight
	held    int64    // bytes of fetched samples
	free    [][]byte // unused buffers
	unused  int64    // bytes of free
	readers int      // Readers that have read a sample
	latency float64  // mean time of a fetch, ns; 0: unknown
	process float64  // mean time in which a Reader processes a sample, ns; 0: unknown
	bytes   float64  // mean size of the memory of a fetched sample
	size    float64  // mean size of a sample
}

// fetching is the state of the fetch of one sample, from Expect until a Reader takes its contents.
type fetching struct {
	started  bool
	finished bool
	ended    chan struct{} // closed when the fetch has ended; nil: no Reader waits
	contents []byte
	failed   bool  // there are no contents: the Reader reads the sample itself and reports any error
	err      error // error after all retries of a request: the Reader does not repeat the request; nil: no such error
}

// NewFetcher returns a Fetcher. The function fetch must return the stored bytes of sample i, in buf if buf is large
// enough. It must be safe for concurrent use. The parameter limit is the largest number of fetches in flight; 0 means
// 256.
func NewFetcher(limit int, fetch func(i int, buf []byte) ([]byte, error)) *Fetcher {
	if limit <= 0 || limit > mostFetches {
		limit = mostFetches
	}
	return &Fetcher{fetch: fetch, most: limit, samples: map[int]*fetching{}}
}

// Expect implements Ahead.
func (f *Fetcher) Expect(i int) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.samples[i] != nil {
		return
	}
	if len(f.queue) >= 2*len(f.samples)+64 { // Readers have read most of the queue themselves
		f.queue = slices.DeleteFunc(f.queue, func(i int) bool { return f.samples[i] == nil || f.samples[i].started })
	}
	f.samples[i] = &fetching{}
	f.queue = append(f.queue, i)
	f.start()
}

// Horizon implements Ahead. It returns twice the target number of fetches. Samples are thus announced before their
// fetches can start.
func (f *Fetcher) Horizon() int {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return 2 * f.target()
}

// Forget implements Ahead. Fetches in flight continue, but no Reader gets their contents.
func (f *Fetcher) Forget() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = f.queue[:0]
	for i, s := range f.samples {
		if s.finished {
			f.drop(s)
		}
		delete(f.samples, i)
	}
}

// UnusedBytes returns the bytes of buffers without contents.
func (f *Fetcher) UnusedBytes() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unused
}

// InFlight returns the number of fetches in flight, and the bytes of fetched samples that no Reader has taken.
func (f *Fetcher) InFlight() (fetches int, heldBytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flying, f.held
}

// target returns the number of fetches that should be in flight. The caller must hold the lock.
func (f *Fetcher) target() int {
	if f.latency < float64(fastFetch) {
		return 0
	}
	n := float64(2 * f.readers) // before the Readers have processed a sample
	if f.process > 0 {
		n = float64(f.readers) * (1 + spareFetches*f.latency/f.process) // at least one fetch for each Reader
	}
	return int(min(n, float64(f.most)))
}

// start starts fetches. The caller must hold the lock.
func (f *Fetcher) start() {
	for n := f.target(); f.flying < n; {
		s, i := f.next()
		if s == nil {
			return
		}
		f.flying++
		go f.run(s, i)
	}
}

// next returns the next sample to fetch, or nil. The caller must hold the lock.
func (f *Fetcher) next() (*fetching, int) {
	for len(f.queue) > 0 && f.room() {
		i := f.queue[0]
		f.queue = f.queue[1:]
		if s := f.samples[i]; s != nil && !s.started {
			s.started = true
			return s, i
		}
	}
	return nil, 0
}

// room reports whether the memory suffices for one more fetch. This fetch will use the newest unused buffer. If
// necessary, room frees other unused buffers. The caller must hold the lock.
func (f *Fetcher) room() bool {
	needed := f.held + int64(float64(f.flying+1)*f.bytes)
	for len(f.free) > 0 && needed+f.unused-int64(cap(f.free[len(f.free)-1])) > AheadBytes {
		f.buffer()
	}
	return needed <= AheadBytes
}

// run fetches samples until enough are in flight.
func (f *Fetcher) run(s *fetching, i int) {
	for s != nil {
		f.mu.Lock()
		buf := f.buffer()
		f.mu.Unlock()
		started := time.Now()
		contents, err := f.fetch(i, buf)
		took := time.Since(started)

		f.mu.Lock()
		if err == nil {
			f.measured(took, contents)
		}
		s.contents, s.finished = contents, true
		if errors.As(err, new(interface{ Requested() })) { // of package objects
			s.err = err
		}
		f.held += int64(cap(contents))
		if err != nil || f.samples[i] != s { // unreadable or forgotten; a waiting Reader then reads the sample itself
			f.drop(s)
		}
		if s.ended != nil {
			close(s.ended)
		}
		s = nil
		if f.flying <= f.target() {
			s, i = f.next()
		}
		if s == nil {
			f.flying--
		}
		f.mu.Unlock()
	}
}

// measured adds the time and the sizes of a successful fetch to the means. The caller must hold the lock.
func (f *Fetcher) measured(took time.Duration, contents []byte) {
	f.latency = mean(f.latency, float64(took))
	f.bytes = mean(f.bytes, float64(cap(contents)))
	f.size = mean(f.size, float64(len(contents)))
}

func mean(old, value float64) float64 {
	if old == 0 {
		return value
	}
	return old + weightOfTime*(value-old)
}

// drop frees the contents of a fetched sample. The fetch of the sample then counts as failed. The caller must hold the
// lock.
func (f *Fetcher) drop(s *fetching) {
	f.held -= int64(cap(s.contents))
	f.recycle(s.contents)
	s.contents, s.failed = nil, true
}

// recycle keeps a buffer for a later fetch. The caller must hold the lock.
func (f *Fetcher) recycle(buf []byte) {
	flying := int64(float64(f.flying) * f.bytes)
	if cap(buf) > 0 && float64(cap(buf)) <= mostBuffer*f.size && len(f.free) < f.readers+f.target() &&
		f.held+flying+f.unused+int64(cap(buf)) <= AheadBytes {
		f.free = append(f.free, buf[:cap(buf)])
		f.unused += int64(cap(buf))
	}
}

// buffer returns an unused buffer, or nil. The caller must hold the lock.
func (f *Fetcher) buffer() []byte {
	if len(f.free) == 0 {
		return nil
	}
	buf := f.free[len(f.free)-1]
	f.free[len(f.free)-1] = nil // the garbage collector may free it
	f.free = f.free[:len(f.free)-1]
	f.unused -= int64(cap(buf))
	return buf
}

// Fetches are the reads of one Reader through a Fetcher. They are not safe for concurrent use.
type Fetches struct {
	f    *Fetcher
	buf  []byte
	last time.Time // end of the last read; zero: no read yet, and Fetcher.readers does not include the Reader
}

// Open returns the reads of a new Reader. The Reader must close them. Open returns nil for a nil Fetcher.
func (f *Fetcher) Open() *Fetches {
	if f == nil {
		return nil
	}
	return &Fetches{f: f}
}

// Close ends the reads. It accepts a nil r.
func (r *Fetches) Close() {
	if r == nil {
		return
	}
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	if !r.last.IsZero() {
		r.f.readers--
	}
}

// Read returns the stored bytes of a sample, valid until the next call, and the time that the Reader waited for them.
func (r *Fetches) Read(i int) (contents []byte, waited time.Duration, err error) {
	started := time.Now()
	contents, fetched, err := r.take(i, started)
	if !fetched {
		contents, err = r.f.fetch(i, r.buf)
		if cap(contents) > 0 {
			r.buf = contents[:cap(contents)]
		}
	}
	r.last = time.Now()
	waited = r.last.Sub(started)
	if !fetched && err == nil {
		r.f.mu.Lock()
		r.f.measured(waited, contents)
		r.f.start()
		r.f.mu.Unlock()
	}
	return contents, waited, err
}

// take returns the contents of a prefetched sample. It waits if the fetch is in flight.
func (r *Fetches) take(i int, started time.Time) (contents []byte, fetched bool, err error) {
	f := r.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.last.IsZero() {
		f.readers++
	} else {
		value := max(float64(started.Sub(r.last)), 1)
		if f.process > 0 { // limit pauses in which the Reader waits for a free batch or for the end of an evaluation
			value = min(value, mostProcess*f.process)
		}
		f.process = mean(f.process, value)
	}
	s := f.samples[i]
	if s == nil {
		return nil, false, nil
	}
	if s.started && !s.finished {
		if s.ended == nil {
			s.ended = make(chan struct{})
		}
		f.mu.Unlock()
		<-s.ended
		f.mu.Lock()
	}
	if f.samples[i] == s {
		delete(f.samples, i)
	}
	if !s.finished || s.failed { // still in the queue, or the fetch failed
		return nil, s.err != nil, s.err
	}
	contents = s.contents
	f.held -= int64(cap(contents))
	f.recycle(r.buf)
	r.buf = contents[:cap(contents)]
	s.contents, s.failed = nil, true // if a second Reader waited for this sample, it reads the sample itself
	f.start()
	return contents, true, nil
}
