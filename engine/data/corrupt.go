package data

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
)

// streamReplacement is the stream of the random numbers that choose replacements. The seed is always 0.
const streamReplacement stream = 128

// Skipping is a Dataset that replaces unreadable samples of another Dataset. Its methods are safe for concurrent use.
//
// The replacement of sample i is the first readable sample of a random sequence, which is a function of i alone. The
// sample gets the label of its replacement, but keeps the augmentation and dropout of i. Batches therefore keep their
// size, and all ranks and resumed runs use the same replacement for i. A simple rule such as "the next sample" would
// give all samples of a truncated shard the same replacement.
type Skipping struct {
	Dataset
	replacements
}

// replacements are the unreadable samples that were found, and the samples that replace them.
type replacements struct {
	limit  int
	report func(*Fault)

	count atomic.Int64 // number of unreadable samples found
	mu    sync.RWMutex
	bad   map[int]int // maps an unreadable sample to its replacement; -1 while the replacement is not known
}

// Skip returns ds with replacements for its unreadable samples. If more than limit samples are unreadable, reads return
// the error of each further unreadable sample; 0 means no limit. The limit applies to the samples of this rank,
// including prefetched samples. train.Options has a second limit for the whole run, which is checked after each step.
// If report is not nil, it is called once for each unreadable sample, by one goroutine at a time.
func Skip(ds Dataset, limit int, report func(*Fault)) *Skipping {
	return &Skipping{Dataset: ds, replacements: newReplacements(limit, report)}
}

func newReplacements(limit int, report func(*Fault)) replacements {
	return replacements{limit: limit, report: report, bad: map[int]int{}}
}

// Skipped returns the number of unreadable samples found so far.
func (s *replacements) Skipped() int { return int(s.count.Load()) }

// Replaced reports whether sample i was replaced. It is valid only after sample i was read.
func (s *replacements) Replaced(i int) bool {
	_, ok := s.replacement(i)
	return ok
}

// Label returns the class of sample i. If sample i was found to be unreadable, Label returns the class of the
// replacement.
func (s *Skipping) Label(i int) int {
	if k, ok := s.replacement(i); ok && k >= 0 {
		i = k
	}
	return s.Dataset.Label(i)
}

// replacement reports whether sample i is known to be unreadable, and returns its replacement.
func (s *replacements) replacement(i int) (int, bool) {
	if s.count.Load() == 0 {
		return 0, false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	k, ok := s.bad[i]
	return k, ok
}

// NewReader returns a Reader that replaces unreadable samples.
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

// try reads a sample. The result fault is the reason why sample i is unreadable, or nil. The result err contains all
// other errors, including those for which Exhausted returns true.
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

// Exhausted reports whether the cause of err is a lack of resources on this machine, a failed network request, or the
// end of the run. In this case, another rank or a later read might be able to read the sample.
func Exhausted(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, context.Canceled} {
		if errors.Is(err, e) {
			return true
		}
	}
	var remote interface{ Unavailable() bool } // of package objects
	return errors.As(err, &remote) && remote.Unavailable()
}

// maxTries limits the number of samples that are tried as a replacement.
const maxTries = 1000

// replace reads the replacement of sample i. The parameter fault is the reason why sample i is unreadable; nil means
// that it was already reported.
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
	return &Fault{Op: "replace sample", Index: i,
		Err: fmt.Errorf("none of the %d other samples that were tried can be read", maxTries)}
}

// note counts and reports an unreadable sample once. If another Reader has already set a replacement, note keeps it.
func (s *replacements) note(i int, fault *Fault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.bad[i]; !known {
		if s.limit > 0 && len(s.bad) >= s.limit {
			over := *fault
			over.Advice = fmt.Sprintf(
				"more than data.corrupt_limit = %d samples cannot be read; list them with hetero-train data verify",
				s.limit)
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

// settle stores the replacement k of sample i.
func (s *replacements) settle(i, k int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad[i] = k
}
