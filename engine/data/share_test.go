package data

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSharesMayChangeBetweenAnyTwoSteps changes the shares of a loader at random. It compares the batches with parts of
// whole batches.
func TestSharesMayChangeBetweenAnyTwoSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const part = 24
		o := imageOptions{Dataset: &fake{samples: 100, size: 4, classes: 3}, Transform: augmented, Seed: 2,
			BatchSize: part,
			Mix:       rapid.SampledFrom(mixings).Draw(t, "mixing")}
		const steps = 25
		want := reference(t, o, steps)
		o.MaxCount = rapid.IntRange(1, part).Draw(t, "largest share")
		o.Workers, o.Depth = rapid.IntRange(1, 3).Draw(t, "workers"), rapid.IntRange(2, 5).Draw(t, "depth")
		o.Share = &Share{Count: rapid.IntRange(0, o.MaxCount).Draw(t, "first count")}
		o.Share.Offset = rapid.IntRange(0, part-o.Share.Count).Draw(t, "first offset")
		l, err := open(o)
		if err != nil {
			t.Fatalf("%v", err)
		}
		defer l.Close()
		type share struct{ offset, count int }
		shares := make([]share, 2*steps) // expected share of each step, by a simple algorithm
		for i := range shares {
			shares[i] = share{o.Share.Offset, o.Share.Count}
		}
		var held []*Batch
		for step := range steps {
			for range rapid.IntRange(0, 2).Draw(t, "changes") {
				from := step + rapid.IntRange(0, 4).Draw(t, "in how many steps")
				s := share{count: rapid.IntRange(0, o.MaxCount).Draw(t, "count")}
				s.offset = rapid.IntRange(0, part-s.count).Draw(t, "offset")
				if err := l.SetShare(int64(from), s.offset, s.count); err != nil {
					t.Fatalf("%v", err)
				}
				for i := from; i < len(shares); i++ {
					shares[i] = s
				}
			}
			b, err := l.Next(context.Background())
			if err != nil {
				t.Fatalf("%v", err)
			}
			s, size := shares[step], 3*4*4
			w := want[step]
			w.N, w.Offset = s.count, s.offset
			w.IDs, w.Labels = w.IDs[s.offset:][:s.count], w.Labels[s.offset:][:s.count]
			w.Images = w.Images[s.offset*size:][:s.count*size]
			if w.Lambda != nil {
				w.SecondLabels, w.Lambda = w.SecondLabels[s.offset:][:s.count], w.Lambda[s.offset:][:s.count]
			}
			if got := clone(b); !got.equal(w) {
				t.Fatalf("step %d, share %+v: got %+v, want %+v", step, s, got, w)
			}
			held = append(held, b)
			for len(held) > 0 && (len(held) == o.Depth-1 || rapid.Bool().Draw(t, "release")) {
				held[0].Release()
				held = held[1:]
			}
		}
	})
}

// A training loop calls JumpTo with its first step. The Loader usually reads this step already, and then must not drop
// any sample.
func TestAJumpToTheNextBatchReadsNothingAgain(t *testing.T) {
	f := &fake{samples: 100, size: 4}
	l := newLoader(t, imageOptions{Dataset: f, Transform: augmented, BatchSize: 20, Depth: 2, Workers: 1})
	waitFor(t, "both batches to be read", func() bool { return f.reads.Load() == 40 })
	if err := l.JumpTo(0); err != nil {
		t.Fatal(err)
	}
	for step := range 2 {
		if b := take(t, l, 1)[0]; b.Step != int64(step) {
			t.Errorf("got batch %d, want %d", b.Step, step)
		}
	}
	waitFor(t, "two more batches to be read", func() bool { return f.reads.Load() == 80 })
}

