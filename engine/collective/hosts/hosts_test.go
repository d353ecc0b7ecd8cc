package hosts

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/collective/local"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// group contains ranks of this process. The hosts are simulated.
type group struct {
	hosts [][]int
	comms []*Communicator
	inner [][]*local.Communicator // inner communicators of each rank
}

func newGroup(t conformance.TB, hosts [][]int, limit time.Duration) *group {
	t.Helper()
	size := 0
	for _, ranks := range hosts {
		size += len(ranks)
	}
	g := &group{hosts: hosts, comms: make([]*Communicator, size), inner: make([][]*local.Communicator, size)}
	within, between, spread := Timeouts(limit)
	join := func(ranks []int, limit time.Duration, set func(rank int, c *local.Communicator)) {
		comms, err := local.New(len(ranks), local.Options{Timeout: limit})
		if err != nil {
			t.Fatal(err)
		}
		for i, rank := range ranks {
			set(rank, comms[i])
			g.inner[rank] = append(g.inner[rank], comms[i])
		}
	}
	opts := make([]Options, size)
	var leaders []int
	for _, ranks := range hosts {
		leaders = append(leaders, ranks[0])
		if len(ranks) > 1 {
			join(ranks, within, func(rank int, c *local.Communicator) { opts[rank].Within = c })
			join(ranks, spread, func(rank int, c *local.Communicator) { opts[rank].Spread = c })
		}
	}
	join(leaders, between, func(rank int, c *local.Communicator) { opts[rank].Between = c })
	for rank := range opts {
		opts[rank].Rank, opts[rank].Size, opts[rank].Hosts = rank, size, hosts
		var err error
		if g.comms[rank], err = New(opts[rank]); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func (g *group) kill(rank int) {
	for _, c := range g.inner[rank] {
		c.Die()
	}
}

// close closes the group. Only ranks that have failed may return errors.
func (g *group) close(t *testing.T) {
	t.Helper()
	for rank, c := range g.comms {
		if err := c.Close(); err != nil && c.Err() == nil {
			t.Errorf("rank %d: close: %v", rank, err)
		}
	}
}

// each runs f concurrently for every rank.
func (g *group) each(f func(rank int, c *Communicator)) {
	var wg sync.WaitGroup
	for rank, c := range g.comms {
		wg.Go(func() { f(rank, c) })
	}
	wg.Wait()
}

// dealt divides size ranks among hosts. next returns the number of ranks of a host.
func dealt(size int, next func(host int) int) (hosts [][]int) {
	for rank := 0; rank < size; {
		var ranks []int
		for range min(next(len(hosts)), size-rank) {
			ranks = append(ranks, rank)
			rank++
		}
		hosts = append(hosts, ranks)
	}
	return hosts
}

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name string
		next func(host int) int
	}{
		{"two ranks a host", func(int) int { return 2 }},
		{"hosts of one, two and three ranks", func(host int) int { return host%3 + 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			suite := conformance.Go(t)
			if testing.Short() {
				suite = conformance.Brief(suite, "-short: takes seconds")
			}
			collectivetest.Run(suite, func(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
				t.Helper()
				hosts := dealt(size, c.next)
				g := newGroup(t, hosts, limit)
				group := collectivetest.GroupOf(g.comms, g.kill)
				group.Hosts = hosts
				return group
			})
		})
	}
}

func memory(t testing.TB, values ...float32) device.Region {
	t.Helper()
	b, err := reference.New().Alloc(int64(4 * len(values)))
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		binary.LittleEndian.PutUint32(b.Host()[4*i:], math.Float32bits(v))
	}
	return device.Whole(b)
}

func value(r device.Region, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(r.Host()[4*i:]))
}

func synced(t *testing.T, c *Communicator) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return c.Sync(ctx)
}

