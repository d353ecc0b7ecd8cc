package data

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
)

// streamReplacement is what stands in for a sample that cannot be read; seed 0.
const streamReplacement stream = 128

// Skipping replaces samples that cannot be read. A Skipping belongs to one Dataset; its methods may be called from
// several goroutines at a time.
//
// In place of sample i comes the first readable one of a random sequence of samples that is a function of i alone, with
// its label; augmentation and dropout stay those of i. So a batch keeps its size, and every rank that reads i, now or
// after a resume, sees the same. (The next sample would do as well for single ones, but all samples of a shard that is cut
// short would then have one replacement.)
type Skipping struct {
	Dataset
	limit  int
	report func(*Fault)

	count atomic.Int64 // samples found to be unreadable
	mu    sync.RWMutex
	bad   map[int]int // unreadable sample -> its replacement; -1 while none has been looked for
}

// Skip returns ds without its unreadable samples. More than limit of them are the error of the one that is too many; 0: any
// number are replaced. Readers read ahead, each rank its own samples: the limit of a run is counted where steps are (train.Options).
// report, if not nil, is called once for each when it is found, by one goroutine at a time.
func Skip(ds Dataset, limit int, report func(*Fault)) *Skipping {
	return &Skipping{Dataset: ds, limit: limit, report: report, bad: map[int]int{}}
}

// Skipped is the number of unreadable samples found so far.
func (s *Skipping) Skipped() int { return int(s.count.Load()) }

// Replaced tells whether sample i, which has been read, was replaced.
func (s *Skipping) Replaced(i int) bool {
	_, ok := s.replacement(i)
	return ok
}

// Label is the class of the sample that stands at i: that of the replacement once sample i was found to be unreadable.
func (s *Skipping) Label(i int) int {
	if k, ok := s.replacement(i); ok && k >= 0 {
		i = k
	}
	return s.Dataset.Label(i)
}

// replacement tells whether sample i is known to be unreadable, and what stands in for it.
func (s *Skipping) replacement(i int) (int, bool) {
	if s.count.Load() == 0 {
		return 0, false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	k, ok := s.bad[i]
	return k, ok
}

// NewReader returns a Reader that reads replacements.
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

// try reads a sample. fault is set where the sample itself is at fault, err where something else is.
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

// Exhausted tells whether the machine, not the sample, lacks something: another rank, or a later read, would read it.
func Exhausted(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// maxTries is how many samples are tried in place of one.
const maxTries = 1000

// replace reads what stands in for sample i. fault is why i cannot be read; nil if that was told before.
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
	return &Fault{Op: "replace sample", Index: i, Err: fmt.Errorf("none of %d others can be read", maxTries)}
}

// note counts an unreadable sample, once. A replacement that another reader has settled since stays.
func (s *Skipping) note(i int, fault *Fault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.bad[i]; !known {
		if s.limit > 0 && len(s.bad) >= s.limit {
			over := *fault
			over.Advice = fmt.Sprintf("more than data.corrupt_limit = %d samples cannot be read; hetero-train data verify lists them", s.limit)
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

// settle keeps a replacement that was found.
func (s *Skipping) settle(i, k int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad[i] = k
}
