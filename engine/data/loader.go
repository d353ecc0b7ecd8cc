package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// ErrClosed is returned by a Loader after Close.
var ErrClosed = errors.New("data loader is closed")

// Options configures a Loader.
type Options struct {
	Samples Samples
	Seed    uint64 // seed of the order of epochs and of the random choices of samples

	// BatchSize is the number of samples of the global batch, which all ranks together use in one optimizer step.
	BatchSize int
	// Accumulation is the number of equal parts into which the global batch is split. Each part is one Batch.
	// Accumulation must divide BatchSize. 0 means 1.
	Accumulation int

	// GroupByLength puts samples of similar length into the same optimizer step, and sets Batch.Length. The Samples
	// must implement Lengths. The groups are a function of the seed and the epoch. Evaluations ignore GroupByLength.
	GroupByLength bool

	// Evaluate makes the Loader read the samples once, in order, including the last incomplete batch. Next then returns
	// io.EOF until JumpTo is called. Without Evaluate, the Loader reads epoch after epoch, each in a different order.
	// Samples at the end of an epoch that do not fill a global batch are omitted, unless KeepLast is set.
	Evaluate bool

	// KeepLast forms a smaller last step (Batch.StepSamples) from the samples at the end of an epoch that do not fill a
	// global batch. The accumulation parts of this step are filled in order, so the last ones may be empty. If some
	// positions in the share of a rank do not exist in a part, the rank gets only the others. Evaluations ignore
	// KeepLast.
	KeepLast bool

	// Share is this rank's share of each batch. nil means the whole batch.
	Share *Share
	// MaxCount is the largest permitted Share.Count; it determines the size of the buffers. 0 means a whole batch.
	MaxCount int

	Start   int64 // number of the first batch; batches count from 0 over all epochs
	Workers int   // number of goroutines that read samples; 0 means one per processor, at most 16
	Depth   int   // number of batches in memory: being read, ready, or held by the caller; at least 2, 0 means 4

	// Alloc returns memory for the buffers of one batch, and a function that frees it. The memory must be aligned to 64
	// bytes. It may be page-locked, for example. nil means the Go heap.
	Alloc func(bytes int) (memory []byte, free func(), err error)
}

// Share selects the samples Offset to Offset+Count-1 of each batch. Count may be 0.
type Share struct{ Offset, Count int }

// Batch is this rank's share of a global batch, or of one accumulation part of it. The caller owns the Batch until
// Release. Samples are in the order of the global batch.
type Batch struct {
	Fields []Field // IDs, then the fields of the Samples; the caller must not modify the slice
	IDs    []int64 // (N) indices of the samples
	N      int     // number of samples in this share; may be 0
	Offset int     // position of the first sample in the batch
	Total  int     // number of samples of the batch over all ranks
	Step   int64   // number of the batch, from 0 over all epochs
	Epoch  int
	// StepSamples is the number of samples of the whole optimizer step, over all ranks and accumulation parts. It is
	// below Options.BatchSize only in the last step of an epoch (KeepLast), and in the last batch of an evaluation.
	StepSamples int
	// Replaced is the number of samples in this share that were unreadable and have been replaced (Skip).
	Replaced int
	// StepLabels is the number of labels of the whole optimizer step, over all ranks and accumulation parts. It is set
	// in the first part of a step if each Source implements LabelCounter; otherwise it is 0.
	StepLabels int
	// Length is the number of positions of the longest sample of the optimizer step, over all ranks and accumulation
	// parts. It is 0 if Options.GroupByLength is not set.
	Length int

	memory [][]byte // memory of each field
	loader *Loader
	slot   *slot
}

// Bytes returns the memory of field f of Fields: (N, Shape...).
func (b *Batch) Bytes(f int) []byte { return b.memory[f] }

// Values returns the elements of the field with the given name: (N, Shape...). It returns nil if there is no such
// field, or if its elements are not of type T.
func Values[T uint8 | int32 | int64 | float32](b *Batch, name string) []T {
	for f, field := range b.Fields {
		var v T
		if field.Name == name && field.DType == dtypeOf(v) {
			return elements[T](b.memory[f])
		}
	}
	return nil
}

func dtypeOf(v any) tensor.DType {
	switch v.(type) {
	case int32:
		return tensor.I32
	case int64:
		return tensor.I64
	case float32:
		return tensor.F32
	}
	return tensor.U8
}

