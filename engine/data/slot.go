package data

import (
	"fmt"
	"unsafe"
)

type slotState uint8

const (
	slotFree    slotState = iota
	slotFilling           // belongs to a step that Next has not returned
	slotLent              // held by the caller
)

// sampleState is what is known of one sample of a slot.
type sampleState uint8

const (
	sampleMissing sampleState = iota
	sampleTaken               // a worker reads it
	sampleRead
	sampleFailed
)

// slot holds the buffers of one batch. Position j of the batch is stored at j-origin, so that a share that moves a
// little needs no copying, and none at all where the buffers hold a whole batch. Fields but the buffers' contents are
// guarded by Loader.mu.
type slot struct {
	l           *Loader
	batch       Batch
	freeBuffers func() // frees the buffers

	images []byte  // (capacity, Size, Size, 3)
	labels []int32 // (capacity)
	second []int32 // (capacity), share too; nil unless samples are mixed
	share  []float32
	ids    []int64       // (capacity)
	have   []sampleState // (capacity)
	index  []int32       // (total) sample indices of the whole batch

	state  slotState
	step   int64
	epoch  int
	first  int // position of the batch's first sample in the epoch
	total  int // samples of the batch over all ranks
	origin int // position that is stored first
	lo, hi int // positions wanted

	scan      int  // positions of [lo, scan) are not missing
	remaining int  // positions of [lo, hi) neither read nor failed
	inFlight  int  // jobs of workers that write here; the buffers are not reused before it is 0
	move      bool // [lo, hi) does not lie within the buffers; to be mended when inFlight is 0

	fault   error // of the failed sample at the lowest position of [lo, hi), or nil
	faultAt int
}

// newSlot allocates the buffers for MaxCount samples of the given size.
func newSlot(l *Loader, sampleBytes int) (*slot, error) {
	n := l.o.MaxCount
	align := func(bytes int) int { return (bytes + 63) &^ 63 }
	labelsAt := align(8 * n)
	secondAt := labelsAt + align(4*n)
	shareAt, imagesAt := secondAt, secondAt
	if l.o.Mix.Enabled() {
		shareAt = secondAt + align(4*n)
		imagesAt = shareAt + align(4*n)
	}
	size := imagesAt + n*sampleBytes
	alloc := l.o.Alloc
	if alloc == nil {
		alloc = heapMemory
	}
	memory, free, err := alloc(size)
	if err != nil {
		return nil, fmt.Errorf("data loader: allocate %d bytes for a batch: %w", size, err)
	}
	if free == nil {
		free = func() {}
	}
	if len(memory) < size || uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%64 != 0 {
		free()
		return nil, fmt.Errorf("data loader: memory for a batch is %d bytes, want %d, aligned to 64", len(memory), size)
	}
	s := &slot{
		l:           l,
		freeBuffers: free,
		ids:         unsafe.Slice((*int64)(unsafe.Pointer(&memory[0])), n),
		labels:      unsafe.Slice((*int32)(unsafe.Pointer(&memory[labelsAt])), n),
		images:      memory[imagesAt:size:size],
		have:        make([]sampleState, n),
		index:       make([]int32, l.part),
	}
	if l.o.Mix.Enabled() {
		s.second = unsafe.Slice((*int32)(unsafe.Pointer(&memory[secondAt])), n)
		s.share = unsafe.Slice((*float32)(unsafe.Pointer(&memory[shareAt])), n)
	}
	return s, nil
}

// heapMemory returns 64-byte aligned memory of the Go heap.
func heapMemory(bytes int) ([]byte, func(), error) {
	b := make([]byte, bytes+63)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) % 64)
	return b[skip:][:bytes:bytes], func() {}, nil
}

// begin gives the slot to a step. order is the permutation of the step's epoch, or nil for samples in order.
func (s *slot) begin(step int64, order []int32) {
	l := s.l
	s.state, s.step = slotFilling, step
	s.epoch = int(step / int64(l.perPass))
	s.first = int(step%int64(l.perPass)) * l.part
	s.total = min(l.part, l.o.Dataset.Len()-s.first)
	for j := range s.total {
		if order != nil {
			s.index[j] = order[s.first+j]
		} else {
			s.index[j] = int32(s.first + j)
		}
	}
	clear(s.have)
	share := l.shareOf(step)
	s.move = false
	s.origin = s.centred(min(share.offset, s.total), min(share.offset+share.count, s.total))
	s.setRange(share.offset, share.offset+share.count)
}

// centred is the origin that leaves equal room on both sides of [lo, hi), without room for what no batch has.
func (s *slot) centred(lo, hi int) int {
	room := len(s.have) - (hi - lo)
	return min(max(lo-room/2, 0), s.l.part-len(s.have))
}

