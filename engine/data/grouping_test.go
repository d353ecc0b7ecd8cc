package data

import (
	"slices"
	"strings"
	"testing"
)

// texts are rows whose sample i has lengthOf(i) positions.
type texts struct{ rows }

func lengthOf(i int) int { return 1 + i*37%64 }

func (t texts) Length(i int) int { return lengthOf(i) }

func grouped(epoch int, seed uint64) (order []int32) {
	order = make([]int32, 1003)
	Permutation(order, seed, epoch)
	groupByLength(order, make([]int32, len(order)), 8, lengthOf, seed, epoch)
	return order
}

func TestBatchesOfSimilarLength(t *testing.T) {
	order, plain := grouped(3, 5), make([]int32, 1003)
	Permutation(plain, 5, 3)
	sorted := slices.Sorted(slices.Values(order))
	for i, index := range sorted {
		if int(index) != i {
			t.Fatalf("sample %d occurs %d times", i, index)
		}
	}
	if !slices.Equal(order[1000:], plain[1000:]) {
		t.Errorf("the samples that fill no batch are %v, want %v, independent of their lengths", order[1000:],
			plain[1000:])
	}
	if !slices.Equal(order, grouped(3, 5)) || slices.Equal(order, grouped(4, 5)) || slices.Equal(order, grouped(3, 6)) {
		t.Error("the order is not a function of the seed and the epoch")
	}
	padding := func(order []int32) (n int) {
		for batch := range slices.Chunk(order[:1000], 8) {
			longest := 0
			for _, i := range batch {
				longest = max(longest, lengthOf(int(i)))
			}
			for _, i := range batch {
				n += longest - lengthOf(int(i))
			}
		}
		return n
	}
	if a, b := padding(order), padding(plain); a > b/10 {
		t.Errorf("%d positions of padding, a random order has %d: want less than a tenth", a, b)
	}
	// From one batch to the next, the lengths must fall about as often as they rise.
	rising := 0
	for i := 8; i < 1000; i += 8 {
		if lengthOf(int(order[i])) > lengthOf(int(order[i-8])) {
			rising++
		}
	}
	if rising < 40 || rising > 84 {
		t.Errorf("%d of 124 batches are longer than the batch before", rising)
	}
}

func TestAllPartsOfAStepHaveItsLength(t *testing.T) {
	longest := map[int64]int{}
	for _, share := range []Share{{0, 4}, {0, 0}, {3, 1}} {
		l, err := NewLoader(Options{Samples: texts{rows{n: 100, width: 2}}, Seed: 7, BatchSize: 12, Accumulation: 3,
			GroupByLength: true, Share: &share, MaxCount: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for range 2 * l.BatchesPerEpoch() {
			b, err := l.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			step := b.Step / 3
			if share.Count == 4 { // this share is the whole batch
				for _, id := range b.IDs {
					longest[-1-step] = max(longest[-1-step], lengthOf(int(id)))
				}
			}
			if longest[step] == 0 {
				longest[step] = b.Length
			}
			if b.Length != longest[step] || b.Length < 1 {
				t.Errorf("share %+v, batch %d: length %d, want %d", share, b.Step, b.Length, longest[step])
			}
			b.Release()
		}
	}
	for step := range int64(16) {
		if longest[step] != longest[-1-step] {
			t.Errorf("step %d: length %d, the longest sample has %d", step, longest[step], longest[-1-step])
		}
	}
}

func TestSamplesOfUnknownLengthAreNotGrouped(t *testing.T) {
	_, err := NewLoader(Options{Samples: rows{n: 4, width: 1}, BatchSize: 4, GroupByLength: true})
	if err == nil || !strings.Contains(err.Error(), "the lengths of samples of type data.rows are unknown") {
		t.Errorf("got %v", err)
	}
	l, err := NewLoader(Options{Samples: texts{rows{n: 4, width: 1}}, BatchSize: 4, GroupByLength: true,
		Evaluate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := l.Next(t.Context())
	if err != nil || b.Length != 0 || !slices.Equal(b.IDs, []int64{0, 1, 2, 3}) {
		t.Fatalf("an evaluation: got %+v, %v", b, err)
	}
	b.Release()
}