// Release returns the buffers to the Loader. It must be called exactly once for each batch, from any goroutine.
func (b *Batch) Release() { b.loader.release(b.slot) }

// Loader prefetches batches. Next, SetShare and JumpTo are not safe for concurrent use.
type Loader struct {
	o       Options // options with defaults
	part    int     // number of samples of a batch over all ranks
	perPass int     // number of batches per epoch
	chunk   int     // number of samples that a worker takes at a time
	group   int     // Layout.Group
	fields  []Field // IDs, then the fields of the samples
	sizes   []int   // bytes of each field per sample
	counts  bool    // each Source counts labels for Batch.StepLabels

	mu     sync.Mutex
	work   sync.Cond     // wakes the workers after a change
	ready  chan struct{} // contains a token when Next must check again
	slots  []*slot
	head   int64 // step that Next will return
	fill   int64 // next step for which a slot will be filled
	shares []shareChange
	closed bool

	lengths    Lengths // nil unless samples are grouped by length
	scratch    []int32 // buffer of groupByLength
	order      []int32 // order of the samples in epoch orderEpoch
	orderEpoch int     // epoch of order; -1: none
	shuffling  bool    // a worker computes order without holding the lock

	ahead     Ahead // the Samples, if they implement Ahead; else nil
	announced int64 // all earlier steps are announced to ahead

	workers sync.WaitGroup
	sources []Source
}

// shareChange is this rank's share, which applies from the step in the field from.
type shareChange struct {
	from          int64
	offset, count int
}

// NewLoader checks the options, allocates all buffers, and starts to read.
func NewLoader(o Options) (*Loader, error) {
	o, layout, perPass, err := o.checked()
	if err != nil {
		return nil, err
	}
	l := &Loader{
		o:          o,
		group:      max(layout.Group, 1),
		fields:     append([]Field{{Name: IDs, DType: tensor.I64}}, layout.Fields...),
		part:       o.BatchSize / o.Accumulation,
		perPass:    perPass,
		ready:      make(chan struct{}, 1),
		head:       o.Start,
		fill:       o.Start,
		announced:  o.Start,
		shares:     append(make([]shareChange, 0, 16), shareChange{0, o.Share.Offset, o.Share.Count}),
		orderEpoch: -1,
	}
	l.work.L = &l.mu
	l.ahead, _ = o.Samples.(Ahead)
	sample := 0
	for _, f := range l.fields {
		l.sizes = append(l.sizes, f.Bytes())
		sample += f.Bytes()
	}
	l.chunk = max(min(max(48<<10/sample, 1), 64), l.group)
	if !o.Evaluate {
		l.order = make([]int32, o.Samples.Len())
		if o.GroupByLength {
			l.lengths, l.scratch = o.Samples.(Lengths), make([]int32, len(l.order))
		}
	}
	for range o.Depth {
		s, err := newSlot(l)
		if err != nil {
			l.freeSlots()
			return nil, err
		}
		l.slots = append(l.slots, s)
	}
	if err := l.start(); err != nil {
		l.freeSlots()
		return nil, err
	}
	return l, nil
}

// BatchesPerEpoch checks the options and returns the number of batches of an epoch; see Loader.BatchesPerEpoch. It
// neither reads samples nor allocates buffers.
func (o Options) BatchesPerEpoch() (int, error) {
	_, _, n, err := o.checked()
	return n, err
}

// MemoryBytes returns the memory that the batches of a Loader need for a share of count samples. It neither reads
// samples nor allocates buffers. The parameter samples is the number of samples; 0 means that it is unknown. An
// evaluation of few samples does not fill all batches. The system then allocates no memory for the unused buffers.
func (o Options) MemoryBytes(count, samples int) (int64, error) {
	layout, err := o.Samples.Layout(&o)
	if err != nil {
		return 0, err
	}
	depth, sample := o.Depth, tensor.I64.Size()+1 // ID and state of the sample
	setDefault(&depth, 4)
	for _, f := range layout.Fields {
		sample += int64(f.Bytes())
	}
	held := int64(depth) * int64(count)
	order := int64(samples)
	if o.Evaluate {
		if samples > 0 {
			held = min(held, int64(samples))
		}
		order = 0
	}
	if o.GroupByLength {
		order *= 2
	}
	indices := int64(depth) * int64(o.BatchSize+o.BatchSize/max(o.Accumulation, 1))
	return held*sample + (indices+order)*tensor.I32.Size(), nil
}

