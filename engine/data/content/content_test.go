package content

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
)

// meeting is a Gather for several ranks of one process.
type meeting struct {
	mu     sync.Mutex
	size   int
	names  map[string]*round
	rounds int // number of completed exchanges
}

type round struct {
	values [][]byte
	count  int
	full   chan struct{}
}

func newMeeting(size int) *meeting { return &meeting{size: size, names: map[string]*round{}} }

func (m *meeting) gather(rank int) func(context.Context, string, []byte) ([][]byte, error) {
	return func(_ context.Context, name string, value []byte) ([][]byte, error) {
		m.mu.Lock()
		r := m.names[name]
		if r == nil {
			r = &round{values: make([][]byte, m.size), full: make(chan struct{})}
			m.names[name] = r
		}
		r.values[rank] = bytes.Clone(value)
		if r.count++; r.count == m.size {
			delete(m.names, name)
			m.rounds++
			close(r.full)
		}
		m.mu.Unlock()
		<-r.full
		return r.values, nil
	}
}

// stored is a Content in memory. A unit with the text "gone" cannot be read.
type stored struct {
	names, texts []string
	reads        []int
	mu           sync.Mutex
	slow         time.Duration
}

func newStored(n int) *stored {
	s := &stored{reads: make([]int, n)}
	for i := range n {
		s.names, s.texts = append(s.names, fmt.Sprintf("unit %d", i)), append(s.texts, fmt.Sprintf("content of %d", i))
	}
	return s
}

func (s *stored) Len() int                        { return len(s.texts) }
func (s *stored) Name(i int) string               { return s.names[i] }
func (s *stored) Listed(i int) uint64             { return data.SumOf([]byte(s.names[i])) }
func (s *stored) NewSummer() (data.Summer, error) { return s, nil }
func (s *stored) Close() error                    { return nil }

func (s *stored) Sum(i int) (uint64, int, error) {
	s.mu.Lock()
	s.reads[i]++
	s.mu.Unlock()
	if s.slow > 0 {
		time.Sleep(s.slow)
	}
	if s.texts[i] == "gone" {
		return 0, 0, errors.New("no such file")
	}
	return data.SumOf([]byte(s.texts[i])), len(s.texts[i]), nil
}

func (s *stored) total() (n int) {
	for _, r := range s.reads {
		n += r
	}
	return n
}

// together runs do on each rank. Rank k has the data contents[k] and the place places[k]. If places is nil, all places
// differ. The test fails unless all ranks return errors with the same text.
func together(t *testing.T, contents []*stored, places []int, do func(team *Team) error) error {
	t.Helper()
	m, errs := newMeeting(len(contents)), make([]error, len(contents))
	var wait sync.WaitGroup
	for rank := range contents {
		place := rank
		if places != nil {
			place = places[rank]
		}
		wait.Go(func() {
			team, err := Meet(t.Context(),
				Options{Content: contents[rank], Rank: rank, Seed: 7, Place: fmt.Sprint(place),
					Host: fmt.Sprintf("node%d", place), Path: fmt.Sprintf("/data%d", place), Gather: m.gather(rank)})
			if err == nil {
				err = do(team)
			}
			errs[rank] = err
		})
	}
	wait.Wait()
	for rank, err := range errs {
		if fmt.Sprint(err) != fmt.Sprint(errs[0]) {
			t.Errorf("rank %d got %v, rank 0 got %v", rank, err, errs[0])
		}
	}
	return errs[0]
}

func start(team *Team) error {
	_, err := team.Compare(context.Background())
	return err
}

// Each rank must get the decoders of all ranks, even if all ranks read the same files.
func TestDecodersOfAllRanksAreKnown(t *testing.T) {
	m, want := newMeeting(2), []string{"libwebp 1.2.4", "Go"}
	var wait sync.WaitGroup
	for rank := range want {
		wait.Go(func() {
			team, err := Meet(t.Context(), Options{Content: &stored{}, Rank: rank, Place: "same", Decoder: want[rank],
				Gather: m.gather(rank)})
			if err != nil || !slices.Equal(team.Decoders(), want) {
				t.Errorf("rank %d: got %v, want %q", rank, err, want)
			}
		})
	}
	wait.Wait()
}

