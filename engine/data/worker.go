package data

import "fmt"

// job is a range of adjacent positions of one slot, for one worker. If count is set, the worker instead counts the
// labels of the slot's optimizer step.
type job struct {
	s      *slot
	lo, hi int
	count  bool
}

// start creates a Source for each worker and starts the workers.
func (l *Loader) start() error {
	for range l.o.Workers {
		source, err := l.o.Samples.NewSource(&l.o)
		if err != nil {
			for _, s := range l.sources {
				s.Close() // the error of NewSource is returned
			}
			return fmt.Errorf("data loader: open a reader: %w", err)
		}
		l.sources = append(l.sources, source)
		_, l.counts = source.(LabelCounter)
		l.counts = l.counts && !l.o.Evaluate
	}
	for _, s := range l.sources {
		// a job has up to chunk samples; take may extend it to a complete group of l.group samples
		w := &worker{l: l, source: s, errs: make([]error, l.chunk+l.group-1)}
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
	l      *Loader
	source Source
	span   Span
	errs   []error // errors of the samples of the current job
}

func (w *worker) run() {
	for {
		j, ok := w.l.nextJob()
		if !ok {
			return
		}
		s := j.s // its origin does not change while a job is in flight
		if j.count {
			w.l.finishCount(s, w.count(s))
			continue
		}
		w.span = Span{Lo: j.lo, Hi: j.hi, Epoch: s.epoch, First: s.first, Index: s.index[:s.total:s.total], slot: s}
		w.source.Read(&w.span, w.errs[:j.hi-j.lo])
		for k := j.lo; k < j.hi; k++ {
			s.ids[k-s.origin] = int64(s.index[k])
		}
		w.l.finish(j, w.errs)
	}
}

// count adds up the labels of the slot's optimizer step.
func (w *worker) count(s *slot) error {
	counter := w.source.(LabelCounter)
	for _, index := range s.whole {
		n, err := counter.CountLabels(s.epoch, int(index))
		if err != nil {
			return err
		}
		s.labels += n
	}
	return nil
}

// finishCount records the result of count.
func (l *Loader) finishCount(s *slot, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.inFlight--
	s.counting, s.countFault = false, err
	if s.state == slotFilling && s.move {
		s.settle()
	}
	l.wake()
}

// finish records the results of a job.
func (l *Loader) finish(j job, errs []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := j.s
	s.inFlight--
	if s.state != slotFilling {
		if s.inFlight == 0 {
			l.wake() // if the batch was dropped or released, its buffers are free only now
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

// nextJob waits for a job. Jobs of the earliest step come first. The result ok is false after the Loader is closed.
func (l *Loader) nextJob() (j job, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.closed {
			return job{}, false
		}
		var oldest *slot
		for _, s := range l.slots {
			if s.state == slotFilling && (oldest == nil || s.step < oldest.step) && (s.uncounted || s.hasMissing()) {
				oldest = s
			}
		}
		if oldest != nil && oldest.uncounted {
			oldest.uncounted, oldest.counting = false, true
			oldest.inFlight++
			return job{s: oldest, count: true}, true
		}
		if oldest != nil {
			lo, hi := oldest.take(l.chunk)
			oldest.inFlight++
			return job{s: oldest, lo: lo, hi: hi}, true
		}
		if !l.beginStep() {
			l.work.Wait()
		}
	}
}

// beginStep assigns the next step to a free slot. If a new epoch starts, it first shuffles the samples. It reports
// whether it changed anything. The caller must hold the lock. beginStep releases the lock during a shuffle.
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
		if l.lengths != nil {
			groupByLength(l.order, l.scratch, l.o.BatchSize, l.lengths.Length, l.o.Seed, epoch)
		}
		l.mu.Lock()
		l.shuffling = false
		l.orderEpoch = epoch
		l.work.Broadcast()
		return true
	}
	free.begin(l.fill, l.order)
	l.fill++
	l.announce()
	l.wake()
	return true
}
