package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/local"
	"github.com/hetero-train/hetero-train/engine/crowd"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/handshake"
)

// meeting is a Group whose ranks are goroutines.
type meeting struct {
	mu     sync.Mutex
	size   int
	values map[string][][]byte
	ready  map[string]chan struct{}
	turn   []map[string]int // by rank: number of uses of each name
}

func newMeeting(size int) *meeting {
	m := &meeting{size: size, values: map[string][][]byte{}, ready: map[string]chan struct{}{},
		turn: make([]map[string]int, size)}
	for i := range m.turn {
		m.turn[i] = map[string]int{}
	}
	return m
}

type member struct {
	*meeting
	rank int
}

func (m member) Rank() int { return m.rank }
func (m member) Size() int { return m.size }
func (m member) Gather(ctx context.Context, name string, value []byte) ([][]byte, error) {
	m.mu.Lock()
	key := fmt.Sprint(name, m.turn[m.rank][name])
	m.turn[m.rank][name]++
	if m.values[key] == nil {
		m.values[key], m.ready[key] = make([][]byte, m.size), make(chan struct{})
	}
	m.values[key][m.rank] = append([]byte{}, value...)
	ready, values := m.ready[key], m.values[key]
	if !slices.ContainsFunc(values, func(v []byte) bool { return v == nil }) {
		close(ready)
	}
	m.mu.Unlock()
	select {
	case <-ready:
		return values, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// together calls do for all ranks at the same time.
func together(size int, do func(rank int, g Group)) {
	m := newMeeting(size)
	var wait sync.WaitGroup
	for rank := range size {
		wait.Go(func() { do(rank, member{m, rank}) })
	}
	wait.Wait()
}

func TestLinksOfAllPairs(t *testing.T) {
	const size = 3
	got, errs := make([][]Link, size), make([]error, size)
	together(size, func(rank int, g Group) {
		got[rank], errs[rank] = Links(t.Context(), g, LinkOptions{Host: "127.0.0.1", Budget: 30 * time.Second})
	})
	for rank := range size {
		if errs[rank] != nil || !slices.Equal(got[rank], got[0]) {
			t.Fatalf("rank %d: got %v, %v, rank 0 has %v", rank, got[rank], errs[rank], got[0])
		}
	}
	want := [][2]int{{0, 1}, {0, 2}, {1, 2}}
	if len(got[0]) != len(want) {
		t.Fatalf("got %+v", got[0])
	}
	for i, l := range got[0] {
		if l.A != want[i][0] || l.B != want[i][1] || l.Error != "" || !(l.LatencySeconds > 0) || !(l.AToB > 0) ||
			!(l.BToA > 0) || l.Together {
			t.Errorf("got %+v, want figures of %v", l, want[i])
		}
	}
}

func TestARankThatCannotBeReachedIsAnEntry(t *testing.T) {
	const size = 3
	got := make([][]Link, size)
	together(size, func(rank int, g Group) {
		o := LinkOptions{Host: "127.0.0.1", Budget: 30 * time.Second}
		if rank == 2 {
			o.Host = "192.0.2.1" // an address that no machine has (RFC 5737)
		}
		links, err := Links(t.Context(), g, o)
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
		got[rank] = links
	})
	for _, l := range got[0] {
		if broken := l.B == 2; broken != (l.Error != "") ||
			broken && (!strings.Contains(l.Error, "rank 2 cannot listen") || l.AToB != 0) {
			t.Errorf("got %+v", l)
		}
	}
}

func TestAStrangerIsNotServed(t *testing.T) {
	d, err := openDoor(t.Context(), LinkOptions{Host: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	conn, err := net.Dial("tcp", d.address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The test uses a wrong key, because it does not know the random one.
	if _, err := protocol(make([]byte, 32)).Call(conn, []byte{0}); !errors.Is(err, handshake.ErrSecret) {
		t.Errorf("got %v, want a refusal", err)
	}
	if len(d.arrivals) != 0 {
		t.Error("who does not know the key was let in")
	}
}

// doorCounter is a listener that counts its open connections.
type doorCounter struct {
	net.Listener
	open, most atomic.Int64
}

type doorConn struct {
	net.Conn
	close func()
}

func (c *doorConn) Close() error { c.close(); return c.Conn.Close() }

func (l *doorCounter) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.most.Store(max(l.most.Load(), l.open.Add(1)))
	return &doorConn{conn, sync.OnceFunc(func() { l.open.Add(-1) })}, nil
}

// Many unauthenticated connections must not use up the file descriptors of the rank, and must not prevent its partner
// from connecting.
func TestManyStrangersTakeFewPlaces(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &doorCounter{Listener: listener}
	d := &entrance{listener: l, guests: crowd.New(mostGuests), arrivals: make(chan arrival, 1),
		closed: make(chan struct{})}
	go d.accept()
	defer d.close()
	for range 4 * mostGuests {
		conn, err := net.Dial("tcp", d.address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	partner, err := net.Dial("tcp", d.address())
	if err != nil {
		t.Fatal(err)
	}
	defer partner.Close()
	if _, err := protocol(d.key[:]).Call(partner, []byte{7}); err != nil {
		t.Fatal(err)
	}
	if a := <-d.arrivals; a.round != 7 {
		t.Errorf("got round %d, want 7", a.round)
	}
	if n := l.most.Load(); n > mostGuests+1 { // one connection more is open until Enter has closed another one
		t.Errorf("got %d open connections, want at most %d", n, mostGuests+1)
	}
}

// brokenListener is a listener whose first calls of Accept fail. faults is the number of these calls.
type brokenListener struct {
	net.Listener
	faults int
}

func (l *brokenListener) Accept() (net.Conn, error) {
	if l.faults--; l.faults >= 0 {
		return nil, syscall.EMFILE
	}
	return l.Listener.Accept()
}

// If a rank has no free file descriptors, the result of the link must state this.
func TestAFaultOfAcceptIsNamed(t *testing.T) {
	d, err := openDoor(t.Context(), LinkOptions{Host: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	d.close()
	broken := &entrance{listener: &brokenListener{d.listener, 10}, guests: d.guests, arrivals: make(chan arrival),
		closed: d.closed}
	go broken.accept()
	fault := broken.serve(t.Context(), 0, 100*time.Millisecond)
	if !errors.Is(fault, syscall.EMFILE) {
		t.Fatalf("got %v, want the fault of accept", fault)
	}
	mine := [][]Link{{{A: 0, B: 1, Error: "i/o timeout"}, {A: 0, B: 2}}, {{A: 0, B: 1, Error: fault.Error()}},
		{{A: 0, B: 2, Error: "earlier"}}}
	want := []Link{{A: 0, B: 1, Error: "i/o timeout; rank 1: " + fault.Error()}, {A: 0, B: 2}}
	together(len(mine), func(rank int, g Group) {
		if got, err := gatherLinks(t.Context(), g, mine[rank]); err != nil || !slices.Equal(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

func TestAnswersRefuseWhatTheyDoNotKnow(t *testing.T) {
	for name, message := range map[string][]byte{"a request": request('x', 0), "a size": request(send, mostBytes+1),
		"half a request": request(ping, 0)[:4]} {
		here, there := net.Pipe()
		go func() {
			there.Write(message)
			there.Close()
		}()
		if err := answer(here, time.Now().Add(time.Minute)); err == nil {
			t.Errorf("%s: no error", name)
		}
		here.Close()
	}
}

func TestScheduleMeetsEveryPair(t *testing.T) {
	for size := 1; size <= allPairs; size++ {
		for _, budget := range []time.Duration{0, time.Hour} {
			rounds, slot := schedule(size, budget)
			seen := map[[2]int]int{}
			for _, round := range rounds {
				busy := map[int]bool{}
				for _, p := range round {
					seen[p]++
					if p[0] >= p[1] || p[0] < 0 || p[1] >= size || busy[p[0]] || busy[p[1]] {
						t.Errorf("%d ranks: round %v", size, round)
					}
					busy[p[0]], busy[p[1]] = true, true
				}
				if budget > 0 && len(round) != 1 {
					t.Errorf("%d ranks, time enough: round %v, want one pair", size, round)
				}
			}
			if len(seen) != size*(size-1)/2 {
				t.Errorf("%d ranks: got %d pairs", size, len(seen))
			}
			for p, n := range seen {
				if n != 1 {
					t.Errorf("%d ranks: pair %v is measured %d times", size, p, n)
				}
			}
			if size > 1 && (slot < leastSlot || budget > 0 && slot > budget/time.Duration(len(rounds))) {
				t.Errorf("%d ranks, budget %v: %d rounds of %v", size, budget, len(rounds), slot)
			}
		}
	}
}

func TestScheduleOfManyRanksIsARingAndRandomPairs(t *testing.T) {
	for _, size := range []int{17, 18, 1000} {
		rounds, slot := schedule(size, 8*time.Second)
		pairs, degree := map[[2]int]bool{}, make([]int, size)
		for _, round := range rounds {
			busy := map[int]bool{}
			for _, p := range round {
				if p[0] >= p[1] || busy[p[0]] || busy[p[1]] {
					t.Fatalf("%d ranks: round %v", size, round)
				}
				busy[p[0]], busy[p[1]] = true, true
				pairs[p] = true
				degree[p[0]]++
				degree[p[1]]++
			}
		}
		for a := range size {
			b := (a + 1) % size
			if !pairs[[2]int{min(a, b), max(a, b)}] {
				t.Errorf("%d ranks: %d and %d are neighbours, but not measured", size, a, b)
			}
			if degree[a] < 5 || degree[a] > 6 {
				t.Errorf("%d ranks: rank %d has %d partners, want 2 neighbours and about 4 others", size, a, degree[a])
			}
		}
		if len(rounds) > 7 || slot*time.Duration(len(rounds)) > 8*time.Second {
			t.Errorf("%d ranks: %d rounds of %v", size, len(rounds), slot)
		}
	}
}

func TestAllReduceBySize(t *testing.T) {
	const size = 3
	comms, err := local.New(size, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := make([][]AllReduced, size)
	together(size, func(rank int, g Group) {
		dev := reference.New()
		defer checkFreed(t, dev)
		list, err := AllReduce(t.Context(), g, comms[rank], dev.Alloc, 100*time.Millisecond, nil)
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
		got[rank] = list
		if err := comms[rank].Close(); err != nil {
			t.Errorf("rank %d: close: %v", rank, err)
		}
	})
	if len(got[0]) == 0 || got[0][0].Bytes != smallestSum {
		t.Fatalf("got %+v", got[0])
	}
	for rank := range size {
		if !slices.Equal(got[rank], got[0]) {
			t.Errorf("rank %d: got %+v, rank 0 has %+v", rank, got[rank], got[0])
		}
	}
	for i, r := range got[0] {
		if !(r.Seconds > 0) || !(r.BusGBytes > 0) || i > 0 && r.Bytes != 8*got[0][i-1].Bytes {
			t.Errorf("got %+v", r)
		}
	}
}

// stuck is a communicator in which one rank never arrives.
type stuck struct {
	collective.Communicator
	aborted error
}

func (s *stuck) Abort(cause error) { s.aborted = cause; s.Communicator.Abort(cause) }

func TestAnAllReduceThatFailsFreesNoMemoryInUse(t *testing.T) {
	comms, err := local.New(2, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer comms[1].Close()
	dev := reference.New()
	defer checkFreed(t, dev)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	comm := &stuck{Communicator: comms[0]}
	alloc := func(n int64) (device.Buffer, error) {
		b, err := dev.Alloc(n)
		return &watched{Buffer: b, t: t, comm: comm}, err
	}
	if _, err := AllReduce(ctx, member{newMeeting(2), 0}, comm, alloc, time.Second, nil); err == nil ||
		comm.aborted == nil {
		t.Errorf("got %v, aborted by %v, want the end of the context, and the communicator aborted", err, comm.aborted)
	}
	comms[0].Close()
}

// watched is memory that must not be freed while the communicator works.
type watched struct {
	device.Buffer
	t    *testing.T
	comm *stuck
}

func (w *watched) Free() error {
	if w.comm.aborted == nil {
		w.t.Error("memory was freed while an operation was under way")
	}
	return w.Buffer.Free()
}
