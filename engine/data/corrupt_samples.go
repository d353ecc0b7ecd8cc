package data

import (
	"errors"
	"fmt"
	"slices"
)

// SkippingSamples replaces unreadable samples of other Samples, like Skipping. If the samples have unequal lengths
// (Lengths) and Options.GroupByLength is set, a replacement is never longer than the sample. The reason is that the
// length of a step is chosen before its samples are read.
type SkippingSamples struct {
	Samples
	replacements
}

// skippingLengths are SkippingSamples of unequal lengths.
type skippingLengths struct {
	*SkippingSamples
	Lengths
}

// SkipSamples returns samples with replacements for the unreadable ones. The parameters limit and report are those of
// Skip.
func SkipSamples(samples Samples, limit int, report func(*Fault)) Samples {
	s := &SkippingSamples{Samples: samples, replacements: newReplacements(limit, report)}
	if lengths, ok := samples.(Lengths); ok {
		return skippingLengths{s, lengths}
	}
	return s
}

// Unskipped returns the samples without replacements. If samples is a result of SkipSamples, this is the argument of
// SkipSamples; otherwise it is samples.
func Unskipped(samples Samples) Samples {
	if s, ok := samples.(interface{ Unwrap() Samples }); ok {
		return s.Unwrap()
	}
	return samples
}

// Unwrap returns the samples without replacements.
func (s *SkippingSamples) Unwrap() Samples { return s.Samples }

// NewSource returns a Source that replaces unreadable samples.
func (s *SkippingSamples) NewSource(o *Options) (Source, error) {
	source, err := s.Samples.NewSource(o)
	if err != nil {
		return nil, err
	}
	skipping := &skippingSource{Source: source, s: s}
	if o.GroupByLength {
		skipping.lengths, _ = s.Samples.(Lengths)
	}
	if counter, ok := source.(LabelCounter); ok {
		return &skippingCounter{skipping, counter}, nil
	}
	return skipping, nil
}

// skippingSource reads samples for one goroutine.
type skippingSource struct {
	Source
	s       *SkippingSamples
	lengths Lengths // a replacement must not be longer; nil: it may have any length
}

// Read implements Source. It does not read known unreadable samples again, because their replacement must not depend on
// whether a later read succeeds.
func (r *skippingSource) Read(span *Span, errs []error) {
	known := span
	for j := span.Lo; j < span.Hi; j++ {
		k, bad := r.s.replacement(int(span.Index[j]))
		if !bad || k < 0 {
			continue
		}
		if known == span {
			other := *span
			other.Index = slices.Clone(span.Index)
			known = &other
		}
		known.Index[j] = int32(k)
	}
	r.Source.Read(known, errs)
	for j := span.Lo; j < span.Hi; j++ {
		fault, err := unreadable(errs[j-span.Lo])
		if fault == nil {
			errs[j-span.Lo] = err
			continue
		}
		if known.Index[j] != span.Index[j] { // the replacement became unreadable, too
			if err := r.s.note(int(known.Index[j]), fault); err != nil {
				errs[j-span.Lo] = err
				continue
			}
		}
		errs[j-span.Lo] = r.replace(int(span.Index[j]), fault, func(k int) error {
			other := *span
			other.Lo, other.Hi, other.Index = j, j+1, slices.Clone(span.Index)
			other.Index[j] = int32(k)
			var one [1]error
			r.Source.Read(&other, one[:])
			return one[0]
		})
	}
}

// skippingCounter is a skippingSource that also counts labels, including those of replacements.
type skippingCounter struct {
	*skippingSource
	counter LabelCounter
}

// CountLabels implements LabelCounter.
func (r *skippingCounter) CountLabels(epoch, index int) (n int, err error) {
	if k, bad := r.s.replacement(index); bad && k >= 0 {
		n, err := r.counter.CountLabels(epoch, k)
		if fault, err := unreadable(err); fault == nil {
			return n, err
		}
	}
	n, err = r.counter.CountLabels(epoch, index)
	fault, err := unreadable(err)
	if fault == nil {
		return n, err
	}
	err = r.replace(index, fault, func(k int) (err error) {
		n, err = r.counter.CountLabels(epoch, k)
		return err
	})
	return n, err
}

// unreadable splits a joined error. The result fault is the reason why a sample is unreadable, or nil. The result err
// contains all other errors.
func unreadable(all error) (fault *Fault, err error) {
	if !errors.As(all, &fault) || Exhausted(all) {
		return nil, all
	}
	return fault, nil
}

// replace reads the replacement of sample i. The parameter fault is the reason why sample i is unreadable.
func (r *skippingSource) replace(i int, fault *Fault, read func(k int) error) error {
	s := r.s
	k, known := s.replacement(i)
	if err := s.note(i, fault); err != nil {
		return err
	}
	if known && k >= 0 {
		if other, err := unreadable(read(k)); other == nil {
			return err
		}
	}
	// try reads sample k as the replacement. If done is false and err is nil, the caller must try another sample.
	try := func(k int) (done bool, err error) {
		if _, bad := s.replacement(k); bad || r.lengths != nil && r.lengths.Length(k) > r.lengths.Length(i) {
			return false, nil
		}
		other, err := unreadable(read(k))
		if other != nil {
			return false, s.note(k, other)
		}
		if err == nil {
			s.settle(i, k)
		}
		return true, err
	}
	d := newDraws(0, 0, i, streamReplacement)
	for range maxTries {
		if done, err := try(d.below(s.Len())); done || err != nil {
			return err
		}
	}
	if r.lengths == nil {
		return &Fault{Op: "replace sample", Index: i,
			Err: fmt.Errorf("none of the %d other samples that were tried can be read", maxTries)}
	}
	for step := 1; step < s.Len(); step++ { // a random choice seldom finds a sample that is short enough
		if done, err := try((i + step) % s.Len()); done || err != nil {
			return err
		}
	}
	return &Fault{Op: "replace sample", Index: i,
		Err: errors.New("no other sample can be read that is not longer (data.group_by_length)")}
}