func TestSamplesThatStayInTheShareAreNotReadAgain(t *testing.T) {
	f := &fake{samples: 100, size: 4}
	l := newLoader(t, imageOptions{Dataset: f, Transform: augmented, BatchSize: 20, Share: &Share{0, 10}, Depth: 2,
		Workers: 1})
	waitFor(t, "both batches to be read", func() bool { return f.reads.Load() == 20 })
	if err := l.SetShare(0, 2, 12); err != nil {
		t.Fatal(err)
	}
	b := take(t, l, 1)[0]
	if b.N != 12 || b.Offset != 2 {
		t.Fatalf("got %d samples from %d on", b.N, b.Offset)
	}
	// The first two batches need 4 more samples each. The Loader begins the third batch after the release, so this
	// batch needs only its 12 samples.
	waitFor(t, "the third batch to be read", func() bool { return f.reads.Load() == 20+8+12 })
}

func TestJumpToGoesBothWays(t *testing.T) {
	o := imageOptions{Dataset: &fake{samples: 40, size: 4}, Transform: augmented, Seed: 3, BatchSize: 8, Workers: 3}
	want := reference(t, o, 30)
	l := newLoader(t, o)
	held, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []int64{7, 0, 23, 22, 5} {
		if err := l.JumpTo(step); err != nil {
			t.Fatal(err)
		}
		for i, b := range take(t, l, 3) {
			if !b.equal(want[int(step)+i]) {
				t.Fatalf("after a jump to %d, batch %d: got %+v", step, i, b)
			}
		}
	}
	if c := clone(held); !c.equal(want[0]) {
		t.Error("a batch that was held through jumps has changed")
	}
	held.Release()
}

func TestABrokenSampleIsNamed(t *testing.T) {
	f := &fake{samples: 16, size: 4, broken: map[int]bool{9: true, 11: true}, panics: map[int]bool{14: true}}
	l := newLoader(t, imageOptions{Dataset: f, Transform: Transform{Size: 4}, BatchSize: 4, Evaluate: true, Workers: 3})
	take(t, l, 2)
	for range 2 { // the second call returns the same error
		_, err := l.Next(t.Context())
		var fault *Fault
		if !errors.As(err, &fault) || fault.Index != 9 || !errors.Is(err, errBroken) {
			t.Fatalf("got %v, want a fault of sample 9", err)
		}
		if want := `read sample 9 "9.jpg": broken`; err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	// A share without the first broken sample must return the error of the second one. A share without both must return
	// no error.
	if err := l.SetShare(2, 2, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "sample 11") {
		t.Fatalf("got %v, want a fault of sample 11", err)
	}
	if err := l.SetShare(2, 2, 1); err != nil {
		t.Fatal(err)
	}
	if b := take(t, l, 1)[0]; !slices.Equal(b.IDs, []int64{10}) {
		t.Fatalf("got samples %v, want 10", b.IDs)
	}
	if _, err := l.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Fatalf("got %v, want the panic of sample 14", err)
	}
}

func TestTheFirstBrokenSampleIsNamedWhicheverFailsFirst(t *testing.T) {
	// At this size, the workers read images one at a time. Two workers therefore read the two broken samples.
	const size = 128
	f := &fake{samples: 4, size: size, broken: map[int]bool{1: true, 2: true}, slow: 1}
	l := newLoader(t, imageOptions{Dataset: f, Transform: Transform{Size: size}, BatchSize: 4, Evaluate: true,
		Workers: 2})
	if _, err := l.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "sample 1 ") {
		t.Errorf("got %v, want a fault of sample 1", err)
	}
}

func TestAShareSetAfterAJumpBackHoldsFromItsStepOn(t *testing.T) {
	l := newLoader(t, imageOptions{Dataset: &fake{samples: 80, size: 4}, Transform: augmented, BatchSize: 8})
	take(t, l, 5)
	if err := l.SetShare(5, 2, 3); err != nil {
		t.Fatal(err)
	}
	if err := l.JumpTo(0); err != nil {
		t.Fatal(err)
	}
	if err := l.SetShare(2, 0, 8); err != nil {
		t.Fatal(err)
	}
	for step, b := range take(t, l, 4) {
		if want := [2]int{[]int{2, 2, 0, 0}[step], []int{3, 3, 8, 8}[step]}; b.Offset != want[0] || b.N != want[1] {
			t.Errorf("step %d: %d samples from %d on, want %d from %d", step, b.N, b.Offset, want[1], want[0])
		}
	}
}