// setRange makes positions lo … hi-1 of the batch, as far as it has them, the wanted ones.
func (s *slot) setRange(lo, hi int) {
	s.lo, s.hi = min(lo, s.total), min(hi, s.total)
	s.move = s.lo < s.origin || s.hi > s.origin+len(s.have)
	s.settle()
}

// settle moves the contents if that is due and possible, and counts what is missing.
func (s *slot) settle() {
	if s.move && s.inFlight > 0 {
		return // the last worker to finish settles
	}
	if s.move {
		s.moveTo(s.centred(s.lo, s.hi))
		s.move = false
	}
	s.scan, s.remaining, s.fault = s.lo, 0, nil
	for j := s.lo; j < s.hi; j++ {
		have := &s.have[j-s.origin]
		if *have == sampleFailed {
			*have = sampleMissing // is read again, so that the fault that is reported lies in the new range
		}
		if *have != sampleRead {
			s.remaining++
		}
	}
}

// moveTo changes the origin and keeps the samples that lie within the buffers before and after.
func (s *slot) moveTo(origin int) {
	from, to := max(s.origin, origin), min(s.origin, origin)+len(s.have)
	if from < to {
		src, dst, n := from-s.origin, from-origin, to-from
		sample := len(s.images) / len(s.have)
		copy(s.images[dst*sample:(dst+n)*sample], s.images[src*sample:(src+n)*sample])
		copy(s.labels[dst:dst+n], s.labels[src:src+n])
		copy(s.ids[dst:dst+n], s.ids[src:src+n])
		if s.second != nil {
			copy(s.second[dst:dst+n], s.second[src:src+n])
			copy(s.share[dst:dst+n], s.share[src:src+n])
		}
		copy(s.have[dst:dst+n], s.have[src:src+n])
		clear(s.have[:dst])
		clear(s.have[dst+n:])
	} else {
		clear(s.have)
	}
	s.origin = origin
}

// place is where the image of position j is stored.
func (s *slot) place(j int) []byte {
	sample := len(s.images) / len(s.have)
	at := (j - s.origin) * sample
	return s.images[at : at+sample : at+sample]
}

// take marks up to n neighbouring missing samples, the first that hasMissing found, as taken and returns their
// positions. Where samples are mixed it does not part two partners.
func (s *slot) take(n int) (lo, hi int) {
	lo = s.scan
	for s.scan < s.hi && (s.scan-lo < n || s.second != nil && s.scan%2 == 1) && s.have[s.scan-s.origin] == sampleMissing {
		s.have[s.scan-s.origin] = sampleTaken
		s.scan++
	}
	return lo, s.scan
}

// hasMissing tells whether take would find a sample.
func (s *slot) hasMissing() bool {
	if s.move {
		return false
	}
	for s.scan < s.hi && s.have[s.scan-s.origin] != sampleMissing {
		s.scan++
	}
	return s.scan < s.hi
}

// finish records what a worker made of position j.
func (s *slot) finish(j int, err error) {
	state := sampleRead
	if err != nil {
		state = sampleFailed
	}
	s.have[j-s.origin] = state
	if j < s.lo || j >= s.hi {
		return
	}
	s.remaining--
	if err != nil && (s.fault == nil || j < s.faultAt) {
		s.fault, s.faultAt = err, j
	}
}

// complete tells whether all wanted samples have been read, or have failed.
func (s *slot) complete() bool { return !s.move && s.remaining == 0 }

// lend describes the slot to the caller of Next.
func (s *slot) lend() *Batch {
	s.state = slotLent
	a, b := s.lo-s.origin, s.hi-s.origin
	sample := len(s.images) / len(s.have)
	s.batch = Batch{
		Images: s.images[a*sample : b*sample : b*sample],
		Labels: s.labels[a:b:b],
		IDs:    s.ids[a:b:b],
		N:      s.hi - s.lo,
		Offset: s.lo,
		Total:  s.total,
		Step:   s.step,
		Epoch:  s.epoch,
		loader: s.l,
		slot:   s,
	}
	if skips, ok := s.l.o.Dataset.(interface{ Replaced(i int) bool }); ok {
		for _, i := range s.index[s.lo:s.hi] {
			if skips.Replaced(int(i)) {
				s.batch.Replaced++
			}
		}
	}
	if s.second != nil {
		s.batch.SecondLabels, s.batch.Share = s.second[a:b:b], s.share[a:b:b]
	}
	return &s.batch
}

// free makes the slot available as soon as no worker writes to it.
func (s *slot) free() { s.state = slotFree }
