package processes

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/conformance"
)

const (
	patience  = time.Minute            // time in which ranks must start and join a group
	lastWords = 200 * time.Millisecond // time to read a dead process's output if its child processes keep the pipe open
	deathbed  = 30 * time.Second       // time in which a killed process must end
)

// Crew is a set of processes, one per rank. It is not safe for concurrent use.
type Crew struct {
	start   func(rank int) *exec.Cmd
	address func() string
	workers []*worker // processes by rank
	groups  uint64    // number of groups opened
}

// New returns a crew without processes. The function start returns the command of a rank's process, which must call
// Serve with files 3 and 4. The function address returns a new address for each Group.
func New(start func(rank int) *exec.Cmd, address func() string) *Crew {
	return &Crew{start: start, address: address}
}

// Open is a collectivetest.Opener.
func (c *Crew) Open(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
	t.Helper()
	for len(c.workers) < size {
		c.workers = append(c.workers, nil)
	}
	all(t, size, func(rank int) (err error) {
		if w := c.workers[rank]; w != nil && w.gone() == nil {
			return nil
		}
		if c.workers[rank], err = hire(c.start(rank)); err != nil {
			return fmt.Errorf("the process of rank %d: %w", rank, err)
		}
		return nil
	})
	c.groups++
	address, comms := c.address(), make([]*communicator, size)
	all(t, size, func(rank int) error {
		comms[rank] = &communicator{worker: c.workers[rank], rank: rank, size: size, group: c.groups}
		_, err := comms[rank].ask(
			&request{Do: join, Group: Group{Rank: rank, Size: size, Address: address, Limit: limit}})
		return err
	})
	return collectivetest.GroupOf(comms, func(rank int) {
		if err := comms[rank].worker.kill(deathbed); err != nil {
			t.Error(err)
		}
	})
}

// all calls the function do for each rank. The calls run concurrently.
func all(t conformance.TB, size int, do func(rank int) error) {
	t.Helper()
	errs := make([]error, size)
	var doing sync.WaitGroup
	for rank := range size {
		doing.Go(func() { errs[rank] = do(rank) })
	}
	doing.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Close ends all processes. Its error names the processes that did not end.
func (c *Crew) Close() error {
	var errs []error
	for _, w := range c.workers {
		if w != nil {
			errs = append(errs, w.kill(deathbed))
		}
	}
	return errors.Join(errs...)
}

// worker is the process of a rank.
type worker struct {
	cmd  *exec.Cmd
	said *tail

	writing  sync.Mutex
	requests *gob.Encoder
	number   uint64

	mu       sync.Mutex
	waiting  map[uint64]chan *reply
	complete map[uint64]func(*reply) // by number of a request: called when the operation that it enqueued is complete
	lost     error                   // reason why no further reply will arrive
	over     chan struct{}           // closed when lost is set
}

func newWorker(cmd *exec.Cmd, requests io.Writer) *worker {
	return &worker{cmd: cmd, said: new(tail), requests: gob.NewEncoder(requests), waiting: map[uint64]chan *reply{},
		complete: map[uint64]func(*reply){}, over: make(chan struct{})}
}

// hire starts a process, and waits until the process has opened its device.
func hire(cmd *exec.Cmd) (*worker, error) {
	there, requests, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	replies, answers, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, there.Close(), requests.Close())
	}
	w := newWorker(cmd, requests)
	cmd.WaitDelay = lastWords
	cmd.ExtraFiles = []*os.File{there, answers}
	cmd.Stdout, cmd.Stderr = w.said, w.said
	err = errors.Join(cmd.Start(), there.Close(), answers.Close())
	if err != nil {
		return nil, errors.Join(err, requests.Close(), replies.Close())
	}
	hello := w.expect(0)
	go func() {
		defer replies.Close()
		defer requests.Close()
		w.listen(replies)
	}()
	select {
	case r := <-hello:
		if err := w.answered(r); err != nil {
			return nil, errors.Join(err, w.kill(deathbed))
		}
		return w, nil
	case <-time.After(patience):
		return nil, errors.Join(fmt.Errorf("the device of the process was not open within %v%s", patience, w.said),
			w.kill(deathbed))
	}
}

// expect registers and returns a channel for the reply to a request.
func (w *worker) expect(number uint64) chan *reply {
	c := make(chan *reply, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost != nil {
		c <- nil
	} else {
		w.waiting[number] = c
	}
	return c
}

// listen distributes replies until the process ends.
func (w *worker) listen(from io.Reader) {
	replies := gob.NewDecoder(from)
	for {
		r := new(reply)
		if err := replies.Decode(r); err != nil {
			break
		}
		w.mu.Lock()
		to, complete := w.waiting[r.Number], w.complete[r.Number]
		if r.Complete {
			delete(w.complete, r.Number)
		} else {
			delete(w.waiting, r.Number)
		}
		w.mu.Unlock()
		switch { // the channel is nil if the caller no longer waits for the reply
		case r.Complete && complete != nil:
			complete(r)
		case !r.Complete && to != nil:
			to <- r
		}
	}
	w.lose(w.cmd.Wait())
}

// lose ends all waits for replies of this process, which then return the reason.
func (w *worker) lose(why error) {
	w.mu.Lock()
	if w.lost != nil { // already lost
		w.mu.Unlock()
		return
	}
	w.lost = fmt.Errorf("%w (%v)%s", collective.ErrDied, why, w.said)
	close(w.over)
	waiting, complete := w.waiting, w.complete
	w.waiting, w.complete = nil, nil
	w.mu.Unlock()
	for _, to := range waiting {
		to <- nil
	}
	for _, tell := range complete {
		tell(&reply{})
	}
}

// gone returns the reason why the process no longer replies, or nil.
func (w *worker) gone() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// answered returns the error of a reply, or the reason why there is no reply.
func (w *worker) answered(r *reply) error {
	if r == nil {
		return w.gone()
	}
	return r.Fault.err(nil)
}

// send sends a request. If the request enqueues an operation, the function complete is called when the operation is
// complete; it may be nil.
func (w *worker) send(q *request, complete func(*reply)) chan *reply {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.number++
	q.Number = w.number
	if complete != nil {
		w.mu.Lock()
		if w.lost == nil {
			w.complete[q.Number] = complete
		}
		w.mu.Unlock()
	}
	to := w.expect(q.Number)
	_ = w.requests.Encode(q) // an error means that the process has ended, which listen detects
	return to
}

// forget removes the entries that send made for a request.
func (w *worker) forget(number uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.complete, number)
}

// tell sends a request that has no reply.
func (w *worker) tell(q *request) {
	w.writing.Lock()
	defer w.writing.Unlock()
	_ = w.requests.Encode(q)
}

// kill ends the process as kill -9 does, and returns when it has ended. The wait is at most limit, because a process
// that is blocked in a driver may not end.
func (w *worker) kill(limit time.Duration) error {
	_ = w.cmd.Process.Kill() // it may have ended already
	select {
	case <-w.over:
		return nil
	case <-time.After(limit):
	}
	err := fmt.Errorf("process %d did not end within %v of being killed", w.cmd.Process.Pid, limit)
	w.lose(err)
	return err
}

// tail keeps the end of a process's output.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 2000

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailBytes):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if said := strings.TrimSpace(string(t.text)); said != "" {
		return ": it said: " + said
	}
	return ""
}
