package data

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// unevenSamples are samples of unequal lengths, each with a number of labels. The samples in broken cannot be read.
type unevenSamples struct {
	n      int
	broken map[int]bool
}

func (s unevenSamples) Len() int         { return s.n }
func (s unevenSamples) Length(i int) int { return 1 + i%7 }
func (s unevenSamples) Layout(*Options) (Layout, error) {
	return Layout{Fields: []Field{{Name: Labels, DType: tensor.I32}}}, nil
}
func (s unevenSamples) NewSource(*Options) (Source, error) { return textSource{s}, nil }

type textSource struct{ unevenSamples }

func (s textSource) Close() error { return nil }

func (s textSource) Read(span *Span, errs []error) {
	for j := span.Lo; j < span.Hi; j++ {
		elements[int32](span.Field(0, j))[0] = 100*int32(span.Epoch) + span.Index[j]
		if errs[j-span.Lo] = nil; s.broken[int(span.Index[j])] {
			errs[j-span.Lo] = &Fault{Op: "read sample", Index: int(span.Index[j]), Err: errBroken}
		}
	}
}

func (s textSource) CountLabels(_, index int) (int, error) {
	if s.broken[index] {
		return 0, &Fault{Op: "count labels", Index: index, Err: errBroken}
	}
	return s.Length(index), nil
}

// The test compares the batches of two ranks with the batches of a single rank. The number of workers differs.
func TestUnreadableSamplesOfAnyKindAreReplaced(t *testing.T) {
	base := unevenSamples{n: 40, broken: map[int]bool{3: true, 4: true, 17: true, 39: true}}
	read := func(share Share, workers int) (all [][]string, replaced int, labels []int) {
		found := map[int]bool{}
		l, err := NewLoader(Options{Samples: SkipSamples(base, 0, func(f *Fault) { found[f.Index] = true }), Seed: 3,
			BatchSize: 8, GroupByLength: true, Share: &share, MaxCount: 8, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for range 10 {
			b, err := l.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var line []string
			for i, label := range Values[int32](b, Labels) {
				index := int(label) - 100*b.Epoch
				if base.broken[index] || base.broken[int(b.IDs[i])] == (index == int(b.IDs[i])) {
					t.Errorf("sample %d has the contents of %d", b.IDs[i], index)
				}
				if base.Length(index) > base.Length(int(b.IDs[i])) {
					t.Errorf("sample %d was replaced by %d, which is longer", b.IDs[i], index)
				}
				line = append(line, fmt.Sprint(b.IDs[i], "=", label))
			}
			all, replaced, labels = append(all, line), replaced+b.Replaced, append(labels, b.StepLabels)
			b.Release()
		}
		return all, replaced, labels
	}
	want, replaced, labels := read(Share{0, 8}, 1)
	if replaced != 8 {
		t.Errorf("two epochs with 4 unreadable samples: %d replaced, want 8", replaced)
	}
	a, n1, labelsA := read(Share{0, 3}, 2)
	b, n2, _ := read(Share{3, 5}, 4)
	for step := range want {
		if got := append(a[step], b[step]...); strings.Join(got, " ") != strings.Join(want[step], " ") ||
			labelsA[step] != labels[step] {
			t.Errorf("step %d: two ranks read %v with %d labels, one reads %v with %d", step, got, labelsA[step],
				want[step], labels[step])
		}
	}
	if n1+n2 != replaced {
		t.Errorf("two ranks replaced %d samples, want %d", n1+n2, replaced)
	}
}

// flakySamples are samples whose first read fails.
type flakySamples struct{ unevenSamples }

func (s flakySamples) NewSource(*Options) (Source, error) {
	return flakySource{textSource{s.unevenSamples}}, nil
}

type flakySource struct{ textSource }

func (s flakySource) Read(span *Span, errs []error) {
	s.textSource.Read(span, errs)
	for j := span.Lo; j < span.Hi; j++ {
		delete(s.broken, int(span.Index[j]))
	}
}

// readAll returns the contents of all samples in each of two epochs. The contents do not depend on the number of the
// epoch.
func readAll(t *testing.T, samples Samples, grouped bool) (epochs [2]map[int64]int) {
	t.Helper()
	l := load(t, Options{Samples: samples, BatchSize: samples.Len(), Workers: 1, GroupByLength: grouped})
	for e := range epochs {
		epochs[e] = map[int64]int{}
		b := next(t, l)
		for i, v := range Values[int32](b, Labels) {
			epochs[e][b.IDs[i]] = int(v) - 100*b.Epoch
		}
		b.Release()
	}
	return epochs
}

// A sample must keep its replacement, even if the sample could be read later.
func TestAReplacementStays(t *testing.T) {
	base := flakySamples{unevenSamples{n: 40, broken: map[int]bool{17: true}}}
	epochs := readAll(t, SkipSamples(base, 0, nil), false)
	if epochs[0][17] == 17 || epochs[1][17] != epochs[0][17] {
		t.Errorf("sample 17 has the contents of %d, then of %d, want the same replacement", epochs[0][17],
			epochs[1][17])
	}
}

// oneAsShort has only one other sample that is not longer than sample 0.
type oneAsShort struct{ unevenSamples }

func (s oneAsShort) Length(i int) int {
	if i == 0 || i == 4000 {
		return 1
	}
	return 2
}

// If samples are not grouped by length, a replacement may have any length. If they are grouped, the loader must find
// the only other short sample.
func TestAShortSampleFindsAReplacement(t *testing.T) {
	base := oneAsShort{unevenSamples{n: 4100, broken: map[int]bool{0: true}}}
	if got := readAll(t, SkipSamples(base, 0, nil), false)[0][0]; got == 0 || got == 4000 {
		t.Errorf("not grouped: sample 0 has the contents of %d, want those of a longer sample", got)
	}
	if got := readAll(t, SkipSamples(base, 0, nil), true)[0][0]; got != 4000 {
		t.Errorf("grouped by length: sample 0 has the contents of %d, want 4000", got)
	}
}

func TestSamplesWithoutReplacements(t *testing.T) {
	base := unevenSamples{n: 4}
	if got, ok := Unskipped(SkipSamples(base, 0, nil)).(unevenSamples); !ok || got.n != 4 {
		t.Errorf("got %T, want the samples themselves", got)
	}
	if _, ok := Unskipped(base).(unevenSamples); !ok {
		t.Error("samples that are not wrapped changed")
	}
}
