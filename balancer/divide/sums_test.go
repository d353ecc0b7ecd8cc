package divide

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSumsOfSpansAndBitsAreThoseOfSingleNumbers adds ranks with few and with many gaps, so that sets of spans and of
// bits occur.
func TestSumsOfSpansAndBitsAreThoseOfSingleNumbers(t *testing.T) {
	random, withBits := rand.New(rand.NewPCG(1, 2)), 0
	for round := range 40 {
		most := 1 + random.IntN(1500)
		got, want := sums{spans: []span{{}}}, make([]bool, most+1)
		want[0] = true
		for range 12 {
			single := []int{0}
			for n := 1; n < 60; n++ {
				if random.IntN(10) < []int{1, 5, 9}[round%3] {
					single = append(single, n)
				}
			}
			spans, next := []span(nil), make([]bool, most+1)
			for _, n := range single {
				if last := len(spans) - 1; last >= 0 && spans[last].last == n-1 {
					spans[last].last = n
				} else {
					spans = append(spans, span{n, n})
				}
				for sum := n; sum <= most; sum++ {
					next[sum] = next[sum] || want[sum-n]
				}
			}
			got, want = got.plus(spans, most), next
			if got.bits != nil {
				withBits++
			}
			for n, has := range want {
				if got.has(n) != has {
					t.Fatalf("up to %d: number %d: got %v, want %v", most, n, got.has(n), has)
				}
			}
			largest := most
			for !want[largest] {
				largest--
			}
			if got.largest(most) != largest {
				t.Fatalf("up to %d: largest: got %d, want %d", most, got.largest(most), largest)
			}
			if !slices.IsSortedFunc(got.spans, func(later, span span) int { return later.first - span.last - 2 }) {
				t.Fatalf("got spans %v, want them ascending and apart", got.spans)
			}
		}
	}
	if withBits == 0 || withBits == 40*12 {
		t.Errorf("got %d sets of bits of %d, want some", withBits, 40*12)
	}
}
