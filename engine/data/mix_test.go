package data

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// whites is a data set of two classes: black squares and white squares.
type whites struct{ *fake }

func (w whites) Label(i int) int { return i % 2 }

func (w whites) NewReader() (Reader, error) {
	r, err := w.fake.NewReader()
	return whiteReader{r}, err
}

type whiteReader struct{ Reader }

func (r whiteReader) Read(i int, s Sizer, img *Image) error {
	if err := r.Reader.Read(i, s, img); err != nil {
		return err
	}
	for k := range img.Pix {
		img.Pix[k] = byte(255 * (i % 2))
	}
	return nil
}

// Black is class 0, and white is class 1. The mean of a mixed image therefore determines the label that it should have.
func TestLabelsAreMixedAsMuchAsPixels(t *testing.T) {
	const size = 16
	for _, mix := range mixings[1:] {
		o := imageOptions{Dataset: whites{&fake{samples: 64, size: size, classes: 2}}, Transform: Transform{Size: size},
			Mix: mix, Seed: 3, BatchSize: 32}
		mixedSamples := 0
		for _, b := range take(t, newLoader(t, o), 4) {
			for j := range b.N {
				sum := 0.0
				for _, v := range b.Images[j*3*size*size:][:3*size*size] {
					sum += float64(v)
				}
				lambda := float64(b.Lambda[j])
				want := lambda*float64(b.Labels[j]) + (1-lambda)*float64(b.SecondLabels[j])
				if got := sum / (255 * 3 * size * size); math.Abs(got-want) > 0.5/255 { // pixels are rounded to bytes
					t.Fatalf("%+v: sample %d is white to %g, its labels %d, %d with lambda %g say %g", mix, b.IDs[j],
						got, b.Labels[j], b.SecondLabels[j], lambda, want)
				}
				if lambda < 1 && b.Labels[j] != b.SecondLabels[j] {
					mixedSamples++
				}
			}
		}
		if mixedSamples == 0 {
			t.Errorf("%+v: no two classes were mixed", mix)
		}
	}
}

// If a share consists of whole pairs, each sample must be decoded once. For each pair that the share splits, one
// additional partner must be decoded.
func TestPartnersAreReadTwiceOnlyWhereSharesPartThem(t *testing.T) {
	for _, c := range []struct {
		offset, count, reads int
	}{{0, 20, 20}, {2, 10, 10}, {1, 10, 12}, {3, 3, 4}, {5, 1, 2}} {
		f := &fake{samples: 40, size: 4}
		newLoader(t, imageOptions{Dataset: f, Transform: augmented, Mix: Mix{MixupAlpha: 1, Probability: 1},
			BatchSize: 20, Depth: 2, Workers: 1,
			Share: &Share{c.offset, c.count}})
		waitFor(t, "two batches to be read", func() bool { return f.reads.Load() >= int64(2*c.reads) })
		if got := f.reads.Load(); got != int64(2*c.reads) {
			t.Errorf("share %+v: %d reads of two batches, want %d", c, got, 2*c.reads)
		}
	}
}

func TestAChoiceIsSharedAsTheModeSays(t *testing.T) {
	const batch = 8
	draw := func(mode MixMode, position int) mixing {
		return Mix{MixupAlpha: 0.3, CutmixAlpha: 1, Probability: 1, Switch: 0.5, Mode: mode}.draw(1, 0, position, batch,
			32)
	}
	for _, c := range []struct {
		mode     MixMode
		together int // number of positions that have the same choice
	}{{MixBatch, batch}, {MixPair, 2}, {MixElement, 1}} {
		for first := 0; first < 4*batch; first += c.together {
			for k := range c.together {
				if draw(c.mode, first+k) != draw(c.mode, first) {
					t.Errorf("mode %d: positions %d and %d differ", c.mode, first, first+k)
				}
			}
			if draw(c.mode, first) == draw(c.mode, first+c.together) {
				t.Errorf("mode %d: positions %d and %d share a choice", c.mode, first, first+c.together)
			}
		}
	}
}

