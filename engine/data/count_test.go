package data

import (
	"strings"
	"testing"
)

// counted are rows with labels: sample i has i%5 labels, and one more in odd epochs.
type counted struct{ rows }

func (l counted) NewSource(o *Options) (Source, error) {
	return countedSource{&rowSource{rows: l.rows, seed: o.Seed}}, nil
}

type countedSource struct{ *rowSource }

func labelsOf(epoch, index int) int { return index%5 + epoch%2 }

// CountLabels implements [LabelCounter].
func (s countedSource) CountLabels(epoch, index int) (int, error) {
	if s.broken > 0 && index == s.broken {
		return 0, &Fault{Op: "count labels", Index: index, Err: errBroken}
	}
	return labelsOf(epoch, index), nil
}

// Every rank must know the number of labels of the whole optimizer step. Its own share must not affect this number.
func TestTheFirstPartOfAStepHasTheLabelsOfTheStep(t *testing.T) {
	const batch, parts = 12, 3
	order := make([]int32, 40)
	for _, share := range []Share{{0, 4}, {0, 0}, {3, 1}} {
		l, err := NewLoader(Options{Samples: counted{rows{n: len(order), width: 2}}, Seed: 7, BatchSize: batch,
			Accumulation: parts, Share: &share, MaxCount: 4, Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		check := func() {
			t.Helper()
			b, err := l.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer b.Release()
			want := 0
			if b.Step%parts == 0 {
				Permutation(order, 7, b.Epoch)
				first := int(b.Step) % l.BatchesPerEpoch() * batch / parts
				for _, index := range order[first : first+batch] {
					want += labelsOf(b.Epoch, int(index))
				}
			}
			if b.StepLabels != want {
				t.Errorf("share %+v, step %d: got %d labels, want %d", share, b.Step, b.StepLabels, want)
			}
		}
		for range 2 * l.BatchesPerEpoch() {
			check()
		}
		if err := l.JumpTo(3); err != nil {
			t.Fatal(err)
		}
		if err := l.SetShare(5, 1, 3); err != nil {
			t.Fatal(err)
		}
		for range 7 {
			check()
		}
	}
}

func TestAnEvaluationCountsNoLabelsInAdvance(t *testing.T) {
	l, err := NewLoader(Options{Samples: counted{rows{n: 8, width: 1, broken: 0}}, BatchSize: 4, Evaluate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := l.Next(t.Context())
	if err != nil || b.StepLabels != 0 {
		t.Fatalf("got %+v, %v", b, err)
	}
	b.Release()
}

// If the labels of a sample cannot be counted, even a rank with an empty share must report this.
func TestASampleThatCannotBeCountedIsAFault(t *testing.T) {
	l, err := NewLoader(Options{Samples: counted{rows{n: 4, width: 1, broken: 3}}, BatchSize: 4, Share: &Share{},
		MaxCount: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "count labels 3: broken") {
		t.Errorf("got %v, want the fault of sample 3", err)
	}
}
