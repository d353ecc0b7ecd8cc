package data

import (
	"cmp"
	"fmt"
)

// job is a range of adjacent positions of one slot.
type job struct {
	s      *slot
	lo, hi int
}

// start creates a Reader for each worker and starts the workers.
func (l *Loader) start() error {
	for range l.o.Workers {
		r, err := l.o.Dataset.NewReader()
		if err != nil {
			for _, r := range l.readers {
				r.Close() // the first error is returned
			}
			return fmt.Errorf("data loader: open a reader: %w", err)
		}
		l.readers = append(l.readers, r)
	}
	for _, r := range l.readers {
		w := &worker{l: l, reader: r, errs: make([]error, l.chunk+1)} // one more completes a pair
		w.transform = l.o.Transform.prepared(l.o.Seed)
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
	partner   []byte  // (Size, Size, 3), a sample outside the job
	errs      []error // of the samples of the current job
}

func (w *worker) run() {
	for {
		j, ok := w.l.nextJob()
		if !ok {
			return
		}
		for k := j.lo; k < j.hi; k++ {
			if j.s.second != nil && k%2 == 0 && k+1 < j.hi {
				w.errs[k-j.lo], w.errs[k+1-j.lo] = w.readPair(j.s, k)
				k++
			} else {
				w.errs[k-j.lo] = w.read(j.s, k)
			}
		}
		w.l.finish(j, w.errs)
	}
}

// read fills position j of a slot. origin does not change while a job is in flight.
func (w *worker) read(s *slot, j int) error {
	pix := s.place(j)
	if err := w.view(s, j, pix); err != nil {
		return err
	}
	m := w.mixing(s, j)
	if !m.none() { // the partner belongs to another job or another rank
		w.partner = resize(w.partner, len(pix))
		if err := w.view(s, j^1, w.partner); err != nil {
			return err
		}
		m.apply(pix, w.partner, w.l.o.Transform.Size)
	}
	w.label(s, j, m)
	return nil
}

// readPair fills positions j and j+1, which are partners.
func (w *worker) readPair(s *slot, j int) (errA, errB error) {
	a, b := s.place(j), s.place(j+1)
	errA, errB = w.view(s, j, a), w.view(s, j+1, b)
	ma, mb := w.mixing(s, j), w.mixing(s, j+1)
	if err := cmp.Or(errA, errB); err != nil {
		if !ma.none() {
			errA = err
		}
		if !mb.none() {
			errB = err
		}
	} else {
		size := w.l.o.Transform.Size
		w.partner = append(w.partner[:0], a...)
		if !ma.none() {
			ma.apply(a, b, size)
		}
		if !mb.none() {
			mb.apply(b, w.partner, size)
		}
	}
	w.label(s, j, ma)
	w.label(s, j+1, mb)
	return errA, errB
}

func (w *worker) mixing(s *slot, j int) mixing {
	o := &w.l.o
	if s.second == nil {
		return unmixed
	}
	return o.Mix.draw(o.Seed, s.epoch, s.first+j, o.BatchSize, o.Transform.Size)
}

// label sets the labels of position j.
func (w *worker) label(s *slot, j int, m mixing) {
	at, labels := j-s.origin, w.l.o.Dataset
	s.labels[at] = int32(labels.Label(int(s.index[j])))
	s.ids[at] = int64(s.index[j])
	if s.second == nil {
		return
	}
	s.second[at], s.lambda[at] = s.labels[at], m.lambda
	if !m.none() {
		s.second[at] = int32(labels.Label(int(s.index[j^1])))
	}
}

// view writes the image of position j, before mixing, to pix.
func (w *worker) view(s *slot, j int, pix []byte) (err error) {
	index := int(s.index[j])
	defer func() {
		// A panic of a standard library decoder on a crafted file must not end the training.
		if r := recover(); r != nil {
			err = &Fault{Op: "decode sample", Index: index, Err: fmt.Errorf("decoder panicked: %v", r)}
		}
	}()
	w.transform.begin(s.epoch, index)
	if stages := w.l.o.Stages; stages != nil {
		return w.viewTimed(stages, index, pix)
	}
	if err := w.reader.Read(index, &w.transform, &w.img); err != nil {
		return err
	}
	w.transform.apply(pix, &w.img)
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
			l.wake() // a dropped or released batch, whose buffers are free only now
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

// nextJob waits for work, oldest step first. ok is false when the Loader is closed.
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

// beginStep assigns the next step to a free slot, after shuffling a new epoch if necessary. It reports whether anything
// changed. The caller must hold the lock, which is released during a shuffle.
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