func check(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !errors.As(err, new(*DifferenceError)) {
		t.Errorf("got %v, want a difference", err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want %q in it", err, part)
		}
	}
}

func TestTheStartNamesTheFirstDifference(t *testing.T) {
	for _, c := range []struct {
		name   string
		units  int
		change func(s *stored)
		want   []string
	}{
		{"one content", 600, func(s *stored) { s.texts[77] = "other" },
			[]string{`the content of "unit 77" differs (1 of 600 compared units differ)`}},
		{"all contents", 600, func(s *stored) {
			for i := range s.texts {
				s.texts[i] += "."
			}
		}, []string{`the content of "unit 0"`, "600 of 600"}},
		{"contents of each other", 600, func(s *stored) { s.texts[3], s.texts[500] = s.texts[500], s.texts[3] },
			[]string{`"unit 3"`, "2 of 600"}},
		{"name in a large list", 200_000, func(s *stored) { s.names[123_456] = "other" },
			[]string{`name, label or size of "other", on rank 0 "unit 123456", differs`}},
		{"last name", 1025, func(s *stored) { s.names[1024] = "other" },
			[]string{`name, label or size of "other", on rank 0 "unit 1024", differs`}},
		{"number", 20, func(s *stored) { s.texts = s.texts[:19] }, []string{"number of units, 19 and 20, differs"}},
		{"one unit", 1, func(s *stored) { s.texts[0] = "other" }, []string{`"unit 0"`, "1 of 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			same, odd := newStored(c.units), newStored(c.units)
			c.change(odd)
			third := &stored{names: same.names, texts: same.texts, reads: make([]int, c.units)}
			err := together(t, []*stored{same, third, odd}, nil, start)
			check(t, err, append(c.want, `data.path: rank 2 (node2, "/data2") and rank 0 (node0, "/data0")`)...)
			if strings.HasPrefix(c.name, "name") {
				return
			}
			if err := together(t, []*stored{same, third}, nil, start); err != nil {
				t.Errorf("equal data: %v", err)
			}
		})
	}
}

func TestOnlyTheFirstRankOfAPlaceReads(t *testing.T) {
	contents := []*stored{newStored(50), newStored(50), newStored(50), newStored(50)}
	contents[3].texts[9] = "other"
	err := together(t, contents, []int{0, 0, 1, 1}, start)
	if err != nil { // ranks 2 and 3 have the same place, so they have the same files
		t.Error(err)
	}
	for rank, want := range []int{50, 0, 50, 0} {
		if got := contents[rank].total(); got != want {
			t.Errorf("rank %d read %d units, want %d", rank, got, want)
		}
	}
}

func TestRanksAtOnePlaceCompareNothing(t *testing.T) {
	contents := []*stored{newStored(50), newStored(50)}
	if err := together(t, contents, []int{0, 0}, func(team *Team) error {
		if !team.Alone() || team.Ledger() != nil {
			t.Error("ranks at one place have a ledger")
		}
		return start(team)
	}); err != nil || contents[0].total()+contents[1].total() != 0 {
		t.Errorf("got %v, and %d reads, want none", err, contents[0].total()+contents[1].total())
	}
}

