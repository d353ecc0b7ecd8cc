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

	// mu is held for reading by whoever uses the group beside the communicator's thread, for writing to end that.
	mu     sync.RWMutex
	group  *group
	closed bool
	silent bool // tests: the rank plays dead, and tells nobody anything

	current sync.Mutex
	op      collective.Op // the last one entered
	number  uint64
}

// poke is the byte that says: look at the states.
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
			return 0, fmt.Errorf("shm: rank %d: %s: its buffer has no host memory", t.config.Rank, collective.Describe(op))
		}
	}
	result := t.group.run(op, number, t.config.Timeout, host)
	if result.status == completed {
		return 0, nil
	}
	return 0, t.failure(op, number, result)
}

// failure is why an operation was not completed.
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
		return err // what stopped it
	}
	return fmt.Errorf("shm: rank %d: %s: stopped", t.config.Rank, collective.Describe(op))
}

// lateness names who has not entered an operation, and who has but is behind the others in it.
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

// errorOf is the error for what another rank has done to the group.
func (t *transport) errorOf(rank int) error {
	state, text := t.group.state(rank)
	err := &collective.PeerError{Rank: rank}
	switch state {
	case stateLeft:
		err.Cause = collective.ErrClosed
	case stateDead:
		err.Cause = collective.ErrDied
	case stateTimedOut:
		// If this rank waits in the same operation its time is over as well, or nearly.
		t.current.Lock()
		op, number := t.op, t.number
		t.current.Unlock()
		if op != nil {
			late := t.lateness(op, number)
			if culprits := append(late.Missing, late.Behind...); len(culprits) > 0 && !slices.Contains(culprits, t.config.Rank) {
				return late
			}
		}
		err.Cause = errors.New(text)
	default:
		err.Cause = errors.New(text)
	}
	return err
}

// watch listens to another rank until its socket closes.
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

// heard looks at the states because another rank said so, or is gone. It answers false when this rank does not listen any more.
func (t *transport) heard(rank int, gone bool) bool {
	t.mu.RLock()
	if t.closed || t.silent {
		t.mu.RUnlock()
		return false
	}
	if gone {
		t.group.setState(rank, stateDead, "") // unless it left, or said why it goes
	}
	var err error
	by := t.group.failed()
	switch {
	case by < 0 || t.queue.Err() != nil: // nothing has happened, or it is known
	case by == t.config.Rank:
		err = fmt.Errorf("shm: rank %d: its connection to rank %d broke: %w", by, rank, collective.ErrDied)
	default:
		err = t.errorOf(by)
		if t.config.Rank == 0 {
			t.tell() // the others are not connected to each other
		}
	}
	t.mu.RUnlock()
	if err != nil {
		t.queue.Fail(err)
	}
	return true
}

// tell wakes the other ranks that this one is connected to.
func (t *transport) tell() {
	for _, p := range t.peers {
		p.conn.SetWriteDeadline(time.Now().Add(time.Second)) //nolint:errcheck // a closed connection fails to be written
		p.conn.Write(poke)                                   //nolint:errcheck // who is gone need not be told
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
	if _, fromOthers := err.(*collective.PeerError); fromOthers || t.silent { //nolint:errorlint // one inside an abort's cause is another group's
		return
	}
	state := stateGaveUp
	if _, late := err.(*collective.TimeoutError); late { //nolint:errorlint // the same
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

// Progress has one entry a rank; none after Close.
func (t *transport) Progress() []collective.Progress {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return nil
	}
	ranks, _ := t.group.progress(t.config.Size)
	return ranks
}

// die plays the death of the process: the sockets close, and nothing is said. For tests.
func (t *transport) die() {
	t.mu.Lock()
	t.silent = true
	t.mu.Unlock()
	closeAll(t.peers)
	t.queue.Fail(collective.ErrDied)
}
