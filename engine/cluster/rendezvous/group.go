package rendezvous

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Fact is a value that must be the same on every rank: the program's version, the configuration, the model. Values may
// be long texts with many lines; an error shows only the part that differs.
type Fact struct{ Name, Value string }

// Member is the public description of one rank.
type Member struct {
	Rank      int
	LocalRank int // Options.LocalRank, or a number that Join chose among the ranks of the host
	PID       int
	Host      string // equal for ranks that can reach each other through loopback; see HostID
	Name      string // name of the rank's machine, for messages
	Endpoint  string // Options.Endpoint of the rank
}

func (m Member) who() string { return fmt.Sprintf("%s, process %d", m.Name, m.PID) }

// Group is this rank's membership in the process group. Any goroutine may call its methods.
type Group struct {
	options Options
	link    *link
	outbox  *outbox
	server  *server // nil on all ranks except rank 0
	started time.Time
	heard   atomic.Int64 // time of the server's last frame, relative to started
	running sync.WaitGroup

	formed chan struct{} // closed when members is complete
	broken chan struct{} // closed when failure is set
	ended  chan struct{} // closed when the connection has ended

	mu      sync.Mutex
	members []Member
	absent  *MissingError // missing ranks in the server's last report
	calls   map[uint32]*call
	lastID  uint32
	failure error // why the group ended
	refused bool  // the server reported the failure
	bye     bool  // rank 0 has left with Close, or has released this rank
	closed  bool
}

// call waits for the reply to a request.
type call struct {
	values [][]byte
	done   chan error // capacity 1
}

// Rank returns the rank of this process.
func (g *Group) Rank() int { return g.options.Rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.options.WorldSize }

// Members returns all ranks, in order. The caller owns the slice.
func (g *Group) Members() []Member { return slices.Clone(g.members) }

// Broken returns a channel that is closed when a rank is lost or has called Abort.
func (g *Group) Broken() <-chan struct{} { return g.broken }

// Err returns the reason why the group is broken: a *LostError, the same on every rank. It returns nil while the group
// is intact.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failure
}

// Set stores value under key for all ranks. It is an error to set a key again to another value. Keys have 1 to 1024
// bytes, and values have at most MaxValue bytes.
func (g *Group) Set(ctx context.Context, key string, value []byte) error {
	_, err := g.call(ctx, kindSet, key, value)
	return err
}

// Get waits until a rank has set key, and returns its value.
func (g *Group) Get(ctx context.Context, key string) ([]byte, error) {
	values, err := g.call(ctx, kindGet, key, nil)
	if err != nil {
		return nil, err
	}
	if len(values) != 1 {
		return nil, fmt.Errorf("get key %q: got %d values, want 1", key, len(values))
	}
	return values[0], nil
}

// Gather exchanges one value of each rank, at most MaxValue bytes, and returns all values, by rank. It waits until
// every rank has called Gather with the same name. After that, the ranks may use the name again. If ctx ends first,
// Gather returns a *MissingError that names the missing ranks, and withdraws this rank's value.
func (g *Group) Gather(ctx context.Context, name string, value []byte) ([][]byte, error) {
	values, err := g.call(ctx, kindGather, name, value)
	if err == nil && len(values) != g.Size() {
		err = fmt.Errorf("exchange %q: got %d values, want %d", name, len(values), g.Size())
	}
	return values, err
}

// Barrier waits until every rank has called Barrier with the same name. It is a Gather of empty values.
func (g *Group) Barrier(ctx context.Context, name string) error {
	_, err := g.Gather(ctx, name, nil)
	return err
}

