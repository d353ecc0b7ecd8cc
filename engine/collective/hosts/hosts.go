package hosts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
)

// Options describe one rank's endpoint.
type Options struct {
	Rank, Size int
	// Hosts lists the ranks of each host. It must contain each rank once and be equal on all ranks. The first rank of a
	// host exchanges data with other hosts.
	Hosts [][]int
	// Within and Spread connect the ranks of this host, which are numbered in the order of Hosts. Both are nil on a
	// host with one rank.
	Within, Spread collective.Communicator
	// Between connects the first ranks of the hosts, which are numbered in the order of Hosts. It is nil on all other
	// ranks.
	Between collective.Communicator
	// RankOf returns the rank of the whole group that an error of an inner communicator concerns, or a negative number
	// if it is unknown. nil: the package derives the rank from the type and the text of the error.
	RankOf func(error) int
}

// ByHost groups ranks by the name of their host. In the result, hosts are sorted by their first rank, and the ranks of
// a host are ascending.
func ByHost(names []string) [][]int {
	var hosts [][]int
	at := map[string]int{}
	for rank, name := range names {
		host, known := at[name]
		if !known {
			host = len(hosts)
			at[name] = host
			hosts = append(hosts, nil)
		}
		hosts[host] = append(hosts[host], rank)
	}
	return hosts
}

// HostOf returns the index of a rank's host and the position of the rank in this host. It returns -1 and -1 if no host
// contains the rank.
func HostOf(hosts [][]int, rank int) (host, place int) {
	for host, ranks := range hosts {
		if place := slices.Index(ranks, rank); place >= 0 {
			return host, place
		}
	}
	return -1, -1
}

// Timeouts returns the time limits of the inner communicators. The parameter limit is the time limit of an operation;
// 0: no limit.
func Timeouts(limit time.Duration) (within, between, spread time.Duration) {
	return limit, 2 * limit, 3 * limit
}

// Communicator is one rank's endpoint; it implements collective.Communicator and collective.Positioner.
type Communicator struct {
	opts    Options
	ranks   []int // ranks of this host
	host    int
	place   int   // index of this rank in ranks
	leaders []int // the first ranks of the hosts
	ordered bool  // the concatenation of Hosts is 0, 1, 2, …
	inner   []inner
	stop    chan struct{} // closed by Close
	looking sync.WaitGroup

	enqueuing sync.Mutex // all inner communicators must get their operations in the same order
	count     uint64     // number of operations enqueued

	mu      sync.Mutex
	kept    map[key]*inFlight
	cached  int
	under   []*inFlight   // operations under way, in order
	ended   uint64        // number of the last operation that has ended
	turn    sync.Cond     // signals that ended or err has changed
	drained chan struct{} // closed when under becomes empty; nil if no goroutine waits
	at      collective.Progress
	err     error
	closing bool
}

// inner is an inner communicator.
type inner struct {
	collective.Communicator
	ranks []int // rank in the whole group of each rank of the inner communicator
}

// New combines inner communicators and takes ownership of them: Close closes them.
func New(opts Options) (*Communicator, error) {
	c := &Communicator{opts: opts, stop: make(chan struct{}), kept: map[key]*inFlight{},
		at: collective.Progress{Rank: opts.Rank}}
	c.turn.L = &c.mu
	if err := c.settle(); err != nil {
		return nil, fmt.Errorf("hosts: rank %d of %d: %w", opts.Rank, opts.Size, err)
	}
	for _, i := range []struct {
		name   string
		comm   collective.Communicator
		wanted bool
		rank   int
		ranks  []int
	}{
		{"Within", opts.Within, len(c.ranks) > 1, c.place, c.ranks},
		{"Between", opts.Between, c.place == 0, c.host, c.leaders},
		{"Spread", opts.Spread, len(c.ranks) > 1, c.place, c.ranks},
	} {
		switch {
		case i.wanted != (i.comm != nil):
			return nil, fmt.Errorf("hosts: rank %d of %d: option %s: communicator is set: got %v, want %v", opts.Rank,
				opts.Size, i.name, i.comm != nil, i.wanted)
		case i.comm == nil:
		case i.comm.Rank() != i.rank || i.comm.Size() != len(i.ranks):
			return nil, fmt.Errorf("hosts: rank %d of %d: %s: got rank %d of %d, want %d of %d", opts.Rank, opts.Size,
				i.name,
				i.comm.Rank(), i.comm.Size(), i.rank, len(i.ranks))
		default:
			c.inner = append(c.inner, inner{i.comm, i.ranks})
		}
	}
	c.looking.Go(func() { queue.Watch(c.stop, c.look) })
	return c, nil
}

