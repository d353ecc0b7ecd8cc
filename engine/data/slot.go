package data

import (
	"fmt"
	"unsafe"
)

type slotState uint8

const (
	slotFree    slotState = iota
	slotFilling           // assigned to a step that Next has not returned yet
	slotLent              // the caller holds the batch
)

// sampleState is the state of one sample of a slot.
type sampleState uint8

const (
	sampleMissing sampleState = iota
	sampleTaken               // a worker is reading it
	sampleRead
	sampleFailed
)

// slot contains the buffers of one batch. Position j of the batch is stored at index j-origin. A small change of the
// share therefore needs no copying, and buffers for a whole batch never need copying. Loader.mu protects all fields,
// but not the contents of the buffers.
type slot struct {
	l           *Loader
	batch       Batch
	freeBuffers func() // frees the memory of the buffers

	fields [][]byte      // (capacity) samples, for each field of the Loader
	ids    []int64       // (capacity) memory of the first field
	have   []sampleState // (capacity) state of each position
	index  []int32       // (total) indices of the samples of the whole batch
	whole  []int32       // indices of the samples of the optimizer step; empty unless their labels must be counted

	state  slotState
	step   int64
	epoch  int
	first  int // position of the batch's first sample in the epoch
	total  int // number of samples of the batch over all ranks
	origin int // position that is stored at index 0 of the buffers
	lo, hi int // required positions: [lo, hi)

	scan      int  // no position in [lo, scan) is missing
	remaining int  // number of positions in [lo, hi) that are neither read nor failed
	inFlight  int  // number of worker jobs that write to the buffers; the buffers must not be reused before it is 0
	move      bool // [lo, hi) exceeds the buffers; settle corrects this when inFlight is 0

	fault   error // error of the failed sample with the lowest position in [lo, hi); nil if none failed
	faultAt int

	uncounted bool // no worker has started to count the labels of the step
	counting  bool // a worker counts the labels of the step
	labels    int  // number of labels of the step
	length    int  // Batch.Length

	stepSamples int // Batch.StepSamples
	countFault  error
}

// newSlot allocates buffers for MaxCount samples. Each field is aligned to 64 bytes.
func newSlot(l *Loader) (*slot, error) {
	n := l.o.MaxCount
	size, ends := 0, make([]int, len(l.fields))
	for f, field := range l.fields {
		size = (size+63)&^63 + n*field.Bytes()
		ends[f] = size
	}
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
	s := &slot{l: l, freeBuffers: free, have: make([]sampleState, n), index: make([]int32, l.part),
		whole: make([]int32, 0, l.o.BatchSize)}
	for f, field := range l.fields {
		s.fields = append(s.fields, memory[ends[f]-n*field.Bytes():ends[f]:ends[f]])
	}
	s.ids = elements[int64](s.fields[0])
	s.batch.memory = make([][]byte, len(l.fields))
	return s, nil
}

// heapMemory returns memory of the Go heap, aligned to 64 bytes.
func heapMemory(bytes int) ([]byte, func(), error) {
	b := make([]byte, bytes+63)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) % 64)
	return b[skip:][:bytes:bytes], func() {}, nil
}

// begin assigns the slot to a step. The parameter order is the permutation of the step's epoch; nil means the stored
// order.
func (s *slot) begin(step int64, order []int32) {
	l := s.l
	s.state, s.step = slotFilling, step
	s.epoch = int(step / int64(l.perPass))
	s.first = int(step%int64(l.perPass)) * l.part
	s.total = min(l.part, max(l.o.Samples.Len()-s.first, 0))
	begin := s.first - s.first%l.o.BatchSize // first position of the optimizer step
	end := min(begin+l.o.BatchSize, l.o.Samples.Len())
	s.stepSamples = end - begin
	for j := range s.total {
		if order != nil {
			s.index[j] = order[s.first+j]
		} else {
			s.index[j] = int32(s.first + j)
		}
	}
	s.whole, s.labels, s.countFault = s.whole[:0], 0, nil
	if s.uncounted = l.counts && step%int64(l.o.Accumulation) == 0; s.uncounted { // the first part of an optimizer step
		s.whole = append(s.whole, order[begin:end]...)
	}
	if s.length = 0; l.lengths != nil {
		for _, index := range order[begin:end] {
			s.length = max(s.length, l.lengths.Length(int(index)))
		}
	}
	clear(s.have)
	share := l.shareOf(step)
	s.move = false
	s.origin = s.centred(min(share.offset, s.total), min(share.offset+share.count, s.total))
	s.setRange(share.offset, share.offset+share.count)
}

