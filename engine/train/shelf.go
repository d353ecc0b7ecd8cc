package train

import (
	"errors"
	"sync"
)

// keptShares is the capacity of the plan cache of a replica. The plans of a large network take some megabytes of
// kernels and programs per share.
const keptShares = 32

// shelf is the plan cache of a replica, by number of samples. Any goroutine may call its methods.
type shelf struct {
	mu     sync.Mutex
	shares map[int]*share
	turn   int64 // counts requests
	most   int   // capacity; held plans may exceed it
}

func newShelf() *shelf { return &shelf{shares: map[int]*share{}, most: keptShares} }

// find returns the plans for n samples, nil if there are none.
func (f *shelf) find(n int) *share {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shares[n]
}

// take returns bound plans for n samples and holds them; nil if there are none.
func (f *shelf) take(n int) *share {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.shares[n]
	if s == nil || !s.bound {
		return nil
	}
	f.hold(s)
	return s
}

// hold keeps s cached until it is released. The caller holds the lock.
func (f *shelf) hold(s *share) {
	f.turn++
	s.used = f.turn
	s.holds++
}

func (f *shelf) release(s *share) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.holds--
}

func (f *shelf) add(s *share) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shares[s.samples] = s
}

// takeBound holds s, which has been bound, and frees the least recently used plans beyond the capacity.
func (f *shelf) takeBound(s *share) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.bound = true
	f.hold(s)
	var errs []error
	for len(f.shares) > f.most {
		var oldest *share
		for _, other := range f.shares {
			if other.holds == 0 && (oldest == nil || other.used < oldest.used) {
				oldest = other
			}
		}
		if oldest == nil {
			break
		}
		delete(f.shares, oldest.samples)
		errs = append(errs, oldest.free())
	}
	return errors.Join(errs...)
}

// drop frees s, which has no holders.
func (f *shelf) drop(s *share) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.shares, s.samples)
	return s.free()
}

// len returns the number of cached shares.
func (f *shelf) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.shares)
}

// close frees all plans.
func (f *shelf) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for n, s := range f.shares {
		errs = append(errs, s.free())
		delete(f.shares, n)
	}
	return errors.Join(errs...)
}