// checked returns the options with defaults, the layout of the samples and the number of batches of an epoch.
func (o Options) checked() (_ Options, layout Layout, perPass int, err error) {
	if o, layout, err = o.normalized(); err != nil {
		return o, layout, 0, err
	}
	perPass = batchesPerEpoch(o.Samples.Len(), o.BatchSize/o.Accumulation, o.Accumulation, o.Evaluate,
		o.KeepLast)
	if perPass == 0 {
		return o, layout, 0, fmt.Errorf("data loader: got %d samples, want at least one batch of %d: lower data.batch_size, set data.drop_last = false, or raise data.num_samples if it limits the samples",
			o.Samples.Len(), o.BatchSize)
	}
	if o.Evaluate && o.Start > int64(perPass) {
		return o, layout, 0,
			fmt.Errorf("data loader: first batch is %d, want at most %d (the batches of an evaluation)", o.Start,
				perPass)
	}
	return o, layout, perPass, nil
}

// normalized returns the options with defaults. Its error lists all invalid options.
func (o Options) normalized() (Options, Layout, error) {
	if o.Samples == nil {
		return o, Layout{}, errors.New("data loader: no samples")
	}
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("data loader: "+format, args...)) }
	setDefault(&o.Accumulation, 1)
	layout, err := o.Samples.Layout(&o)
	if err != nil {
		errs = append(errs, err)
	}
	setDefault(&o.Workers, min(runtime.GOMAXPROCS(0), 16))
	setDefault(&o.Depth, 4)
	if n := o.Samples.Len(); n < 1 || n > math.MaxInt32 {
		fault("%d samples, want 1 to %d", n, math.MaxInt32)
	}
	if o.BatchSize < 1 || o.BatchSize > math.MaxInt32 {
		fault("batch size is %d, want 1 to %d", o.BatchSize, math.MaxInt32)
	}
	if o.Accumulation < 1 || o.BatchSize%o.Accumulation != 0 {
		fault("batch size %d cannot be cut into %d equal parts", o.BatchSize, o.Accumulation)
	} else {
		part := o.BatchSize / o.Accumulation
		setDefault(&o.MaxCount, part)
		if o.Share == nil {
			o.Share = &Share{0, part}
		}
		if o.MaxCount < 1 || o.MaxCount > part {
			fault("largest share is %d samples, want 1 to %d", o.MaxCount, part)
		}
		if err := checkShare(o.Share.Offset, o.Share.Count, part, o.MaxCount); err != nil {
			errs = append(errs, err)
		}
	}
	if o.Evaluate && o.Accumulation > 1 {
		fault("an evaluation has no accumulation, got %d", o.Accumulation)
	}
	if _, known := o.Samples.(Lengths); o.GroupByLength && !known {
		fault("the lengths of samples of type %T are unknown, so they cannot be grouped by length", o.Samples)
	}
	if o.Start < 0 {
		fault("first batch is %d, want 0 or more", o.Start)
	}
	if o.Workers < 1 || o.Workers > 1024 {
		fault("%d workers, want 1 to 1024", o.Workers)
	}
	if o.Depth < 2 || o.Depth > 1024 {
		fault("depth is %d batches, want 2 to 1024", o.Depth)
	}
	return o, layout, errors.Join(errs...)
}

func setDefault(v *int, value int) {
	if *v == 0 {
		*v = value
	}
}

// checkShare returns an error if a share exceeds a batch of part samples or the buffers.
func checkShare(offset, count, part, maxCount int) error {
	if offset < 0 || count < 0 || offset > part || count > part-offset {
		return fmt.Errorf("data loader: the share of %d samples from sample %d is outside a batch of %d", count, offset,
			part)
	}
	if count > maxCount {
		return fmt.Errorf("data loader: share of %d samples, want at most %d (MaxCount)", count, maxCount)
	}
	return nil
}

// BatchesPerEpoch returns the number of batches of an epoch or an evaluation. With accumulation, each part counts as
// a batch.
func (l *Loader) BatchesPerEpoch() int { return l.perPass }

// Next returns the next batch after all of its samples are read. It does not allocate. After the last batch of an
// evaluation, it returns io.EOF. If samples cannot be read, it returns the *Fault of the first such sample in the order
// of the batch. Next then stays at this batch, so a second call returns the same error.
func (l *Loader) Next(ctx context.Context) (*Batch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, wait, err := l.tryNext()
		if !wait {
			return b, err
		}
		select {
		case <-l.ready:
		case <-ctx.Done():
		}
	}
}

