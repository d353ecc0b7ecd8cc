package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler/internal/limits"
)

// After any inserts and removals, a sorted list must contain the same items as a sorted slice. The operations split,
// empty and reuse blocks.
func TestSortedEqualsASlice(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 9))
	var l sorted
	var want []item
	order := func(a, b item) int {
		switch {
		case a.before(b):
			return -1
		case b.before(a):
			return 1
		}
		return 0
	}
	most := 0
	for step := range 20000 {
		grow := step/4000%2 == 0 // alternate between phases of growth and of shrinking
		x := item{float64(random.IntN(50)), random.IntN(1 << 20)}
		if i, found := slices.BinarySearchFunc(want, x, order); !found && (grow || random.IntN(4) == 0) {
			l.insert(x)
			want = slices.Insert(want, i, x)
		} else if len(want) > 0 {
			i = random.IntN(len(want))
			switch random.IntN(3) {
			case 0:
				i = 0
				if got := l.pop(); got != want[0] {
					t.Fatalf("step %d: pop: got %v, want %v", step, got, want[0])
				}
			default:
				if !l.remove(want[i]) {
					t.Fatalf("step %d: the list has not %v", step, want[i])
				}
			}
			want = slices.Delete(want, i, i+1)
		}
		if l.remove(item{-1, 0}) || l.n != len(want) {
			t.Fatalf("step %d: got %d items, want %d", step, l.n, len(want))
		}
		if step%500 == 17 {
			l.check(t, step, want)
			from, _ := slices.BinarySearchFunc(want, x, order)
			at := l.from(x)
			for _, v := range want[from:] {
				if got, ok := at.get(); !ok || got != v {
					t.Fatalf("step %d: from %v: got %v, want %v", step, x, got, v)
				}
				at.next()
			}
		}
		if most = max(most, len(l.blocks)); step == 15000 {
			l.clear()
			want = want[:0]
		}
	}
	if t.Logf("up to %d blocks", most); most < 20 {
		t.Errorf("got at most %d blocks, want at least 20", most)
	}
}

// After removals in any order, few blocks must remain. The recorded least value of a block must be at most the values
// of its items.
func TestBlocksAreMerged(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	l := sorted{value: make([]float64, 20000)}
	for id := range l.value {
		l.value[id] = random.Float64()
		l.insert(item{float64(id % 5000), id})
	}
	full := len(l.blocks)
	for k, id := range random.Perm(len(l.value)) {
		if !l.remove(item{float64(id % 5000), id}) {
			t.Fatalf("the list has not item %d", id)
		}
		if most := 2 + 8*l.n/limits.Block; len(l.blocks) > most {
			t.Fatalf("after %d removals, got %d blocks with %d items, want at most %d blocks", k+1, len(l.blocks), l.n,
				most)
		}
		if k%1000 > 0 {
			continue
		}
		n := 0
		for i := range l.blocks {
			for _, x := range l.blocks[i].items() {
				if n++; l.value[x.id] < l.blocks[i].least {
					t.Fatalf("block %d: got %v as the least value, but item %d has %v", i, l.blocks[i].least, x.id,
						l.value[x.id])
				}
			}
		}
		if n != l.n {
			t.Fatalf("got %d items in blocks, want %d", n, l.n)
		}
	}
	if full < 100 {
		t.Errorf("got %d blocks of the full list, want at least 100", full)
	}
}

// check compares a list with a slice: forwards, backwards, and by index.
func (l *sorted) check(t *testing.T, step int, want []item) {
	t.Helper()
	at, back := l.first(), l.last()
	for k := range want {
		if got, ok := at.get(); !ok || got != want[k] || l.at(k) != want[k] {
			t.Fatalf("step %d: item %d: got %v, by index %v, want %v", step, k, got, l.at(k), want[k])
		}
		last := want[len(want)-1-k]
		if got, ok := back.get(); !ok || got != last {
			t.Fatalf("step %d: item %d from the end: got %v, want %v", step, k, got, last)
		}
		at.next()
		back.prev()
	}
	if _, ok := at.get(); ok {
		t.Fatalf("step %d: the list has more than %d items", step, len(want))
	}
}

// A reader must get each change once, or must learn that changes were dropped.
func TestReadersOfAJournalKnowWhatTheyMissed(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 8))
	var c changes
	at, late, added := 0, 0, 0
	for range 200 {
		n := random.IntN(limits.Journal)
		if random.IntN(4) == 0 {
			n = 3 * limits.Journal
		}
		first := added
		for range n {
			c.add(added)
			added++
		}
		list, ok := c.since(at)
		at = c.end()
		if !ok {
			late++
			continue
		}
		if len(list) != n || n > 0 && (list[0] != first || list[n-1] != added-1) {
			t.Fatalf("got %d changes, want the %d from %d to %d", len(list), n, first, added-1)
		}
	}
	if late == 0 || late > 120 {
		t.Errorf("got %d of 200 times that changes were dropped, want some, and only after too many changes", late)
	}
	c.reset()
	if _, ok := c.since(at); ok {
		t.Error("after a reset, a reader must be late")
	}
}
