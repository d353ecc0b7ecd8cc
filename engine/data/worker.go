package data

import "fmt"

// job is a run of neighbouring positions of one slot.
type job struct {
	s      *slot
	lo, hi int
}

// start makes a Reader for each worker and starts them.
func (l *Loader) start() error {
	for range l.o.Workers {
		r, err := l.o.Dataset.NewReader()
		if err != nil {
			for _, r := range l.readers {
				r.Close() // the error that is reported is the first
			}
			return fmt.Errorf("data loader: open a reader: %w", err)
		}
		l.readers = append(l.readers, r)
	}
	for _, r := range l.readers {
		w := &worker{l: l, reader: r, errs: make([]error, l.chunk)}
		w.transform = transformer{t: l.o.Transform, seed: l.o.Seed}
		l.workers.Go(w.run)
	}
	return nil
}

func (l *Loader) freeSlots() {
	for _, s := range l.slots {
		s.freeBuffers()
	}
	l.slots = nil
}

// worker reads samples until the Loader is closed.
type worker struct {
	l         *Loader
	reader    Reader
	transform transformer
	img       Image
	errs      []error // of the samples of the current job
}

func (w *worker) run() {
	for {
		j, ok := w.l.nextJob()
		if !ok {
			return
		}
		for k := j.lo; k < j.hi; k++ {
			w.errs[k-j.lo] = w.read(j.s, k)
		}
		w.l.finish(j, w.errs)
	}
}

// read brings position j of a slot into its place. origin does not change while a job is in flight.
func (w *worker) read(s *slot, j int) (err error) {
	index := int(s.index[j])
	defer func() {
		// A decoder of the standard library that panics on a crafted file must not end the training.
		if r := recover(); r != nil {
			err = &Fault{Op: "decode sample", Index: index, Err: fmt.Errorf("decoder panicked: %v", r)}
		}
	}()
	w.transform.begin(s.epoch, index)
	if err := w.reader.Read(index, &w.transform, &w.img); err != nil {
		return err
	}
	at := j - s.origin
	sample := len(s.images) / len(s.have)
	w.transform.apply(s.images[at*sample:][:sample:sample], &w.img)
	s.labels[at] = int32(w.l.o.Dataset.Label(index))
	s.ids[at] = int64(index)
	return nil
}

// finish records the results of a job.
func (l *Loader) finish(j job, errs []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := j.s
	s.inFlight--
	if s.state != slotFilling {
		if s.inFlight == 0 {
			l.wake() // a dropped or returned batch whose buffers are free only now
		}
		return
	}
	for k := j.lo; k < j.hi; k++ {
		s.finish(k, errs[k-j.lo])
	}
	moved := s.move
	if moved {
		s.settle()
	}
	if moved || s.complete() {
		l.wake()
	}
}

// nextJob waits for work; ok is false when the Loader is closed. The oldest step goes first.
func (l *Loader) nextJob() (j job, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.closed {
			return job{}, false
		}
		var oldest *slot
		for _, s := range l.slots {
			if s.state == slotFilling && (oldest == nil || s.step < oldest.step) && s.hasMissing() {
				oldest = s
			}
		}
		if oldest != nil {
			lo, hi := oldest.take(l.chunk)
			oldest.inFlight++
			return job{oldest, lo, hi}, true
		}
		if !l.beginStep() {
			l.work.Wait()
		}
	}
}

// beginStep gives the next step to a free slot, first shuffling a new epoch, and reports whether anything changed.
// The lock is held, but not while an epoch is shuffled.
func (l *Loader) beginStep() bool {
	if l.shuffling || l.o.Evaluate && l.fill >= int64(l.perPass) {
		return false
	}
	var free *slot
	for _, s := range l.slots {
		if s.state == slotFree && s.inFlight == 0 {
			free = s
		}
	}
	if free == nil {
		return false
	}
	if epoch := int(l.fill / int64(l.perPass)); !l.o.Evaluate && epoch != l.orderEpoch {
		l.shuffling = true
		l.mu.Unlock()
		Permutation(l.order, l.o.Seed, epoch)
		l.mu.Lock()
		l.shuffling = false
		l.orderEpoch = epoch
		l.work.Broadcast()
		return true
	}
	free.begin(l.fill, l.order)
	l.fill++
	l.wake()
	return true
}
