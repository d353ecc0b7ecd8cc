package local

import (
	"fmt"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
)

// Options of a group.
type Options struct {
	Timeout time.Duration // time limit of an operation, counted from the time at which a rank enters it; 0: no limit
	Model   Model
}

// Communicator is one rank's endpoint; it implements collective.Communicator, collective.Watcher and
// collective.Positioner.
type Communicator struct {
	*queue.Queue
	member *member
}

// New returns the communicators of a group of size ranks.
func New(size int, opts Options) ([]*Communicator, error) {
	if size < 1 {
		return nil, fmt.Errorf("local: group: got %d ranks, want at least 1", size)
	}
	g := &group{opts: opts, members: make([]*member, size), hosts: make([][]byte, size)}
	for rank := range g.members {
		g.members[rank] = &member{group: g, rank: rank, wake: make(chan struct{}, 1)}
	}
	comms := make([]*Communicator, size)
	for rank, m := range g.members {
		m.queue = queue.New(m, queue.Options{Rank: rank, Size: size})
		comms[rank] = &Communicator{Queue: m.queue, member: m}
	}
	return comms, nil
}

// Die simulates the death of the rank's process: the rank stops without notifying other ranks. Its own communicator
// fails with ErrDied and must still be closed.
func (c *Communicator) Die() { c.member.queue.Fail(collective.ErrDied) }

// Progress implements collective.Watcher.
func (c *Communicator) Progress() []collective.Progress {
	g := c.member.group
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.progress()
}

// group is the state that all ranks share.
type group struct {
	opts    Options
	members []*member

	mu      sync.Mutex
	arrived int           // number of ranks that wait in the current operation
	busy    bool          // the last rank to arrive is performing the operation, on the memory of all ranks
	end     time.Duration // modelled end of the last operation
	broken  *failure
	leaver  *member  // the first rank to close its communicator
	hosts   [][]byte // buffers of the operation, by rank
	scratch []byte
}

// failure is the first failure of the group.
type failure struct {
	rank int // the rank that failed
	err  error
}

// member is one rank; it implements queue.Transport.
type member struct {
	group *group
	rank  int
	queue *queue.Queue
	wake  chan struct{} // receives a token when the rank's wait ends
	timer *time.Timer

	// The group's lock protects these fields.
	op                collective.Op // nil outside an operation
	at                time.Duration
	entered, finished uint64
	last              string
}

// Do implements queue.Transport.
func (m *member) Do(op collective.Op, number uint64, at time.Duration) (time.Duration, error) {
	g := m.group
	g.mu.Lock()
	if g.leaver != nil && g.broken == nil {
		g.mu.Unlock()
		g.fail(g.leaver.rank, collective.ErrClosed)
		g.mu.Lock()
	}
	if g.broken != nil {
		defer g.mu.Unlock()
		return 0, g.errorFor(m)
	}
	m.op, m.at, m.entered, m.last = op, at, number, op.Tags().Name
	g.arrived++
	last := g.arrived == len(g.members)
	g.busy = last
	g.mu.Unlock()
	if last {
		return g.perform(m)
	}
	return m.wait(number)
}