// centred returns an origin that leaves equal room on both sides of [lo, hi), within the bounds of a batch.
func (s *slot) centred(lo, hi int) int {
	room := len(s.have) - (hi - lo)
	return min(max(lo-room/2, 0), s.l.part-len(s.have))
}

// setRange sets the required positions to lo … hi-1, limited to the positions of the batch.
func (s *slot) setRange(lo, hi int) {
	s.lo, s.hi = min(lo, s.total), min(hi, s.total)
	s.move = s.lo < s.origin || s.hi > s.origin+len(s.have)
	s.settle()
}

// settle moves the contents if necessary, once no worker writes to them. It then counts the missing samples.
func (s *slot) settle() {
	if s.move && s.inFlight > 0 {
		return // the last worker that finishes calls settle again
	}
	if s.move {
		s.moveTo(s.centred(s.lo, s.hi))
		s.move = false
	}
	s.scan, s.remaining, s.fault = s.lo, 0, nil
	for j := s.lo; j < s.hi; j++ {
		have := &s.have[j-s.origin]
		if *have == sampleFailed {
			*have = sampleMissing // read the sample again, so that the reported fault belongs to the new range
		}
		if *have != sampleRead {
			s.remaining++
		}
	}
}

// moveTo changes the origin. It keeps the samples that fit into the buffers before and after the change.
func (s *slot) moveTo(origin int) {
	from, to := max(s.origin, origin), min(s.origin, origin)+len(s.have)
	if from < to {
		src, dst, n := from-s.origin, from-origin, to-from
		for f, memory := range s.fields {
			size := s.l.sizes[f]
			copy(memory[dst*size:(dst+n)*size], memory[src*size:(src+n)*size])
		}
		copy(s.have[dst:dst+n], s.have[src:src+n])
		clear(s.have[:dst])
		clear(s.have[dst+n:])
	} else {
		clear(s.have)
	}
	s.origin = origin
}

// fieldBytes returns the memory of one field of the sample at position j.
func (s *slot) fieldBytes(field, j int) []byte {
	size := s.l.sizes[field]
	at := (j - s.origin) * size
	return s.fields[field][at : at+size : at+size]
}

// take marks up to n adjacent missing samples as taken, and returns their positions. It starts at the sample that
// hasMissing found. It never splits a group (Layout.Group).
func (s *slot) take(n int) (lo, hi int) {
	lo = s.scan
	for s.scan < s.hi && (s.scan-lo < n || s.scan%s.l.group != 0) && s.have[s.scan-s.origin] == sampleMissing {
		s.have[s.scan-s.origin] = sampleTaken
		s.scan++
	}
	return lo, s.scan
}

// hasMissing reports whether a sample is missing and take can be called.
func (s *slot) hasMissing() bool {
	if s.move {
		return false
	}
	for s.scan < s.hi && s.have[s.scan-s.origin] != sampleMissing {
		s.scan++
	}
	return s.scan < s.hi
}

// finish records the result of reading position j.
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

// complete reports whether all required samples have been read or have failed, and all labels are counted.
func (s *slot) complete() bool {
	return !s.move && s.remaining == 0 && !s.uncounted && !s.counting
}

// lend returns the slot as a Batch for the caller of Next.
func (s *slot) lend() *Batch {
	s.state = slotLent
	a, b := s.lo-s.origin, s.hi-s.origin
	memory := s.batch.memory
	for f, m := range s.fields {
		size := s.l.sizes[f]
		memory[f] = m[a*size : b*size : b*size]
	}
	s.batch = Batch{
		Fields: s.l.fields,
		IDs:    s.ids[a:b:b],
		N:      s.hi - s.lo,
		Offset: s.lo,
		Total:  s.total,
		Step:   s.step,
		Epoch:  s.epoch,
		memory: memory,

		StepLabels: s.labels,
		Length:     s.length,

		StepSamples: s.stepSamples,
		loader:      s.l,
		slot:        s,
	}
	if skips, ok := s.l.o.Samples.(interface{ Replaced(i int) bool }); ok {
		for _, i := range s.index[s.lo:s.hi] {
			if skips.Replaced(int(i)) {
				s.batch.Replaced++
			}
		}
	}
	return &s.batch
}

// free makes the slot available. It is reused after the last worker has stopped writing to it.
func (s *slot) free() { s.state = slotFree }