// settle finds this rank's host, and checks that every rank occurs once.
func (c *Communicator) settle() error {
	o := c.opts
	if o.Size < 1 || o.Rank < 0 || o.Rank >= o.Size {
		return errors.New("got a rank that does not exist, want a rank from 0 to the number of ranks minus 1")
	}
	seen := make([]bool, o.Size)
	c.ordered = true
	next := 0
	for host, ranks := range o.Hosts {
		if len(ranks) == 0 {
			return fmt.Errorf("host %d: got no ranks", host)
		}
		c.leaders = append(c.leaders, ranks[0])
		for _, rank := range ranks {
			if rank < 0 || rank >= o.Size || seen[rank] {
				return fmt.Errorf("hosts %v: host %d: got rank %d, want every rank below %d once", o.Hosts, host, rank,
					o.Size)
			}
			seen[rank] = true
			c.ordered = c.ordered && rank == next
			next++
		}
	}
	if next != o.Size {
		return fmt.Errorf("hosts %v: got %d ranks, want every rank below %d once", o.Hosts, next, o.Size)
	}
	c.host, c.place = HostOf(o.Hosts, o.Rank)
	c.ranks = o.Hosts[c.host]
	return nil
}

// Rank implements collective.Communicator.
func (c *Communicator) Rank() int { return c.opts.Rank }

// Size implements collective.Communicator.
func (c *Communicator) Size() int { return c.opts.Size }

// Position implements collective.Positioner. Because operations run in stages, Entered may exceed Finished by more than
// one.
func (c *Communicator) Position() collective.Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Enqueue implements collective.Communicator.
func (c *Communicator) Enqueue(op collective.Op) error {
	err := collective.Check(op, c.opts.Size)
	if err == nil {
		err = c.takes(op)
	}
	if err != nil {
		return fmt.Errorf("collective: rank %d: %w", c.opts.Rank, err)
	}
	c.enqueuing.Lock()
	defer c.enqueuing.Unlock()
	f, err := c.begin(op)
	if err != nil {
		return err
	}
	for i, stage := range f.stages {
		if err := c.inner[i].Enqueue(stage); err != nil {
			c.look()
			c.fail(fmt.Errorf("collective: rank %d: %s: %w", c.opts.Rank, collective.Describe(op), err))
			c.end(f)
			return c.Err()
		}
	}
	return nil
}

// takes returns an error if this division into hosts does not support the operation.
func (c *Communicator) takes(op collective.Op) error {
	if op.Parts() != nil && !c.ordered {
		return fmt.Errorf("%s: option Hosts: got %v, want ascending hosts without gaps", collective.Describe(op),
			c.opts.Hosts)
	}
	return nil
}

// begin counts op and returns its in-flight state.
func (c *Communicator) begin(op collective.Op) (*inFlight, error) {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return nil, c.err
	case c.closing:
		return nil, fmt.Errorf("collective: rank %d: %s: %w", c.opts.Rank, collective.Describe(op),
			collective.ErrClosed)
	}
	f := c.inFlightOf(op)
	c.count++
	f.busy, f.number, f.behind = true, c.count, 0
	for _, other := range slices.Backward(c.under) {
		if f.memory.overlaps(other.memory) {
			f.behind = other.number
			break
		}
	}
	c.under = append(c.under, f)
	return f, nil
}

// end records the end of an operation.
func (c *Communicator) end(f *inFlight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.busy = false
	if at := slices.Index(c.under, f); at >= 0 { // f is the first element, unless an operation has failed
		c.under = slices.Delete(c.under, at, at+1)
	}
	c.ended = f.number
	c.turn.Broadcast()
	if c.err == nil {
		c.at.Finished = f.number
	}
	if len(c.under) == 0 && c.drained != nil {
		close(c.drained)
		c.drained = nil
	}
}

// awaitTurn waits until no earlier operation uses the memory of f. Stages of different operations overlap, but the
// caller expects operations on the same memory to run in sequence. awaitTurn cannot deadlock, because the end of an
// operation never waits for the first stage of a later operation.
func (c *Communicator) awaitTurn(f *inFlight) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && c.ended < f.behind {
		c.turn.Wait()
	}
	return c.err
}

// Sync implements collective.Communicator.
func (c *Communicator) Sync(ctx context.Context) error {
	c.mu.Lock()
	var drained chan struct{}
	if len(c.under) > 0 {
		if c.drained == nil {
			c.drained = make(chan struct{})
		}
		drained = c.drained
	}
	c.mu.Unlock()
	if drained != nil {
		select {
		case <-drained:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for _, i := range c.inner { // also waits for the rest of a failed operation, and for the last Done event
		if err := i.Sync(ctx); err != nil && i.Err() == nil {
			return err
		}
	}
	return c.Err()
}

// Err implements collective.Communicator.
func (c *Communicator) Err() error {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Abort implements collective.Communicator.
func (c *Communicator) Abort(cause error) {
	c.fail(fmt.Errorf("collective: rank %d: %w: %w", c.opts.Rank, collective.ErrAborted, cause))
}

// Close implements collective.Communicator. It closes the inner communicators.
func (c *Communicator) Close() error {
	c.look()
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return fmt.Errorf("collective: rank %d: closed twice", c.opts.Rank)
	}
	left, failed := len(c.under), c.err != nil
	c.mu.Unlock()
	var faults []error
	if left > 0 && !failed {
		faults = append(faults, fmt.Errorf("collective: rank %d: %w with %d unfinished operations", c.opts.Rank,
			collective.ErrClosed, left))
		c.fail(faults[0])
	}
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	close(c.stop)
	c.looking.Wait()
	for _, i := range c.inner {
		faults = append(faults, i.Close())
	}
	return errors.Join(faults...)
}
