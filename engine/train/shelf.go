package train

import (
	"errors"
	"sync"
)

// keptShares is how many shares' plans a replica keeps. A plan of a large network is some megabytes of kernels and programs.
const keptShares = 32

// shelf is the plans of a replica, by samples. Its methods may be called from any goroutine.
type shelf struct {
	mu     sync.Mutex
	shares map[int]*share
	turn   int64 // counts what is asked for
	most   int   // shares that are kept where nobody holds more
}

func newShelf() *shelf { return &shelf{shares: map[int]*share{}, most: keptShares} }

// find is the plans for n samples, nil if there are none.
func (f *shelf) find(n int) *share {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shares[n]
}

// take is find for plans that are bound, and holds them.
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

// hold keeps s until it is released; the lock is held.
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

// takeBound holds s, which has been bound, and frees those beyond the most that were not asked for for the longest time.
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

// drop frees s, which nobody holds.
func (f *shelf) drop(s *share) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.shares, s.samples)
	return s.free()
}

// len is how many shares are there.
func (f *shelf) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.shares)
}

// close frees all.
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