// wait sleeps until the last rank has performed the operation, the time limit expires or the group is broken.
func (m *member) wait(number uint64) (time.Duration, error) {
	g := m.group
	select {
	case <-m.wake:
	case <-m.startTimer():
		g.timeOut(m, number)
		<-m.wake
	}
	if m.timer != nil {
		m.timer.Stop()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.finished < number {
		return 0, g.errorFor(m)
	}
	return g.end, nil
}

func (m *member) startTimer() <-chan time.Time {
	if m.group.opts.Timeout <= 0 {
		return nil
	}
	if m.timer == nil {
		m.timer = time.NewTimer(m.group.opts.Timeout)
	} else {
		m.timer.Reset(m.group.opts.Timeout)
	}
	return m.timer.C
}

// perform runs the operation. The rank that entered last calls it.
func (g *group) perform(m *member) (time.Duration, error) {
	rank, err := g.compare()
	if err == nil {
		rank, err = m.rank, g.compute()
	}
	var took time.Duration
	if err == nil {
		took = g.opts.Model.Duration(m.op, len(g.members))
		time.Sleep(time.Duration(float64(took) * g.opts.Model.RealTime))
	}
	g.mu.Lock()
	g.busy = false
	broken := g.broken != nil
	if err == nil && !broken {
		for _, other := range g.members {
			g.end = max(g.end, other.at)
		}
		g.end += took
		g.arrived = 0
		for _, other := range g.members {
			other.op, other.finished = nil, other.entered
		}
	}
	end := g.end
	if err == nil || broken {
		g.wakeAll(m)
	}
	g.mu.Unlock()
	if err != nil && !broken {
		g.fail(rank, err)
	}
	if err != nil || broken {
		g.mu.Lock()
		defer g.mu.Unlock()
		return 0, g.errorFor(m)
	}
	return end, nil
}

// wakeAll wakes all waiting ranks except one. The caller must hold the group's lock.
func (g *group) wakeAll(but *member) {
	for _, other := range g.members {
		if other != but {
			select {
			case other.wake <- struct{}{}:
			default:
			}
		}
	}
}

// compare returns a MismatchError, and the rank that it concerns, if ranks enqueued different operations.
func (g *group) compare() (rank int, err error) {
	first := g.members[0].op
	for _, m := range g.members[1:] {
		if !collective.Agree(first, m.op) {
			return m.rank, &collective.MismatchError{Rank: m.rank, Number: m.entered,
				Got: collective.Signature(m.op), Want: collective.Signature(first)}
		}
	}
	return 0, nil
}

// timeOut breaks the group if the operation has not ended.
func (g *group) timeOut(m *member, number uint64) {
	g.mu.Lock()
	if m.finished >= number || g.broken != nil || g.busy {
		g.mu.Unlock()
		return // perform has sent the wake token of this rank, or is about to send it
	}
	err := &collective.TimeoutError{Op: collective.Describe(m.op), Number: number, Limit: g.opts.Timeout,
		Ranks: g.progress()}
	for _, other := range g.members {
		if other.entered < number {
			err.Missing = append(err.Missing, other.rank)
		}
	}
	g.mu.Unlock()
	g.fail(m.rank, err)
}

// progress returns the state of all ranks. The caller must hold the group's lock.
func (g *group) progress() []collective.Progress {
	list := make([]collective.Progress, len(g.members))
	for i, m := range g.members {
		list[i] = collective.Progress{Rank: i, Entered: m.entered, Finished: m.finished, Last: m.last}
	}
	return list
}

// Fail implements queue.Transport.
func (m *member) Fail(err error) { m.group.fail(m.rank, err) }

// fail breaks the group and notifies every rank. Only the first call has an effect.
func (g *group) fail(rank int, err error) {
	g.mu.Lock()
	first := g.broken == nil
	if first {
		g.broken = &failure{rank, err}
		if !g.busy {
			g.wakeAll(nil)
		}
	}
	g.mu.Unlock()
	if !first {
		return
	}
	for _, m := range g.members {
		m.queue.Fail(g.errorFor(m))
	}
}

// errorFor returns the error with which member m reports the failure.
func (g *group) errorFor(m *member) error {
	rank, err := g.broken.rank, g.broken.err
	switch e := err.(type) {
	case *collective.TimeoutError:
		if m.entered >= e.Number {
			return err
		}
	case *collective.MismatchError:
		return err
	}
	if m.rank == rank {
		return err
	}
	return &collective.PeerError{Rank: rank, Cause: err}
}

// Close implements queue.Transport.
func (m *member) Close(orderly bool) error {
	g := m.group
	g.mu.Lock()
	if g.leaver == nil {
		g.leaver = m
	}
	waiting := g.arrived > 0 && g.broken == nil
	g.mu.Unlock()
	if orderly && waiting {
		g.fail(m.rank, collective.ErrClosed)
	}
	return nil
}
