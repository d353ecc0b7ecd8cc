package spool

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Options configures a Spool. The functions Write, Sync and Close are called by one goroutine at a time.
type Options struct {
	Every     time.Duration // time between two flushes
	MostBytes int           // size of each of the two buffers in bytes
	Queue     *Queue        // performs the regular flushes and SyncSoon; nil: a goroutine of the Spool does
	File      string        // path of the file, for reports of Queue

	// Write writes all waiting records. The slice may be empty. The result left contains the records that were not
	// written. The next call gets these records first.
	Write       func(records []byte) (left []byte, err error)
	Sync, Close func() error

	// OnFault is called when writing starts to fail, and with nil when it works again. It is called once for each
	// change, regardless of the number of attempts. It is called from a goroutine of the Spool, or from Flush or Sync.
	// It may be nil.
	OnFault func(error)
}

// Spool buffers records in memory and writes them in the background.
type Spool struct {
	o Options

	mu      sync.Mutex // guards the fields below; never held during a system call
	pending []byte     // records since the last flush
	dropped int64
	over    bool // pending is full although no write has failed; Queue.over counts this Spool

	queued  atomic.Bool // a regular flush waits in Queue
	failing atomic.Bool // the last write failed; changes only while the mutex disk is locked

	disk    sync.Mutex // guards the fields below and the state of Write; lock it before mu
	waiting []byte     // records that are being written
	fault   error      // error of the last write
	closed  bool

	stop, stopped chan struct{}
}

// Start returns a running Spool. The caller must close it.
func Start(o Options) *Spool {
	s := &Spool{o: o, stop: make(chan struct{}), stopped: make(chan struct{})}
	go s.flushRegularly()
	return s
}

// Add calls the function add, which appends a record to the buffer. It only copies to memory. If the buffer is full
// because writes fail, the record is lost. If the disk does not answer, the buffer grows and Queue becomes full
// instead.
func (s *Spool) Add(add func(records []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) >= s.o.MostBytes && (s.failing.Load() || s.o.Queue == nil) {
		s.dropped++
		return
	}
	s.pending = add(s.pending)
	s.count(len(s.pending) >= s.o.MostBytes && !s.failing.Load())
}

// count updates Queue.over, the number of full Spools. The caller holds mu.
func (s *Spool) count(over bool) {
	if s.o.Queue == nil || over == s.over {
		return
	}
	if s.over = over; over {
		s.o.Queue.over.Add(1)
	} else {
		s.o.Queue.over.Add(-1)
	}
}

// Dropped returns the number of records that were lost because writes to the disk failed for too long.
func (s *Spool) Dropped() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

func (s *Spool) flushRegularly() {
	defer close(s.stopped)
	tick := time.NewTicker(s.o.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.queued.CompareAndSwap(false, true) {
				s.o.Queue.Do(s.o.File, 0, s.regular)
			}
		case <-s.stop:
			return
		}
	}
}

// regular is the job of Queue that regularly flushes the records.
func (s *Spool) regular() {
	s.queued.Store(false)
	s.unlessClosed(s.flush) // OnFault receives the error
}

// SyncSoon adds a Sync to Queue. It does not wait.
func (s *Spool) SyncSoon() {
	s.o.Queue.Do(s.o.File, 0, func() { s.unlessClosed(s.sync) })
}

// unlessClosed calls tell with do. After Close, it does nothing, because Close has written all records.
func (s *Spool) unlessClosed(do func() error) {
	_ = s.tell(func() error { // OnFault receives the error
		if s.closed {
			return s.fault // after Close, the result of the last write remains
		}
		return do()
	})
}

// Flush writes all records. If it fails, the records are kept, and the next Flush writes them.
func (s *Spool) Flush() error { return s.tell(s.flush) }

// Sync calls Flush and then waits until the records are on disk.
func (s *Spool) Sync() error { return s.tell(s.sync) }

func (s *Spool) sync() error {
	if err := s.flush(); err != nil {
		return err
	}
	return s.o.Sync()
}

// tell calls do and returns its error. It calls OnFault if writing starts to fail or works again.
func (s *Spool) tell(do func() error) error {
	s.disk.Lock()
	err := do()
	s.fault = err
	changed := s.failing.Swap(err != nil) != (err != nil)
	s.mu.Lock()
	s.count(err == nil && len(s.pending) >= s.o.MostBytes)
	s.mu.Unlock()
	s.disk.Unlock()
	if changed && s.o.OnFault != nil {
		s.o.OnFault(err)
	}
	return err
}

// flush writes the records that earlier calls have left, and then the newer ones. For this, it swaps the two buffers.
func (s *Spool) flush() error {
	err := s.write()
	if err == nil {
		s.mu.Lock()
		s.pending, s.waiting = s.waiting, s.pending
		s.count(false)
		s.mu.Unlock()
		err = s.write()
	}
	return err
}

func (s *Spool) write() error {
	left, err := s.o.Write(s.waiting)
	s.waiting = append(s.waiting[:0], left...)
	return err
}

// Hold calls do while no other code can write records. Only do may call its argument flush, which is like Flush, but
// without OnFault.
func (s *Spool) Hold(do func(flush func() error) error) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	return do(s.flush)
}

// Change calls change with all unwritten records, the oldest first. Only a function passed to Hold may call Change.
func (s *Spool) Change(change func(records []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.pending = change(s.waiting), change(s.pending)
}

// Close writes all records and calls Options.Close. A second Close does nothing.
func (s *Spool) Close() error {
	s.disk.Lock()
	if s.closed {
		s.disk.Unlock()
		return nil
	}
	s.closed = true
	s.disk.Unlock()
	close(s.stop)
	<-s.stopped
	err := s.Sync()
	s.mu.Lock()
	s.count(false)
	s.mu.Unlock()
	s.disk.Lock()
	defer s.disk.Unlock()
	return errors.Join(err, s.o.Close())
}