func TestTheStartIsLimited(t *testing.T) {
	many := []*stored{newStored(5000), newStored(5000)}
	large := []*stored{newStored(300), newStored(300)}
	for _, s := range large {
		for i := range s.texts {
			s.texts[i] = strings.Repeat("x", 1<<19) // 128 units have 64 MiB
		}
	}
	for _, c := range []struct {
		contents []*stored
		want     int
	}{{many, StartUnits}, {large, 128}} {
		if err := together(t, c.contents, nil, func(team *Team) error {
			n, err := team.Compare(context.Background())
			if n != c.want {
				t.Errorf("compared %d units, want %d", n, c.want)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}

// If one machine cannot read a unit, this must not count as a difference. The run reports the fault when it reads the
// unit.
func TestAnUnreadableUnitIsNotADifference(t *testing.T) {
	contents := []*stored{newStored(10), newStored(10), newStored(10)}
	contents[0].texts[4] = "gone"
	if err := together(t, contents, nil, start); err != nil {
		t.Error(err)
	}
	for gone, want := range map[int]int{1: 10, 2: 9} { // gone is the number of machines that cannot read unit 4
		contents[1].texts[4] = map[bool]string{true: "gone", false: contents[2].texts[4]}[gone == 2]
		if err := together(t, contents, nil, func(team *Team) error {
			if got, err := team.Compare(context.Background()); got != want || err != nil {
				t.Errorf("%d machines cannot read a unit: got %d compared units, %v, want %d", gone, got, err, want)
			}
			if l := team.Ledger(); l.by[4] != uint16(gone) {
				t.Errorf("unit 4 was read by rank %d, want %d", l.by[4], gone)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	contents[1].texts[4] = contents[2].texts[4]
	contents[2].texts[4] = "other"
	check(t, together(t, contents, nil, start), `rank 2 (node2, "/data2") and rank 1`, `"unit 4"`)
}

// uncompared returns a unit that the comparison at the start does not read.
func uncompared(n int) int { return newWalk(n, 7).at(n - 1) }

func TestTheLedgerComparesUnitsThatTwoRanksRead(t *testing.T) {
	const n = 200_000
	unit := uncompared(n)
	one, other := newStored(n), newStored(n)
	other.texts[unit] = "other"
	epoch := func(even int) func(team *Team) error {
		return func(team *Team) error {
			if err := start(team); err != nil {
				return err
			}
			l := team.Ledger()
			for pass := range 2 { // in the second pass, each rank reads the units of the other rank
				for i := range n {
					if (i+team.Rank+pass)%2 == even {
						sum, _, _ := team.Content.(*stored).Sum(i)
						l.Note(i, sum)
					}
				}
				if err := l.Compare(context.Background(), true); err != nil {
					return fmt.Errorf("pass %d: %w", pass, err)
				}
				if len(l.fresh) > 0 {
					t.Errorf("%d notes remain", len(l.fresh))
				}
			}
			return nil
		}
	}
	err := together(t, []*stored{one, other}, nil, epoch(0))
	check(t, err, "pass 1: ", fmt.Sprintf("the content of %q differs (1 of ", one.names[unit]))
	if err := together(t, []*stored{one, newStored(n)}, nil, epoch(0)); err != nil {
		t.Errorf("equal data: %v", err)
	}
}

func TestAChangeDuringTheRunIsADifference(t *testing.T) {
	const n = 2000
	unit := uncompared(n)
	err := together(t, []*stored{newStored(n), newStored(n)}, nil, func(team *Team) error {
		if err := start(team); err != nil {
			return err
		}
		l := team.Ledger()
		for _, sum := range []uint64{1, 2} {
			if team.Rank == 1 {
				l.Note(unit, sum)
			}
			if err := l.Compare(context.Background(), false); err != nil {
				return err
			}
		}
		return nil
	})
	check(t, err, "rank 1 (node1", "changed during the run")
}

// The audit must find a difference in a unit that only one machine trains on. It must not take more than its fraction
// of the time.
func TestTheAuditReadsTheRest(t *testing.T) {
	const n = 1200
	unit := uncompared(n)
	contents := []*stored{newStored(n), newStored(n), newStored(n)}
	contents[1].texts[unit] = "other"
	synctest.Test(t, func(t *testing.T) {
		for _, s := range contents {
			s.slow = time.Millisecond
		}
		err := together(t, contents, []int{0, 1, 1}, func(team *Team) error {
			if err := start(team); err != nil {
				return err
			}
			l := team.Ledger()
			if team.Rank == 0 { // all units except unit-1 and those that were compared at the start
				for i := range n {
					if i != unit-1 {
						sum := data.SumOf([]byte(team.Content.(*stored).texts[i]))
						l.Note(i, sum)
					}
				}
			}
			if err := l.Compare(context.Background(), true); err != nil {
				return err
			}
			began := time.Now()
			l.Audit(context.Background())
			took := time.Since(began)
			read := map[int]int{0: 0, 1: n - StartUnits, 2: 0}[team.Rank]
			if want := time.Duration(read) * (1 + rest) * time.Millisecond; took < want || took > want+2*time.Second {
				t.Errorf("rank %d: the audit took %v, want %v", team.Rank, took, want)
			}
			return l.Compare(context.Background(), true)
		})
		check(t, err, fmt.Sprintf("the content of %q differs", contents[0].names[unit]))
	})
	if contents[1].reads[unit] != 1 || contents[2].total() != 0 {
		t.Errorf("got %d reads of the unit, and %d reads of rank 2, want 1 and 0", contents[1].reads[unit],
			contents[2].total())
	}
}

func TestTheAuditEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		contents := []*stored{newStored(9000), newStored(9000)}
		for _, s := range contents {
			s.slow = time.Second
		}
		time.AfterFunc(2*time.Hour, cancel)
		if err := together(t, contents, nil, func(team *Team) error {
			if err := start(team); err != nil {
				return err
			}
			team.Ledger().Audit(ctx)
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

func TestTheWalkVisitsEachUnitOnce(t *testing.T) {
	sizes := []int{1, 2, 3, 4, 5, 600, 1024, 65_536, 99_991, 100_000}
	for n := 6; n < 200; n++ {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		for _, seed := range []uint64{0, 1, 1 << 63, 1<<64 - 1} {
			w, seen := newWalk(n, seed), make([]bool, n)
			for k := range n {
				if i := w.at(k); i < 0 || i >= n || seen[i] {
					t.Fatalf("%d units, seed %d: position %d is unit %d, visited %v", n, seed, k, i, i >= 0 && i < n &&
						seen[i])
				} else {
					seen[i] = true
				}
			}
		}
	}
}

// The first 1,024 units of the walk must be spread evenly. Each of 100 equal parts of the data must contain about 10 of
// them.
func TestTheWalkIsSpreadEvenly(t *testing.T) {
	const n, parts = 100_000, 100
	w := newWalk(n, 3)
	var visits [parts]int
	for k := range StartUnits {
		visits[w.at(k)*parts/n]++
	}
	for part, v := range visits {
		if v < 8 || v > 13 {
			t.Errorf("part %d: got %d visits, want about %d", part, v, StartUnits/parts)
		}
	}
}

func TestForeignMessagesAreRefused(t *testing.T) {
	l := &Ledger{t: &Team{members: make([]member, 1), first: []int{0}}, known: make([]uint64, 4), by: make([]uint16, 4)}
	for _, value := range [][]byte{nil, {1, 2, 3}, make([]byte, 4+noteBytes-1),
		append(make([]byte, 4), bytes.Repeat([]byte{9}, noteBytes)...)} {
		if _, _, _, err := l.merge([][]byte{value}); err == nil {
			t.Errorf("%d bytes: no error", len(value))
		}
	}
}

// The error must name the configuration key whose paths differ.
func TestADifferenceNamesTheKeyOfThePathThatDiffers(t *testing.T) {
	for want, e := range map[string]DifferenceError{
		`data.path: rank 1 (, "/a") and rank 0 (, "/b")`: {Path: "/a", OtherPath: "/b", Val: "/v",
			OtherVal: "/v"},
		`data.path: rank 1 (, "/a") and rank 0 (, "/a")`: {Path: "/a", OtherPath: "/a"},
		`data.val_path: rank 1 (, "/v") and rank 0 (, "/w")`: {Path: "/a", OtherPath: "/a", Val: "/v",
			OtherVal: "/w"},
		`data.path or data.val_path: rank 1 (, "/a") and rank 0 (, "/b")`: {Path: "/a", OtherPath: "/b", Val: "/v",
			OtherVal: "/w"},
	} {
		if e.Rank = 1; !strings.HasPrefix(e.Error(), want) {
			t.Errorf("got %s, want %s", e.Error(), want)
		}
	}
}
