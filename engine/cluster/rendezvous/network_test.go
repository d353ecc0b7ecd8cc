package rendezvous

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"
)

// network is a listener with its dialer in memory, for tests with simulated time.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newNetwork() *network { return &network{conns: make(chan net.Conn), closed: make(chan struct{})} }

var errNobody = errors.New("connection refused")

func (n *network) Accept() (net.Conn, error) {
	select {
	case conn := <-n.conns:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (n *network) dial(ctx context.Context, _ string) (net.Conn, error) {
	select {
	case <-n.closed:
		return nil, errNobody
	default:
	}
	near, far := net.Pipe()
	select {
	case n.conns <- far:
		return near, nil
	case <-n.closed:
		return nil, errNobody
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// options returns the options of one rank of a group on this network.
func (n *network) options(rank, size int) Options {
	o := Options{Rank: rank, WorldSize: size, LocalRank: -1, Address: "rank0:1", Host: "host", Dial: n.dial,
		Timeout: time.Minute}
	if rank == 0 {
		o.Listener = n
	}
	return o
}

// joined is the result of Join for one rank.
type joined struct {
	group *Group
	err   error
}

// joinAll joins ranks at the same time and waits for all.
func joinAll(ranks []Options) []joined {
	results := make([]joined, len(ranks))
	var all sync.WaitGroup
	for i, options := range ranks {
		all.Go(func() { results[i].group, results[i].err = Join(context.Background(), options) })
	}
	all.Wait()
	return results
}

// joinLater joins a rank on a goroutine of its own.
func joinLater(rank Options) <-chan joined {
	result := make(chan joined, 1)
	go func() { result <- joinAll([]Options{rank})[0] }()
	return result
}

// groupsOf returns the groups of ranks that must all have joined.
func groupsOf(t *testing.T, results []joined) []*Group {
	t.Helper()
	groups := make([]*Group, len(results))
	for rank, result := range results {
		if result.err != nil {
			t.Fatalf("rank %d: %v", rank, result.err)
		}
		groups[rank] = result.group
	}
	return groups
}

// meet joins a whole group and closes it at the end of the test.
func meet(t *testing.T, size int) []*Group {
	t.Helper()
	n := newNetwork()
	ranks := make([]Options, size)
	for rank := range ranks {
		ranks[rank] = n.options(rank, size)
	}
	return groupsOf(t, joinAll(ranks))
}

// overLoopback opens a port of loopback with listen. It returns a function that gives the options of each rank of a
// group.
func overLoopback(t *testing.T, size int, listen func(address string) (net.Listener, error)) func(rank int) Options {
	t.Helper()
	listener, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	token := newToken()
	return func(rank int) Options {
		o := Options{Rank: rank, WorldSize: size, LocalRank: -1, Address: listener.Addr().String(), Token: token,
			Timeout: patience}
		if rank == 0 {
			o.Listener = listener
		}
		return o
	}
}

// plainListen opens a port without the limits of package crowd.
func plainListen(address string) (net.Listener, error) { return net.Listen("tcp", address) }

// together calls do for every group at the same time.
func together(groups []*Group, do func(*Group) error) []error {
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for i, g := range groups {
		all.Go(func() { errs[i] = do(g) })
	}
	all.Wait()
	return errs
}

// mustTogether calls do for every group at the same time, and ends the test if a call fails.
func mustTogether(t *testing.T, groups []*Group, do func(*Group) error) {
	t.Helper()
	for rank, err := range together(groups, do) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// closeAll closes groups, rank 0 last.
func closeAll(groups []*Group) {
	for i := len(groups) - 1; i >= 0; i-- {
		if groups[i] != nil {
			groups[i].Close()
		}
	}
}

// closeJoined closes the groups of the ranks that joined.
func closeJoined(results []joined) {
	for i := len(results) - 1; i >= 0; i-- {
		if results[i].group != nil {
			results[i].group.Close()
		}
	}
}

// recorder stores log messages.
type recorder struct {
	mu       sync.Mutex
	messages []string
}

func (r *recorder) logger() *slog.Logger { return slog.New(slog.NewTextHandler(r, nil)) }

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, string(p))
	return len(p), nil
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.messages)
}
