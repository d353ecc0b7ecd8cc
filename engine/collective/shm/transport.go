//go:build cgo && linux

package shm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
)

// transport implements queue.Transport.
type transport struct {
	config   Config
	queue    *queue.Queue
	peers    []peer
	watching sync.WaitGroup

	// All threads except the communicator's own hold mu for reading while they use the group. Close and die hold mu for
	// writing.
	mu     sync.RWMutex
	group  *group
	closed bool
	silent bool // tests: the rank pretends to be dead, and notifies no other rank

	current sync.Mutex
	op      collective.Op // the operation that this rank entered last
	number  uint64
}

// poke is the message that asks a rank to check the states of all ranks.
var poke = []byte{'P'}

// Do implements queue.Transport.
func (t *transport) Do(op collective.Op, number uint64, _ time.Duration) (time.Duration, error) {
	t.current.Lock()
	t.op, t.number = op, number
	t.current.Unlock()
	buffer, _, _ := op.Memory()
	var host []byte
	if buffer.Bytes > 0 {
		if host = buffer.Host(); host == nil {
			return 0, fmt.Errorf("shm: rank %d: %s: got a buffer without host memory", t.config.Rank,
				collective.Describe(op))
		}
	}
	result := t.group.run(op, number, t.config.Timeout, host)
	if result.status == completed {
		return 0, nil
	}
	return 0, t.failure(op, number, result)
}

// failure returns the reason why an operation was not completed.
func (t *transport) failure(op collective.Op, number uint64, r result) error {
	switch r.status {
	case timedOut:
		return t.lateness(op, number)
	case mismatched:
		return &collective.MismatchError{Rank: r.rank, Number: number, Got: r.got, Want: r.want}
	case peerGone:
		return t.errorOf(r.rank)
	}
	if err := t.queue.Err(); err != nil {
		return err // the failure that stopped the operation
	}
	return fmt.Errorf("shm: rank %d: %s: stopped", t.config.Rank, collective.Describe(op))
}

// lateness returns a time-out error. It names the ranks that have not entered the operation, and those that have made
// less progress in it than others.
func (t *transport) lateness(op collective.Op, number uint64) *collective.TimeoutError {
	ranks, steps := t.group.progress(t.config.Size)
	err := &collective.TimeoutError{Op: collective.Describe(op), Number: number, Limit: t.config.Timeout, Ranks: ranks}
	ahead := slices.Max(steps)
	for _, p := range err.Ranks {
		switch {
		case p.Entered < number:
			err.Missing = append(err.Missing, p.Rank)
		case p.Entered == number && p.Finished < number && steps[p.Rank] < ahead:
			err.Behind = append(err.Behind, p.Rank)
		}
	}
	return err
}

// errorOf returns the error for the state with which another rank ended the group.
func (t *transport) errorOf(rank int) error {
	state, text := t.group.state(rank)
	err := &collective.PeerError{Rank: rank}
	switch state {
	case stateLeft:
		err.Cause = collective.ErrClosed
	case stateDead:
		err.Cause = collective.ErrDied
	case stateTimedOut:
		// If this rank waits in the same operation, its own time limit has also expired, or is about to expire.
		t.current.Lock()
		op, number := t.op, t.number
		t.current.Unlock()
		if op != nil {
			late := t.lateness(op, number)
			if culprits := append(late.Missing, late.Behind...); len(culprits) > 0 &&
				!slices.Contains(culprits, t.config.Rank) {
				return late
			}
		}
		err.Cause = errors.New(text)
	default:
		err.Cause = errors.New(text)
	}
	return err
}

// watch reads from another rank's socket until it closes.
func (t *transport) watch(p peer) {
	b := make([]byte, 1)
	for {
		n, err := p.conn.Read(b)
		if n == 0 && err == nil {
			continue
		}
		if !t.heard(p.rank, err != nil) || err != nil {
			return
		}
	}
}

// heard checks the states after another rank has sent poke or has disconnected (gone). It returns false if this rank
// has stopped listening.
func (t *transport) heard(rank int, gone bool) bool {
	t.mu.RLock()
	if t.closed || t.silent {
		t.mu.RUnlock()
		return false
	}
	if gone {
		t.group.setState(rank, stateDead, "") // no effect if the rank left in order or reported a failure
	}
	var err error
	by := t.group.failed()
	switch {
	case by < 0 || t.queue.Err() != nil: // there is no failure, or this rank already knows it
	case by == t.config.Rank:
		err = fmt.Errorf("shm: rank %d: the connection to rank %d broke: %w", by, rank, collective.ErrDied)
	default:
		err = t.errorOf(by)
		if t.config.Rank == 0 {
			t.tell() // on rank 0: the other ranks have no connections to each other
		}
	}
	t.mu.RUnlock()
	if err != nil {
		t.queue.Fail(err)
	}
	return true
}

// tell notifies the ranks to which this one is connected.
func (t *transport) tell() {
	for _, p := range t.peers {
		p.conn.SetWriteDeadline(time.Now().Add(time.Second)) // a closed connection reports its error at the next write
		p.conn.Write(poke)                                   // a rank that has ended needs no message
	}
}

// Fail implements queue.Transport.
func (t *transport) Fail(err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return
	}
	t.group.stop()
	if _, fromOthers := err.(*collective.PeerError); fromOthers || t.silent {
		// not errors.As: an error inside an abort's cause belongs to another group
		return
	}
	state := stateGaveUp
	if _, late := err.(*collective.TimeoutError); late { // not errors.As, for the same reason
		state = stateTimedOut
	}
	t.group.setState(t.config.Rank, state, err.Error())
	t.tell()
}

// Close implements queue.Transport.
func (t *transport) Close(orderly bool) error {
	t.mu.Lock()
	if orderly {
		t.group.setState(t.config.Rank, stateLeft, "")
	}
	t.closed = true
	t.mu.Unlock()
	closeAll(t.peers)
	t.watching.Wait()
	t.group.detach()
	return nil
}

// Progress returns one entry per rank. After Close, it returns none.
func (t *transport) Progress() []collective.Progress {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return nil
	}
	ranks, _ := t.group.progress(t.config.Size)
	return ranks
}

// die simulates the death of the process: the sockets close without a message. For tests.
func (t *transport) die() {
	t.mu.Lock()
	t.silent = true
	t.mu.Unlock()
	closeAll(t.peers)
	t.queue.Fail(collective.ErrDied)
}