// In f32, 2^24 + 1 is rounded to 2^24, so the sum depends on the order of addition.
func TestSumsWithinHostsFirst(t *testing.T) {
	const big = 1 << 24
	in := []float32{big, 1, 1, 0}
	for _, c := range []struct {
		hosts [][]int
		want  float32
	}{
		{[][]int{{0}, {1}, {2}, {3}}, big},   // ((big + 1) + 1) + 0
		{[][]int{{0}, {1, 2}, {3}}, big + 2}, // big + (1 + 1) + 0
		{[][]int{{0, 1}, {2, 3}}, big},       // (big + 1) + (1 + 0)
		{[][]int{{3, 0}, {1, 2}}, big + 2},   // the ranks of a host need not be adjacent
		{[][]int{{1, 2, 0}, {3}}, big + 2},   // (1 + 1) + big
		{[][]int{{0, 1, 2, 3}}, big},         // one host
	} {
		g := newGroup(t, c.hosts, 0)
		out := make([]device.Region, len(in))
		g.each(func(rank int, comm *Communicator) {
			out[rank] = memory(t, in[rank])
			if err := comm.Enqueue(collective.AllReduce{Buffer: out[rank], DType: tensor.F32}); err != nil {
				t.Error(err)
			}
			if err := synced(t, comm); err != nil {
				t.Error(err)
			}
		})
		for rank, r := range out {
			if got := value(r, 0); got != c.want {
				t.Errorf("hosts %v: rank %d: got %v, want %v", c.hosts, rank, got, c.want)
			}
		}
		g.close(t)
	}
}

func TestPartsNeedHostsInTheOrderOfRanks(t *testing.T) {
	g := newGroup(t, [][]int{{0, 2}, {1}}, 0)
	defer g.close(t)
	counts := []int64{1, 1, 1}
	for _, op := range []collective.Op{
		collective.AllGather{Name: "parts", Buffer: memory(t, 1, 2, 3), DType: tensor.F32, Counts: counts},
		collective.ReduceScatter{Name: "parts", Buffer: memory(t, 1, 2, 3), DType: tensor.F32, Counts: counts},
	} {
		if err := g.comms[0].Enqueue(op); err == nil {
			t.Errorf("%s: no error", collective.Describe(op))
		}
	}
	out := make([]device.Region, 3)
	g.each(func(rank int, c *Communicator) {
		out[rank] = memory(t, float32(rank))
		if err := c.Enqueue(collective.Broadcast{Buffer: out[rank], Root: 2}); err != nil {
			t.Error(err)
		}
		if err := synced(t, c); err != nil {
			t.Error(err)
		}
	})
	for rank, r := range out {
		if value(r, 0) != 2 {
			t.Errorf("broadcast from rank 2: rank %d has %v", rank, value(r, 0))
		}
	}
}

// While an operation waits for another host, the ranks of this host must complete their part of the next operation.
func TestStagesOverlap(t *testing.T) {
	g := newGroup(t, [][]int{{0, 1}, {2, 3}}, 0)
	defer g.close(t)
	buffers := make([][]device.Region, 4)
	enqueue := func(rank int) {
		for i := range 3 {
			buffers[rank] = append(buffers[rank], memory(t, float32(rank), float32(i)))
			if err := g.comms[rank].Enqueue(collective.AllReduce{Name: fmt.Sprint(i), Buffer: buffers[rank][i],
				DType: tensor.F32}); err != nil {
				t.Fatal(err)
			}
		}
	}
	enqueue(0)
	enqueue(1)
	within, between := g.inner[0][0], g.inner[0][2]
	for start := time.Now(); within.Position().Finished < 3 &&
		time.Since(start) < time.Minute; time.Sleep(time.Millisecond) {
	}
	if got := within.Position().Finished; got != 3 {
		t.Errorf("within the host: got %d operations finished, want 3", got)
	}
	if got := between.Position().Finished; got != 0 {
		t.Errorf("between hosts: got %d operations finished without the other host, want 0", got)
	}
	enqueue(2)
	enqueue(3)
	g.each(func(rank int, c *Communicator) {
		if err := synced(t, c); err != nil {
			t.Error(err)
		}
		for i, m := range buffers[rank] {
			if value(m, 0) != 6 || value(m, 1) != float32(4*i) {
				t.Errorf("rank %d, operation %d: got %v, %v, want 6, %d", rank, i, value(m, 0), value(m, 1), 4*i)
			}
		}
	})
}

// An operation must see the result of the previous one, even if their buffers overlap only partly.
func TestSameMemoryInOrder(t *testing.T) {
	g := newGroup(t, [][]int{{0}, {1, 2}, {3}}, 0)
	defer g.close(t)
	g.each(func(rank int, c *Communicator) {
		m := memory(t, 1, 1, 1)
		front := device.Region{Buffer: m.Buffer, Bytes: 8}
		back := device.Region{Buffer: m.Buffer, Offset: 4, Bytes: 8}
		for range 3 {
			for _, r := range []device.Region{front, back} {
				if err := c.Enqueue(collective.AllReduce{Buffer: r, DType: tensor.F32}); err != nil {
					t.Error(err)
				}
			}
		}
		if err := synced(t, c); err != nil {
			t.Error(err)
		}
		if value(m, 0) != 64 || value(m, 1) != 4096 || value(m, 2) != 64 {
			t.Errorf("rank %d: got %v, %v, %v, want 64, 4096, 64", rank, value(m, 0), value(m, 1), value(m, 2))
		}
	})
}

