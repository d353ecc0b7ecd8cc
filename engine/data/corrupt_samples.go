package data

import (
	"errors"
	"fmt"
	"slices"
)

// SkippingSamples replaces unreadable samples of other Samples, like Skipping. Samples of unequal lengths (Lengths) are
// replaced by samples that are not longer, because the length of a step is chosen before its samples are read.
type SkippingSamples struct {
	Samples
	replacements
}

// skippingLengths are SkippingSamples of unequal lengths.
type skippingLengths struct {
	*SkippingSamples
	Lengths
}

// SkipSamples returns samples with replacements for the unreadable ones. limit and report are those of Skip.
func SkipSamples(samples Samples, limit int, report func(*Fault)) Samples {
	s := &SkippingSamples{Samples: samples, replacements: newReplacements(limit, report)}
	if lengths, ok := samples.(Lengths); ok {
		return skippingLengths{s, lengths}
	}
	return s
}

// NewSource returns a Source that replaces unreadable samples.
func (s *SkippingSamples) NewSource(o *Options) (Source, error) {
	source, err := s.Samples.NewSource(o)
	if err != nil {
		return nil, err
	}
	skipping := &skippingSource{Source: source, s: s}
	if counter, ok := source.(LabelCounter); ok {
		return &skippingCounter{skipping, counter}, nil
	}
	return skipping, nil
}

// skippingSource reads samples for one goroutine.
type skippingSource struct {
	Source
	s *SkippingSamples
}

// Read implements Source.
func (r *skippingSource) Read(span *Span, errs []error) {
	r.Source.Read(span, errs)
	for j := span.Lo; j < span.Hi; j++ {
		fault, err := unreadable(errs[j-span.Lo])
		if fault == nil {
			errs[j-span.Lo] = err
			continue
		}
		errs[j-span.Lo] = r.s.replace(int(span.Index[j]), fault, func(k int) error {
			other := *span
			other.Lo, other.Hi, other.Index = j, j+1, slices.Clone(span.Index)
			other.Index[j] = int32(k)
			var one [1]error
			r.Source.Read(&other, one[:])
			return one[0]
		})
	}
}

// skippingCounter also counts the labels of replacements.
type skippingCounter struct {
	*skippingSource
	counter LabelCounter
}

// CountLabels implements LabelCounter.
func (r *skippingCounter) CountLabels(epoch, index int) (n int, err error) {
	n, err = r.counter.CountLabels(epoch, index)
	fault, err := unreadable(err)
	if fault == nil {
		return n, err
	}
	err = r.s.replace(index, fault, func(k int) (err error) {
		n, err = r.counter.CountLabels(epoch, k)
		return err
	})
	return n, err
}

// unreadable returns an error of a sample in fault, and all other errors in err.
func unreadable(all error) (fault *Fault, err error) {
	if !errors.As(all, &fault) || Exhausted(all) {
		return nil, all
	}
	return fault, nil
}

// replace reads the replacement of sample i, which is unreadable because of fault.
func (s *SkippingSamples) replace(i int, fault *Fault, read func(k int) error) error {
	k, known := s.replacement(i)
	if err := s.note(i, fault); err != nil {
		return err
	}
	if known && k >= 0 {
		if other, err := unreadable(read(k)); other == nil {
			return err
		}
	}
	lengths, unequal := s.Samples.(Lengths)
	d := newDraws(0, 0, i, streamReplacement)
	for range maxTries {
		k := d.below(s.Len())
		if _, bad := s.replacement(k); bad || unequal && lengths.Length(k) > lengths.Length(i) {
			continue
		}
		other, err := unreadable(read(k))
		if other != nil {
			if err := s.note(k, other); err != nil {
				return err
			}
			continue
		}
		if err == nil {
			s.settle(i, k)
		}
		return err
	}
	return &Fault{Op: "replace sample", Index: i,
		Err: fmt.Errorf("none of the %d other samples that were tried can be read and is not longer", maxTries)}
}