// tryNext returns the next batch. The result wait is true if the batch is not ready.
func (l *Loader) tryNext() (b *Batch, wait bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false, ErrClosed
	}
	if l.o.Evaluate && l.head == int64(l.perPass) {
		return nil, false, io.EOF
	}
	lent := 0
	for _, s := range l.slots {
		if s.state == slotLent {
			lent++
		}
		if s.state != slotFilling || s.step != l.head {
			continue
		}
		if !s.complete() {
			return nil, true, nil
		}
		if s.fault != nil {
			return nil, false, s.fault
		}
		if s.countFault != nil {
			return nil, false, s.countFault
		}
		l.head++
		return s.lend(), false, nil
	}
	if lent == len(l.slots) {
		return nil, false, fmt.Errorf("data loader: the caller holds all %d batches: release one first", lent)
	}
	return nil, true, nil
}

// SetShare makes this rank read samples offset to offset+count-1 of every batch, beginning with step fromStep. Next
// must not have returned this step yet. SetShare keeps prefetched samples that belong to the new share, and drops
// others. The workers read the missing samples. The parameter count must not exceed Options.MaxCount.
func (l *Loader) SetShare(fromStep int64, offset, count int) error {
	if err := checkShare(offset, count, l.part, l.o.MaxCount); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if fromStep < l.head {
		return fmt.Errorf("data loader: change the share from step %d: want step %d (the next step) or a later one",
			fromStep, l.head)
	}
	for len(l.shares) > 1 && l.shares[1].from <= l.head {
		l.shares = append(l.shares[:0], l.shares[1:]...)
	}
	for len(l.shares) > 0 && l.shares[len(l.shares)-1].from >= fromStep {
		l.shares = l.shares[:len(l.shares)-1]
	}
	l.shares = append(l.shares, shareChange{fromStep, offset, count})
	for _, s := range l.slots {
		if s.state == slotFilling && s.step >= fromStep {
			s.setRange(offset, offset+count)
		}
	}
	l.announceAgain()
	l.wake()
	return nil
}

// JumpTo makes the batch with number step the next one. It can jump forwards, or backwards after a roll-back or for the
// next evaluation. If step is already the next batch, prefetched batches are kept; otherwise they are dropped. Batches
// that the caller holds remain valid. The share of the latest call of SetShare applies from step on.
func (l *Loader) JumpTo(step int64) error {
	if step < 0 || l.o.Evaluate && step > int64(l.perPass) {
		return fmt.Errorf("data loader: cannot go to batch %d of %d", step, l.perPass)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if step == l.head && len(l.shares) == 1 && !l.failed() {
		return nil
	}
	last := l.shares[len(l.shares)-1]
	last.from = 0
	l.shares = append(l.shares[:0], last)
	l.head, l.fill, l.announced = step, step, step
	if l.ahead != nil {
		l.ahead.Forget()
	}
	for _, s := range l.slots {
		if s.state == slotFilling {
			s.free()
		}
	}
	l.wake()
	return nil
}

// failed reports whether a prefetched batch has an error. Another read may succeed. The caller must hold the lock.
func (l *Loader) failed() bool {
	return slices.ContainsFunc(l.slots, func(s *slot) bool {
		return s.state == slotFilling && (s.fault != nil || s.countFault != nil)
	})
}

// Close stops the workers, waits for them, and frees the buffers, including those of batches that the caller holds.
// It does not close the Samples. A second Close does nothing.
func (l *Loader) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.wake()
	l.mu.Unlock()
	l.workers.Wait()
	if l.ahead != nil {
		l.ahead.Forget()
	}
	var errs []error
	for _, s := range l.sources {
		errs = append(errs, s.Close())
	}
	l.freeSlots()
	return errors.Join(errs...)
}

func (l *Loader) release(s *slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.state == slotLent {
		s.free()
		l.wake()
	}
}

// wake wakes the workers and Next. The caller must hold the lock.
func (l *Loader) wake() {
	l.work.Broadcast()
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// shareOf returns this rank's share at the given step. The caller must hold the lock.
func (l *Loader) shareOf(step int64) shareChange {
	k := len(l.shares) - 1
	for k > 0 && l.shares[k].from > step {
		k--
	}
	return l.shares[k]
}