func TestMixingIsDistributedAsAsked(t *testing.T) {
	const n = 20_000
	m := Mix{MixupAlpha: 0.5, CutmixAlpha: 2, Probability: 0.8, Switch: 0.25, Mode: MixElement, OffEpoch: 3}
	none, cut := 0, 0
	var sum, squares float64 // sum of mixup's lambda, and of its square
	for i := range n {
		c := m.draw(7, 1, i, 64, 1024)
		switch {
		case c.none():
			none++
		case c.cut:
			cut++
		default:
			sum += float64(c.lambda)
			squares += float64(c.lambda) * float64(c.lambda)
		}
		if c := m.draw(7, 3, i, 64, 1024); c != unmixed {
			t.Fatalf("mixed in the epoch in which it is off: %+v", c)
		}
	}
	near := func(what string, got, want, deviation float64) {
		t.Helper()
		if math.Abs(got-want) > 5*deviation {
			t.Errorf("%s: got %.4f, want %.4f ± %.4f", what, got, want, 5*deviation)
		}
	}
	near("unmixed", float64(none)/n, 0.2, math.Sqrt(0.2*0.8/n)+1e-4)
	near("cut", float64(cut)/n, 0.8*0.25, math.Sqrt(0.2*0.8/n))
	mixups := float64(n - none - cut)
	mean := sum / mixups
	near("mean lambda of mixup", mean, 0.5, math.Sqrt(0.125/mixups)) // the variance of Beta(a, a) is 1/(4(2a+1))
	near("variance of lambda", squares/mixups-mean*mean, 0.125, 0.1/math.Sqrt(mixups))
}

func TestMixingThatCannotBeIsRefused(t *testing.T) {
	o := imageOptions{Dataset: &fake{samples: 40, size: 4}, Transform: Transform{Size: 4}, BatchSize: 10}
	for _, c := range []struct {
		mix          Mix
		accumulation int
		evaluate     bool
		want         string
	}{
		{Mix{MixupAlpha: 1}, 2, false, "batches of 5 samples"},
		{Mix{CutmixAlpha: 1}, 1, true, "not mixed"},
		{Mix{MixupAlpha: -1}, 1, false, "alpha of mixup is -1"},
		{Mix{MixupAlpha: 1, Probability: 2}, 1, false, "probability is 2"},
		{Mix{MixupAlpha: 1, Switch: math.NaN()}, 1, false, "cutmix is NaN"},
		{Mix{MixupAlpha: 1, Mode: 3}, 1, false, "mode 3"},
	} {
		o := o
		o.Mix, o.Accumulation, o.Evaluate = c.mix, c.accumulation, c.evaluate
		if _, err := open(o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c, err, c.want)
		}
	}
}

// If the partner of a mixed sample cannot be read, the share must fail. The fault must name the partner.
func TestABrokenPartnerIsNamed(t *testing.T) {
	o := imageOptions{Dataset: &fake{samples: 4, size: 4}, Transform: Transform{Size: 4},
		Mix: Mix{MixupAlpha: 1, Probability: 1}, BatchSize: 4, Workers: 1}
	b := take(t, newLoader(t, o), 1)[0]
	// The test uses a new data set, because the first loader still reads ahead from the old one.
	o.Dataset = &fake{samples: 4, size: 4, broken: map[int]bool{int(b.IDs[3]): true}}
	for _, share := range []Share{{0, 4}, {2, 1}} {
		o.Share = &share
		if _, err := newLoader(t, o).Next(t.Context()); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("share %+v: got %v, want a fault of the partner", share, err)
		}
	}
	o.Share = &Share{0, 2}
	if _, err := newLoader(t, o).Next(t.Context()); err != nil {
		t.Errorf("the other pair: %v", err)
	}
}

// A sample with several labels has one target for each label. Mixing must use the same weight for all of them.
func TestSeveralLabelsAreMixed(t *testing.T) {
	const size = 4
	sets := &LabelSets{Names: []string{"a", "b", "c"}, Sets: [][]int32{{0, 2}, nil}}
	for _, mix := range mixings {
		samples := Images{Dataset: whites{&fake{samples: 16, size: size, classes: 2}}, Sets: sets,
			Transform: Transform{Size: size}, Mix: mix}
		b := next(t, load(t, Options{Samples: samples, Seed: 3, BatchSize: 8}))
		targets := [][]int32{{1, 0, 1}, {0, 0, 0}} // targets of even and of odd samples
		labels := Values[int32](b, Labels)
		for j := range b.N {
			if got, want := labels[3*j:3*j+3], targets[b.IDs[j]%2]; !slices.Equal(got, want) {
				t.Errorf("%+v: sample %d has the targets %v, want %v", mix, b.IDs[j], got, want)
			}
			if !mix.Enabled() {
				continue
			}
			second, lambda := Values[int32](b, SecondLabels)[3*j:3*j+3], Values[float32](b, Lambda)[3*j:3*j+3]
			of := b.IDs[j]
			if lambda[0] < 1 {
				of = b.IDs[j^1]
			}
			if !slices.Equal(second, targets[of%2]) || lambda[1] != lambda[0] || lambda[2] != lambda[0] {
				t.Errorf("%+v: sample %d has the second targets %v and lambdas %v", mix, b.IDs[j], second, lambda)
			}
		}
		b.Release()
	}
}