// Agree compares facts that became known after Join. All ranks must call it with facts that have the same names. If the
// facts of some ranks differ from those of rank 0, all ranks get the same *DisagreeError about the first of them.
func (g *Group) Agree(ctx context.Context, facts []Fact) error {
	var e encoder
	encodeFacts(&e, facts)
	name := "facts"
	for _, fact := range facts {
		name = cut(name+" "+fact.Name, maxKey/2)
	}
	digest := sha256.Sum256(e.b)
	digests, err := g.Gather(ctx, name, digest[:])
	if err != nil {
		return err
	}
	same := func(other []byte) bool { return string(other) == string(digests[0]) }
	odd := slices.IndexFunc(digests, func(other []byte) bool { return !same(other) })
	if odd < 0 {
		return nil
	}
	if len(e.b) > MaxValue {
		return fmt.Errorf(
			"compare %s: rank %d and rank 0 differ; the values have %d bytes, too many to show the difference", name,
			odd, len(e.b))
	}
	var mine []byte // set only on the two ranks that are compared
	if g.Rank() == 0 || g.Rank() == odd {
		mine = e.b
	}
	all, err := g.Gather(ctx, name+" in full", mine)
	if err != nil {
		return err
	}
	theirs, rank0 := decoder{b: all[odd]}, decoder{b: all[0]}
	found := differences(decodeFacts(&theirs), decodeFacts(&rank0))
	if err := errors.Join(theirs.end(), rank0.end()); err != nil {
		return err
	}
	return &DisagreeError{Rank: odd, Who: g.members[odd].who(), Differences: found}
}

// Abort breaks the group for every rank: all ranks get a *LostError with this rank and the cause.
func (g *Group) Abort(cause error) {
	text := cut(cause.Error(), maxText)
	var e encoder
	e.text(text)
	g.outbox.push(kindAbort, e.b)
	g.fail(&LostError{Rank: g.Rank(), Cause: text})
}

// Close leaves the group without breaking it, and ends the connection. On rank 0 it also frees the port. Close waits at
// most about a second.
func (g *Group) Close() error {
	g.mu.Lock()
	first, leaves := !g.closed, g.failure == nil
	g.closed = true
	for id, c := range g.calls {
		c.done <- ErrClosed
		delete(g.calls, id)
	}
	g.mu.Unlock()
	if first {
		if leaves { // the server of a broken group expects no message
			g.outbox.push(kindLeave, nil)
		}
		g.outbox.close()
		_ = g.link.conn.SetWriteDeadline(time.Now().Add(closingTime)) // fails only if the connection is closed
	}
	<-g.ended
	if first && g.server != nil {
		g.server.close()
	}
	g.running.Wait()
	return nil
}

// call sends a request and waits for its reply.
func (g *Group) call(ctx context.Context, k kind, key string, value []byte) ([][]byte, error) {
	if len(key) == 0 || len(key) > maxKey || len(value) > MaxValue {
		return nil, fmt.Errorf("got a key of %d bytes and a value of %d bytes, want 1 to %d and at most %d bytes",
			len(key), len(value), maxKey, MaxValue)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id, c, err := g.expect()
	if err != nil {
		return nil, err
	}
	var e encoder
	e.u32(id)
	e.text(key)
	if k != kindGet {
		e.bytes(value)
	}
	if !g.outbox.push(k, e.b) {
		g.forget(id)
		return nil, errors.New("send a message to rank 0: rank 0 does not read messages")
	}
	select {
	case err := <-c.done:
		return c.values, err
	case <-ctx.Done():
	}
	return g.cancel(ctx, id, c)
}

// cancel asks the server to withdraw a call and to report the missing ranks. Unless rank 0 is lost, the answer to this
// request or the reply to the call arrives soon.
func (g *Group) cancel(ctx context.Context, id uint32, c *call) ([][]byte, error) {
	defer g.forget(id)
	var e encoder
	e.u32(id)
	g.outbox.push(kindCancel, e.b)
	patience := time.NewTimer(closingTime)
	defer patience.Stop()
	select {
	case err := <-c.done:
		var missing *MissingError
		if errors.As(err, &missing) {
			err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
		return c.values, err
	case <-patience.C:
		return nil, fmt.Errorf("rank 0 does not answer: %w", context.Cause(ctx))
	}
}

func (g *Group) expect() (uint32, *call, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return 0, nil, ErrClosed
	case g.failure != nil:
		return 0, nil, g.failure
	case g.bye:
		return 0, nil, errRank0Left
	}
	g.lastID++
	c := &call{done: make(chan error, 1)}
	g.calls[g.lastID] = c
	return g.lastID, c, nil
}

var errRank0Left = &LostError{Rank: 0, Cause: "it has left the group"}

func (g *Group) forget(id uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.calls, id)
}

// fail breaks the group on this rank.
func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failure != nil || g.closed {
		return
	}
	g.failure = err
	close(g.broken)
	for id, c := range g.calls {
		c.done <- err
		delete(g.calls, id)
	}
}
