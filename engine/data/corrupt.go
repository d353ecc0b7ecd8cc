package data

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
)

// streamReplacement selects the replacement of an unreadable sample; seed 0.
const streamReplacement stream = 128

// Skipping replaces unreadable samples. A Skipping belongs to one Dataset. Any goroutine may call its methods.
//
// The replacement of sample i is the first readable sample of a random sequence that is a function of i alone. It has
// the replacement's label; augmentation and dropout remain those of i. A batch thus keeps its size, and every rank that
// reads i, also after a resume, gets the same replacement. (The next sample would be as good for single faults, but all
// samples of a truncated shard would then have the same replacement.)
type Skipping struct {
	Dataset
	limit  int
	report func(*Fault)

	count atomic.Int64 // number of unreadable samples found
	mu    sync.RWMutex
	bad   map[int]int // unreadable sample -> its replacement; -1 before one is known
}

// Skip returns ds with replacements for its unreadable samples. After more than limit unreadable samples, reads return
// the error of the sample that exceeds it; 0 means no limit. Because readers read ahead, and each rank reads only its
// own samples, the limit of a run is checked per step (train.Options). report, if not nil, is called once for each
// unreadable sample, by one goroutine at a time.
func Skip(ds Dataset, limit int, report func(*Fault)) *Skipping {
	return &Skipping{Dataset: ds, limit: limit, report: report, bad: map[int]int{}}
}

// Skipped returns the number of unreadable samples found so far.
func (s *Skipping) Skipped() int { return int(s.count.Load()) }

// Replaced reports whether sample i, which has been read, was replaced.
func (s *Skipping) Replaced(i int) bool {
	_, ok := s.replacement(i)
	return ok
}

// Label returns the class of the sample at i: that of its replacement once sample i was found unreadable.
func (s *Skipping) Label(i int) int {
	if k, ok := s.replacement(i); ok && k >= 0 {
		i = k
	}
	return s.Dataset.Label(i)
}

// replacement reports whether sample i is known to be unreadable, and returns its replacement.
func (s *Skipping) replacement(i int) (int, bool) {
	if s.count.Load() == 0 {
		return 0, false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	k, ok := s.bad[i]
	return k, ok
}

// NewReader returns a Reader that substitutes replacements.
func (s *Skipping) NewReader() (Reader, error) {
	r, err := s.Dataset.NewReader()
	if err != nil {
		return nil, err
	}
	return &skippingReader{r, s}, nil
}

type skippingReader struct {
	Reader
	s *Skipping
}

func (r *skippingReader) Read(i int, sizer Sizer, img *Image) error {
	k, known := r.s.replacement(i)
	if !known {
		fault, err := r.try(i, sizer, img)
		if fault == nil {
			return err
		}
		return r.replace(i, fault, sizer, img)
	}
	if k >= 0 {
		fault, err := r.try(k, sizer, img)
		if fault == nil {
			return err
		}
		if err := r.s.note(k, fault); err != nil {
			return err
		}
	}
	return r.replace(i, nil, sizer, img)
}

// try reads a sample. It sets fault for an error of the sample, and err for any other error.
func (r *skippingReader) try(i int, sizer Sizer, img *Image) (fault *Fault, err error) {
	defer func() {
		if p := recover(); p != nil {
			fault, err = &Fault{Op: "decode sample", Index: i, Err: fmt.Errorf("decoder panicked: %v", p)}, nil
		}
	}()
	err = r.Reader.Read(i, sizer, img)
	if !errors.As(err, &fault) || Exhausted(err) {
		return nil, err
	}
	return fault, nil
}

// Exhausted reports whether err is a lack of resources of the machine: another rank, or a later read, could read the
// sample.
func Exhausted(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// maxTries limits the samples that are tried as a replacement.
const maxTries = 1000

// replace reads the replacement of sample i. fault is the reason why i is unreadable; nil if it was reported before.
func (r *skippingReader) replace(i int, fault *Fault, sizer Sizer, img *Image) error {
	if fault != nil {
		if err := r.s.note(i, fault); err != nil {
			return err
		}
	}
	d := newDraws(0, 0, i, streamReplacement)
	for range maxTries {
		k := d.below(r.s.Len())
		if _, bad := r.s.replacement(k); bad {
			continue
		}
		other, err := r.try(k, sizer, img)
		if other != nil {
			if err := r.s.note(k, other); err != nil {
				return err
			}
			continue
		}
		if err == nil {
			r.s.settle(i, k)
		}
		return err
	}
	return &Fault{Op: "replace sample", Index: i, Err: fmt.Errorf("%d other samples were tried, and none of them can be read", maxTries)}
}

// note counts an unreadable sample once. It keeps a replacement that another reader has set meanwhile.
func (s *Skipping) note(i int, fault *Fault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.bad[i]; !known {
		if s.limit > 0 && len(s.bad) >= s.limit {
			over := *fault
			over.Advice = fmt.Sprintf("more than data.corrupt_limit = %d samples cannot be read; list them with hetero-train data verify", s.limit)
			return &over
		}
		s.count.Add(1)
		if s.report != nil {
			s.report(fault)
		}
		s.bad[i] = -1
	}
	return nil
}

// settle stores a replacement.
func (s *Skipping) settle(i, k int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad[i] = k
}