// A rank dies, during an operation or between two operations. Its host has one, two or three ranks.
func TestEveryDeathIsNamed(t *testing.T) {
	hosts := [][]int{{0}, {1, 2}, {3, 4, 5}}
	for dead := range 6 {
		for _, busy := range []bool{true, false} {
			g := newGroup(t, hosts, 0)
			g.each(func(rank int, c *Communicator) {
				if rank == dead {
					time.Sleep(10 * time.Millisecond)
					g.kill(dead)
					return
				}
				if busy {
					reduce := collective.AllReduce{Name: "one dies", Buffer: memory(t, 1), DType: tensor.F32}
					c.Enqueue(reduce) //nolint:errcheck // the group may already have failed
				}
				for start := time.Now(); c.Err() == nil &&
					time.Since(start) < time.Minute; time.Sleep(time.Millisecond) {
				}
				var peer *collective.PeerError
				if err := c.Err(); !errors.As(err, &peer) || peer.Rank != dead || !errors.Is(err, collective.ErrDied) {
					t.Errorf("rank %d: got %v, want that rank %d died", rank, err, dead)
				}
			})
			g.close(t)
		}
	}
}

// The error must name the missing rank. It must not name the first rank of the host, which also waits for the missing
// rank.
func TestLateRankIsNamed(t *testing.T) {
	for _, late := range []int{2, 3, 5} {
		for _, limit := range []time.Duration{200 * time.Millisecond, 2 * time.Second, time.Minute} {
			// a busy machine can also delay another rank; the test then uses a longer time limit
			g := newGroup(t, [][]int{{0}, {1, 2}, {3, 4, 5}}, limit)
			var others atomic.Bool
			g.each(func(rank int, c *Communicator) {
				if rank == late {
					return
				}
				if err := c.Enqueue(collective.Barrier{Name: "step"}); err != nil {
					var e *collective.TimeoutError
					if others.Store(true); !errors.As(err, &e) || limit == time.Minute {
						t.Error(err)
					}
					return
				}
				var e *collective.TimeoutError
				err := synced(t, c)
				switch {
				case !errors.As(err, &e) || e.Number != 1 || e.Op != `barrier "step"`:
					t.Errorf("rank %d: got %v, want that rank %d has not entered", rank, err, late)
				case len(e.Missing) != 1 || e.Missing[0] != late:
					if others.Store(true); limit == time.Minute {
						t.Errorf("rank %d: got %v, want that only rank %d has not entered", rank, err, late)
					}
				}
			})
			g.close(t)
			if !others.Load() {
				break
			}
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	g := newGroup(t, [][]int{{0}, {1, 2}}, 0)
	defer g.close(t)
	ops := make([][]collective.Op, 3)
	done := make([]link, 3) // links are events that allocate nothing
	for rank := range ops {
		m := memory(t, 1, 2, 3, 4, 5, 6)
		done[rank].prepare(g.comms[rank])
		ops[rank] = []collective.Op{
			collective.AllReduce{Name: "sum", Buffer: m, DType: tensor.F32, Reduce: collective.Max},
			collective.AllGather{Name: "parts", Buffer: m, DType: tensor.F32, Counts: []int64{1, 2, 3}},
			collective.ReduceScatter{Name: "parts", Buffer: m, DType: tensor.F32, Reduce: collective.Min,
				Counts: []int64{1, 2, 3}},
			collective.Broadcast{Name: "bytes", Buffer: m, Root: 2},
			collective.Barrier{Name: "end", Done: &done[rank]},
		}
	}
	if allocs := testing.AllocsPerRun(20, func() {
		for rank, list := range ops {
			if err := done[rank].Reset(); err != nil {
				t.Fatal(err)
			}
			for _, op := range list {
				if err := g.comms[rank].Enqueue(op); err != nil {
					t.Fatal(err)
				}
			}
		}
		for rank := range done {
			if err := done[rank].WaitHost(time.Minute); err != nil {
				t.Fatal(err)
			}
		}
	}); allocs > 0 {
		t.Errorf("got %g allocations a step of all ranks, want 0", allocs)
	}
}

// After an operation, the caller may change the counts of its value, and use the value again.
func TestCountsMayChange(t *testing.T) {
	g := newGroup(t, [][]int{{0, 1}, {2}}, 0)
	defer g.close(t)
	g.each(func(rank int, c *Communicator) {
		m, counts := memory(t, 0, 0, 0, 0), make([]int64, 3)
		var op collective.Op = collective.AllGather{Buffer: m, DType: tensor.F32, Counts: counts}
		for _, now := range [][]int64{{1, 1, 2}, {0, 3, 1}, {1, 1, 2}} {
			copy(counts, now)
			clear(m.Host())
			var want []float32
			for owner, n := range now {
				for range n {
					if owner == rank {
						binary.LittleEndian.PutUint32(m.Host()[4*len(want):], math.Float32bits(float32(owner+1)))
					}
					want = append(want, float32(owner+1))
				}
			}
			if err := errors.Join(c.Enqueue(op), synced(t, c)); err != nil {
				t.Error(err)
				return
			}
			if !bytes.Equal(m.Host(), memory(t, want...).Host()) {
				t.Errorf("rank %d, counts %v: wrong values", rank, now)
			}
		}
	})
}

func TestWrongDivisionsAreRefused(t *testing.T) {
	one, err := local.New(1, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer one[0].Close()
	two, err := local.New(2, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer two[0].Close()
	defer two[1].Close()
	for name, opts := range map[string]Options{
		"no ranks":              {Between: one[0]},
		"a rank beyond":         {Rank: 1, Size: 1, Hosts: [][]int{{0}}, Between: one[0]},
		"a host without ranks":  {Size: 1, Hosts: [][]int{{}, {0}}, Between: one[0]},
		"a rank twice":          {Size: 2, Hosts: [][]int{{0}, {0}}, Between: two[0]},
		"a rank left out":       {Size: 2, Hosts: [][]int{{0}}, Between: one[0]},
		"nothing between":       {Size: 2, Hosts: [][]int{{0}, {1}}},
		"too few between":       {Size: 2, Hosts: [][]int{{0}, {1}}, Between: one[0]},
		"another rank between":  {Size: 2, Hosts: [][]int{{0}, {1}}, Between: two[1]},
		"nothing within":        {Size: 2, Hosts: [][]int{{0, 1}}, Between: one[0]},
		"one within, no spread": {Size: 2, Hosts: [][]int{{0, 1}}, Between: one[0], Within: two[0]},
		"between on a follower": {Rank: 1, Size: 2, Hosts: [][]int{{0, 1}}, Between: one[0], Within: two[1],
			Spread: two[1]},
	} {
		if _, err := New(opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestByHost(t *testing.T) {
	got := ByHost([]string{"b", "a", "b", "c", "a"})
	if want := [][]int{{0, 2}, {1, 4}, {3}}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if host, place := HostOf(got, 4); host != 1 || place != 1 {
		t.Errorf("rank 4: got host %d, place %d, want 1, 1", host, place)
	}
}

func TestNoticeSurvivesAsText(t *testing.T) {
	for _, n := range []notice{
		{rank: 5, kind: "died"},
		{rank: 0, kind: "failed", text: "disk full:\nno space"},
		{rank: 2, kind: "late", number: 17, limit: 1500 * time.Millisecond, missing: []int{3, 12}, behind: []int{1},
			text: `all_reduce "bucket 3"`},
	} {
		got, ok := parseNotice(fmt.Sprintf("rank 1: collective: rank 1: %v: %v", collective.ErrAborted, n))
		if !ok || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", n) {
			t.Errorf("got %+v, %v, want %+v", got, ok, n)
		}
	}
	passedOn := fmt.Sprintf("collective: rank 2: %v: %v", collective.ErrAborted, notice{rank: 3, kind: "died"})
	if rank, cause, ok := Origin(passedOn); rank != 3 || cause != collective.ErrDied.Error() || !ok {
		t.Errorf("%q: got rank %d, %q, %v, want rank 3, which died", passedOn, rank, cause, ok)
	}
	if _, ok := parseNotice("all well"); ok {
		t.Error("found a notice where there is none")
	}
}
