package data

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The expected values are those of the Random123 library (kat_vectors, philox4x32 10).
func TestPhiloxKnownAnswers(t *testing.T) {
	const all = 0xFFFFFFFF
	for _, c := range []struct {
		ctr    [4]uint32
		k0, k1 uint32
		want   [4]uint32
	}{
		{[4]uint32{}, 0, 0, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{all, all, all, all}, all, all, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0,
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.ctr, c.k0, c.k1); got != c.want {
			t.Errorf("philox(%x, %x, %x) = %x, want %x", c.ctr, c.k0, c.k1, got, c.want)
		}
	}
}

func TestDrawsDifferInEveryArgument(t *testing.T) {
	first := func(seed uint64, epoch, index int, s stream) uint32 {
		d := newDraws(seed, epoch, index, s)
		return d.uint32()
	}
	base := first(1, 2, 3, streamAugment)
	for name, got := range map[string]uint32{
		"seed": first(2, 2, 3, streamAugment), "high seed": first(1|1<<40, 2, 3, streamAugment),
		"epoch": first(1, 3, 3, streamAugment), "index": first(1, 2, 4, streamAugment),
		"high index": first(1, 2, 3|1<<33, streamAugment), "stream": first(1, 2, 3, streamSynthetic),
	} {
		if got == base {
			t.Errorf("another %s gives the same number", name)
		}
	}
}

func TestBelowIsUniform(t *testing.T) {
	for _, n := range []int{1, 2, 3, 9, 10, 1000} {
		d := newDraws(7, 0, n, streamAugment)
		const draws = 200_000
		count := make([]int, n)
		for range draws {
			count[d.below(n)]++
		}
		if x, limit := chiSquare(count, float64(draws)/float64(n)); x > limit {
			t.Errorf("below(%d): chi-square %.1f, want at most %.1f", n, x, limit)
		}
	}
}

// chiSquare returns the chi-square statistic of counts with equal expectations, and its limit. The limit is the mean
// plus 5 standard deviations, plus 5 for few degrees of freedom. If the generator is correct, less than one in a
// million seeds exceeds the limit. Seeds are fixed.
func chiSquare(count []int, expected float64) (x, limit float64) {
	for _, c := range count {
		x += (float64(c) - expected) * (float64(c) - expected) / expected
	}
	free := float64(len(count) - 1)
	return x, free + 5*math.Sqrt(2*free) + 5
}

func TestFloatsFillTheUnitInterval(t *testing.T) {
	d := newDraws(1, 0, 0, streamAugment)
	count := make([]int, 16)
	for range 100_000 {
		v := d.float64()
		if v < 0 || v >= 1 {
			t.Fatalf("%g lies outside [0, 1)", v)
		}
		count[int(v*16)]++
	}
	if x, limit := chiSquare(count, 100_000.0/16); x > limit {
		t.Errorf("chi-square %.1f, want at most %.1f", x, limit)
	}
}

func TestPermutationHoldsEverySampleOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order := make([]int32, rapid.IntRange(0, 3000).Draw(t, "samples"))
		seed, epoch := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 1<<20).Draw(t, "epoch")
		Permutation(order, seed, epoch)
		again := make([]int32, len(order))
		Permutation(again, seed, epoch)
		if !slices.Equal(order, again) {
			t.Fatal("two calls differ")
		}
		slices.Sort(again)
		for i, v := range again {
			if int(v) != i {
				t.Fatalf("sample %d is missing", i)
			}
		}
	})
}

func TestPermutationsOfFourAreEquallyLikely(t *testing.T) {
	count := map[string]int{}
	order := make([]int32, 4)
	const epochs = 48_000
	for epoch := range epochs {
		Permutation(order, 5, epoch)
		count[fmt.Sprint(order)]++
	}
	var counts []int
	for _, n := range count {
		counts = append(counts, n)
	}
	if len(counts) != 24 {
		t.Fatalf("%d of 24 orders came up", len(counts))
	}
	if x, limit := chiSquare(counts, epochs/24); x > limit {
		t.Errorf("chi-square %.1f, want at most %.1f", x, limit)
	}
}

// The order of samples must never change. Otherwise, resumed runs would repeat some samples and omit others.
func TestPermutationIsFrozen(t *testing.T) {
	order := make([]int32, 10)
	Permutation(order, 1, 0)
	if want := []int32{5, 8, 0, 2, 1, 7, 9, 3, 4, 6}; !slices.Equal(order, want) {
		t.Errorf("seed 1, epoch 0: %v, want %v", order, want)
	}
	Permutation(order, 1, 1)
	if want := []int32{0, 6, 7, 5, 4, 3, 2, 8, 1, 9}; !slices.Equal(order, want) {
		t.Errorf("seed 1, epoch 1: %v, want %v", order, want)
	}
}

func TestBatchesPerEpoch(t *testing.T) {
	for _, c := range []struct {
		samples, part, accumulation int
		evaluate, keepLast          bool
		want                        int
	}{
		{100, 10, 1, false, false, 10},
		{109, 10, 1, false, false, 10},
		{9, 10, 1, false, false, 0},
		{109, 5, 2, false, false, 20}, // there are 21 parts, but only 10 complete steps
		{100, 10, 1, true, false, 10},
		{101, 10, 1, true, false, 11},
		{1, 10, 1, true, false, 1},
		{100, 10, 1, false, true, 10},
		{101, 10, 1, false, true, 11},
		{9, 10, 1, false, true, 1},
		{101, 5, 2, false, true, 22}, // the last of 11 steps has one part with a sample and one part without
	} {
		if got := batchesPerEpoch(c.samples, c.part, c.accumulation, c.evaluate, c.keepLast); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}
