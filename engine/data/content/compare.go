package content

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/engine/data"
)

// Limits of the comparison at the start. Larger limits detect smaller differences before the first step, but the start
// takes longer. At 0.1 ms per file, 1,024 files take 0.1 s on one core.
const (
	StartUnits = 1024     // largest number of units whose content is compared
	StartBytes = 64 << 20 // after this number of bytes, no further units are read
	leastUnits = 64       // minimum number of units to compare, even if they have more than StartBytes
	readers    = 8        // number of units to read at the same time, because network file systems have a high latency
)

// Compare returns a *DifferenceError on all ranks if the lists of units differ, or if the contents of the compared
// units differ. It returns the number of units whose content at least two ranks have read.
func (t *Team) Compare(ctx context.Context) (compared int, err error) {
	if t.Alone() {
		return 0, nil
	}
	for _, rank := range t.readers() {
		if t.members[rank].Units != t.members[0].Units {
			return 0,
				t.part(ctx, t.differ(rank, 0, fmt.Sprintf("number of units, %d and %d,", t.members[rank].Units,
					t.members[0].Units)), -1)
		}
	}
	unit, rank, err := t.firstListed(ctx)
	if err != nil {
		return 0, err
	}
	if unit >= 0 {
		return 0, t.part(ctx, t.differ(rank, 0, "name, label or size"), unit)
	}
	return t.compareContents(ctx)
}

// fan is the number of parts into which a search divides the units. With 1,024, a search in 10^9 units needs three
// exchanges of 8 kB per rank.
const fan = 1024

// firstListed returns the first unit whose entry in the list differs between rank 0 and another rank. It also returns
// this rank. The result unit is -1 if there is no such unit.
func (t *Team) firstListed(ctx context.Context) (unit, rank int, err error) {
	for lo, hi := 0, t.Content.Len(); lo < hi; {
		size := (hi - lo + fan - 1) / fan
		parts := (hi - lo + size - 1) / size
		var sums []uint64
		if t.reads() {
			sums = make([]uint64, parts)
			for i := lo; i < hi; i++ {
				part := (i - lo) / size
				sums[part] = data.MixSum(sums[part], t.Content.Listed(i))
			}
		}
		all, err := t.gather(ctx, "data: lists", sums, parts)
		if err != nil {
			return 0, 0, err
		}
		part, other := firstDifference(all, t.readers(), parts)
		if part < 0 {
			return -1, 0, nil
		}
		if lo, hi = lo+part*size, min(lo+(part+1)*size, hi); size == 1 {
			return lo, other, nil
		}
	}
	return -1, 0, nil
}

// firstDifference returns the first position at which a rank differs from rank 0, and this rank. The result position is
// -1 if there is no difference.
func firstDifference(all [][]uint64, ranks []int, n int) (position, rank int) {
	for k := range n {
		for _, rank := range ranks {
			if all[rank][k] != all[0][k] {
				return k, rank
			}
		}
	}
	return -1, 0
}

// gather exchanges hashes. The parameter want is the number of hashes that each reading rank must pass; a negative
// value permits any number. Other ranks pass no hashes.
func (t *Team) gather(ctx context.Context, name string, sums []uint64, want int) ([][]uint64, error) {
	value := make([]byte, 0, 8*len(sums))
	for _, sum := range sums {
		value = binary.LittleEndian.AppendUint64(value, sum)
	}
	values, err := t.Gather(ctx, name, value)
	if err != nil {
		return nil, err
	}
	all := make([][]uint64, len(values))
	for rank, value := range values {
		if t.first[rank] == rank && want >= 0 && len(value) != 8*want || len(value)%8 != 0 {
			return nil, fmt.Errorf("exchange %q: rank %d sent %d bytes, want %d", name, rank, len(value), 8*want)
		}
		for ; len(value) >= 8; value = value[8:] {
			all[rank] = append(all[rank], binary.LittleEndian.Uint64(value))
		}
	}
	return all, nil
}

// compareContents compares the content of the first units of the walk, and returns how many of them at least two ranks
// have read.
func (t *Team) compareContents(ctx context.Context) (compared int, err error) {
	var sums []uint64
	var failed error
	if t.reads() {
		sums, failed = t.sums(ctx)
	}
	all, err := t.gather(ctx, "data: contents", sums, -1) // also after a failure: other ranks wait for it
	if failed != nil || err != nil {
		return 0, cmp.Or(failed, err)
	}
	ranks := t.readers()
	n := len(all[0])
	for _, rank := range ranks { // if units differ in size, a rank may reach StartBytes after fewer units
		n = min(n, len(all[rank]))
	}
	w := newWalk(t.Content.Len(), t.Seed)
	var found *DifferenceError
	least, compared, differing := t.Content.Len(), 0, 0
	t.known, t.by = make([]uint64, n), make([]uint16, n)
	for k := range n {
		unit, odd, read := w.at(k), -1, 0
		for _, rank := range ranks {
			sum := all[rank][k]
			if sum == 0 {
				continue // this rank cannot read the unit; the run reports the reason when it reads the unit
			}
			if read++; read == 1 {
				t.known[k], t.by[k] = sum, uint16(rank)
			} else if t.known[k] != sum && odd < 0 {
				odd = rank
			}
		}
		if read > 1 {
			compared++
		}
		if odd < 0 {
			continue
		}
		if differing++; unit < least {
			least = unit
			found = t.differ(odd, int(t.by[k]), "content")
		}
	}
	if found != nil {
		found.Differing, found.Compared = differing, compared
		return 0, t.part(ctx, found, least)
	}
	t.passed = n
	return compared, nil
}

// sums returns the hashes of the first units of the walk. The hash of an unreadable unit is 0.
func (t *Team) sums(ctx context.Context) ([]uint64, error) {
	w := newWalk(t.Content.Len(), t.Seed)
	summers := make([]data.Summer, min(readers, w.n))
	for k := range summers {
		s, err := t.Content.NewSummer()
		if err != nil {
			return nil, err
		}
		defer s.Close() // read only
		summers[k] = s
	}
	sums, sizes := make([]uint64, min(w.n, StartUnits)), make([]int, min(w.n, StartUnits))
	total := 0
	for done := 0; done < len(sums); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		until := min(done+leastUnits, len(sums))
		var next atomic.Int64
		next.Store(int64(done))
		var wait sync.WaitGroup
		for _, s := range summers {
			wait.Go(func() {
				for k := int(next.Add(1)) - 1; k < until; k = int(next.Add(1)) - 1 {
					if sum, bytes, err := s.Sum(w.at(k)); err == nil {
						sums[k], sizes[k] = sum, bytes
					}
				}
			})
		}
		wait.Wait()
		for ; done < until; done++ { // the first units may exceed the limit
			if total += sizes[done]; total >= StartBytes && done+1 >= leastUnits {
				return sums[:done+1], nil
			}
		}
	}
	return sums, nil
}
