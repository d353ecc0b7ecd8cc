package spool

import (
	"errors"
	"sync"
	"time"
)

// Options of a Spool. Write, Sync and Close are called by one goroutine at a time.
type Options struct {
	Every     time.Duration // between two flushes
	MostBytes int           // of the records in either of two buffers

	// Write hands records to the system, all that wait, or none. left are those that it could not write: they come again, first.
	Write       func(records []byte) (left []byte, err error)
	Sync, Close func() error

	// OnFault is called, from a goroutine of the Spool or from within Flush and Sync, when writing begins to fail, and again with nil when it works
	// again: once each, however often it is tried meanwhile. May be nil.
	OnFault func(error)
}

// Spool holds records.
type Spool struct {
	o Options

	mu      sync.Mutex // guards what follows; held for no system call
	pending []byte     // since the last flush
	dropped int64

	disk    sync.Mutex // guards what follows and what Write uses; taken before mu
	waiting []byte     // being written
	failing bool
	closed  bool

	stop, stopped chan struct{}
}

// Start makes a Spool, which is to be closed.
func Start(o Options) *Spool {
	s := &Spool{o: o, stop: make(chan struct{}), stopped: make(chan struct{})}
	go s.flushRegularly()
	return s
}

// Add adds a record, which add appends. It only copies it to memory.
func (s *Spool) Add(add func(records []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) >= s.o.MostBytes {
		s.dropped++
		return
	}
	s.pending = add(s.pending)
}

// Dropped is the number of records lost because the disk took none for too long.
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
			s.Flush() // what fails is told to OnFault
		case <-s.stop:
			return
		}
	}
}

// Flush hands all records to the system. After an error they are kept and the next Flush tries again.
func (s *Spool) Flush() error { return s.tell(s.flush) }

// Sync is Flush, then waits until the disk has the records.
func (s *Spool) Sync() error {
	return s.tell(func() error {
		if err := s.flush(); err != nil {
			return err
		}
		return s.o.Sync()
	})
}

// tell does something with the disk and calls OnFault where that changes from working to failing, or back.
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

// flush writes what an earlier one had to leave, then what has come since. The two buffers change places.
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

// Hold does something while nothing is written. flush is for it alone: Flush without telling OnFault.
func (s *Spool) Hold(do func(flush func() error) error) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	return do(s.flush)
}

// Change gives all records that were not written to change, those that come first first. For what Hold does.
func (s *Spool) Change(change func(records []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.pending = change(s.waiting), change(s.pending)
}

// Close writes out all records and closes the file. A second Close does nothing.
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
