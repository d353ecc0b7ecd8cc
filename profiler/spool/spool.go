package spool

import (
	"errors"
	"sync"
	"time"
)

// Options configure a Spool. One goroutine at a time calls Write, Sync and Close.
type Options struct {
	Every     time.Duration // between two flushes
	MostBytes int           // size of each of two buffers

	// Write writes all waiting records, possibly none. It returns the unwritten records in left; the next call gets
	// them first.
	Write       func(records []byte) (left []byte, err error)
	Sync, Close func() error

	// OnFault is called when writing starts to fail, and with nil when it works again: once each, regardless of the
	// number of tries. A goroutine of the Spool, Flush or Sync calls it. May be nil.
	OnFault func(error)
}

// Spool buffers records.
type Spool struct {
	o Options

	mu      sync.Mutex // guards the fields below; never held during a system call
	pending []byte     // since the last flush
	dropped int64

	disk    sync.Mutex // guards the fields below and the state of Write; taken before mu
	waiting []byte     // being written
	failing bool
	closed  bool

	stop, stopped chan struct{}
}

// Start returns a Spool, which the caller closes.
func Start(o Options) *Spool {
	s := &Spool{o: o, stop: make(chan struct{}), stopped: make(chan struct{})}
	go s.flushRegularly()
	return s
}

// Add calls add to append a record. It only copies to memory.
func (s *Spool) Add(add func(records []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) >= s.o.MostBytes {
		s.dropped++
		return
	}
	s.pending = add(s.pending)
}

// Dropped returns the number of records lost because the disk accepted none for too long.
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
			s.Flush() // OnFault receives the error
		case <-s.stop:
			return
		}
	}
}

// Flush writes all records. After an error they are kept, and the next Flush tries again.
func (s *Spool) Flush() error { return s.tell(s.flush) }

// Sync flushes, then waits until the disk has the records.
func (s *Spool) Sync() error {
	return s.tell(func() error {
		if err := s.flush(); err != nil {
			return err
		}
		return s.o.Sync()
	})
}

// tell runs do and calls OnFault if the disk starts to fail or works again.
func (s *Spool) tell(do func() error) error {
	s.disk.Lock()
	err := do()
	changed := s.failing != (err != nil)
	s.failing = err != nil
	s.disk.Unlock()
	if changed && s.o.OnFault != nil {
		s.o.OnFault(err)
	}
	return err
}

// flush writes the records left by earlier calls, then newer ones. The two buffers swap.
func (s *Spool) flush() error {
	err := s.write()
	if err == nil {
		s.mu.Lock()
		s.pending, s.waiting = s.waiting, s.pending
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

// Hold runs do while no records are written. Only do may call flush, which is Flush without OnFault.
func (s *Spool) Hold(do func(flush func() error) error) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	return do(s.flush)
}

// Change passes all unwritten records to change, the oldest first. Only functions passed to Hold may call it.
func (s *Spool) Change(change func(records []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.pending = change(s.waiting), change(s.pending)
}

// Close writes all records and closes the file. A second Close does nothing.
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
	s.disk.Lock()
	defer s.disk.Unlock()
	return errors.Join(err, s.o.Close())
}
