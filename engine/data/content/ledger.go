package content

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// Ledger is a table of the hashes of all units that the ranks have read. Its table is equal on all ranks.
type Ledger struct {
	t *Team

	mu    sync.Mutex
	known []uint64 // hash of each unit; 0: no rank has noted it
	by    []uint16 // rank that noted the hash
	fresh []note   // notes that this rank has not sent yet
}

// note is the hash of a unit that this rank has read.
type note struct {
	unit uint32
	sum  uint64
}

const noteBytes = 12

// mostUnits limits the memory of a Ledger to 160 MiB. Larger data sets are compared only at the start.
const mostUnits = 16 << 20

// mostRanks is the number of ranks that a table entry can name.
const mostRanks = 1 << 16

// Ledger returns a Ledger with the hashes that Compare has exchanged. It returns nil if all ranks read the same files,
// or if the data set has too many units.
func (t *Team) Ledger() *Ledger {
	n := t.Content.Len()
	if t.Alone() || n > mostUnits || len(t.members) > mostRanks {
		return nil
	}
	l := &Ledger{t: t, known: make([]uint64, n), by: make([]uint16, n)}
	w := newWalk(n, t.Seed)
	for k, sum := range t.known {
		l.known[w.at(k)], l.by[w.at(k)] = sum, t.by[k]
	}
	return l
}

// Note adds the hash of a unit that this rank has read. It is safe for concurrent use.
func (l *Ledger) Note(unit int, sum uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known[unit] != sum {
		l.fresh = append(l.fresh, note{uint32(unit), sum})
	}
}

// Limits of the notes of one rank in one exchange, and of all ranks together. The limits of the group are 1 MiB and
// 32 MiB.
const (
	mostNotes    = 1 << 16
	mostNotesAll = 2 << 20
)

// Compare exchanges the notes of all ranks. It returns a *DifferenceError on all ranks if two ranks have read different
// contents of a unit. If whole is false, it exchanges one message per rank, and keeps further notes for the next call.
func (l *Ledger) Compare(ctx context.Context, whole bool) error {
	for {
		values, err := l.t.Gather(ctx, "data: notes", l.take(min(mostNotes, mostNotesAll/len(l.t.members))))
		if err != nil {
			return err
		}
		found, unit, more, err := l.merge(values)
		switch {
		case err != nil:
			return err
		case found != nil:
			return l.t.part(ctx, found, unit)
		case !more || !whole:
			return nil
		}
	}
}

// take returns the message of this rank: the number of remaining notes, then at most n notes.
func (l *Ledger) take(n int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, len(l.fresh))
	value := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+n*noteBytes), uint32(len(l.fresh)-n))
	for _, f := range l.fresh[:n] {
		value = binary.LittleEndian.AppendUint32(value, f.unit)
		value = binary.LittleEndian.AppendUint64(value, f.sum)
	}
	l.fresh = append(l.fresh[:0], l.fresh[n:]...)
	return value
}

// merge adds the notes of all ranks to the table, in the order of ranks. The result found is the error for the first
// unit with two different contents, or nil. The result more reports whether a rank has further notes.
func (l *Ledger) merge(values [][]byte) (found *DifferenceError, unit int, more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	differing, compared := 0, 0
	for rank, value := range values {
		if len(value) < 4 || (len(value)-4)%noteBytes != 0 {
			return nil, 0, false, fmt.Errorf("notes of rank %d: got %d bytes, want 4 and a multiple of %d", rank,
				len(value), noteBytes)
		}
		more = more || binary.LittleEndian.Uint32(value) > 0
		for value = value[4:]; len(value) > 0; value = value[noteBytes:] {
			at, sum := int(binary.LittleEndian.Uint32(value)), binary.LittleEndian.Uint64(value[4:])
			if at >= len(l.known) {
				return nil, 0, false, fmt.Errorf("notes of rank %d: got unit %d, want a number below %d", rank, at,
					len(l.known))
			}
			compared++
			switch was := l.known[at]; {
			case was == 0:
				l.known[at], l.by[at] = sum, uint16(rank)
			case was != sum:
				if differing++; found == nil || at < unit {
					unit, found = at, l.differ(rank, at)
				}
			}
		}
	}
	if found != nil {
		found.Differing, found.Compared = differing, compared
	}
	return found, unit, more, nil
}

// differ returns the error for a unit whose content differs between the given rank and the rank in the table.
func (l *Ledger) differ(rank, unit int) *DifferenceError {
	before := int(l.by[unit])
	if l.t.first[before] == l.t.first[rank] {
		return l.t.differ(rank, before, "content, which changed during the run,")
	}
	return l.t.differ(rank, before, "content")
}

// Time slices of Audit. It reads for the duration burst, and then pauses. The pause is rest times as long as the
// reading. Audit therefore uses at most 0.5 % of the time of one core and of the storage. A larger rest disturbs
// training less, but detects differences later.
const (
	burst = 200 * time.Microsecond
	rest  = 200
)

// Audit reads units in the seeded order, which is the same on all machines. It begins with the first unit that Compare
// has not read. It notes their hashes. It skips units that a rank of this machine has noted. It returns after the last
// unit, or when ctx ends. If a lower rank reads the same files, it returns immediately.
func (l *Ledger) Audit(ctx context.Context) {
	if !l.t.reads() {
		return
	}
	summer, err := l.t.Content.NewSummer()
	if err != nil {
		return // the run reports the error when its readers open the data
	}
	defer summer.Close() // read only
	w := newWalk(l.t.Content.Len(), l.t.Seed)
	for k := l.t.passed; k < w.n; {
		began := time.Now()
		for ; k < w.n && time.Since(began) < burst; k++ {
			unit := w.at(k)
			if l.ours(unit) {
				continue
			}
			if sum, _, err := summer.Sum(unit); err == nil { // the run reports unreadable units
				l.Note(unit, sum)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest * time.Since(began)):
		}
	}
}

// ours reports whether this rank, or a rank that reads the same files, has noted the unit.
func (l *Ledger) ours(unit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[unit] != 0 && l.t.first[l.by[unit]] == l.t.first[l.t.Rank]
}
