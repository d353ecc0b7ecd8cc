package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
)

// communicator forwards calls to the real communicator in the process of a rank. It implements collective.Communicator
// and collective.Positioner.
type communicator struct {
	worker     *worker
	rank, size int
	group      uint64

	mu     sync.Mutex
	causes []error // causes whose texts were sent to the rank
}

// lookEvery is the interval at which follow checks whether an operation has failed that still waits for its After
// event.
const lookEvery = 20 * time.Millisecond

func (c *communicator) Rank() int { return c.rank }
func (c *communicator) Size() int { return c.size }

// send sends a request for this group.
func (c *communicator) send(q *request, complete func(*reply)) chan *reply {
	q.Group.Number = c.group
	return c.worker.send(q, complete)
}

// ask sends a request and waits for its reply.
func (c *communicator) ask(q *request) (*reply, error) {
	return c.take(<-c.send(q, nil))
}

// take returns a reply, together with the error that it contains.
func (c *communicator) take(r *reply) (*reply, error) {
	if r == nil {
		return nil, fmt.Errorf("rank %d: %w", c.rank, c.worker.gone())
	}
	c.mu.Lock()
	causes := slices.Clone(c.causes)
	c.mu.Unlock()
	return r, r.Fault.err(causes)
}

// Enqueue implements collective.Communicator.
func (c *communicator) Enqueue(op collective.Op) error {
	if err := collective.Check(op, c.size); err != nil {
		return fmt.Errorf("collective: rank %d: %w", c.rank, err)
	}
	buffer, _, _ := op.Memory()
	tags := op.Tags()
	q := &request{Do: enqueue, Operation: described(op)}
	if tags.After == nil {
		q.Data = contentOf(buffer)
	}
	over := make(chan struct{})
	to := c.send(q, func(r *reply) {
		if r.Data != nil {
			copy(contentOf(buffer), r.Data)
		}
		close(over)
		if tags.Done != nil {
			_ = tags.Done.Complete() // the events of the test suite never fail
		}
	})
	if _, err := c.take(<-to); err != nil {
		c.worker.forget(q.Number)
		return err
	}
	if tags.After != nil {
		go c.follow(tags.After, buffer, q.Number, over)
	}
	return nil
}

// contentOf returns the bytes of a buffer of the test suite, or nil for a barrier, which has no buffer.
func contentOf(r device.Region) []byte {
	if r.Bytes == 0 {
		return nil
	}
	return r.Host()
}

// follow notifies the process when an operation's After event is complete, and sends the content of the buffer at that
// time.
func (c *communicator) follow(after device.Event, buffer device.Region, number uint64, over <-chan struct{}) {
	for {
		err := after.WaitHost(lookEvery)
		switch {
		case err == nil:
			c.worker.tell(&request{Do: ready, Of: number, Data: contentOf(buffer)})
			return
		case !errors.Is(err, os.ErrDeadlineExceeded):
			c.worker.tell(&request{Do: ready, Of: number, Cause: c.told(err)})
			return
		}
		select {
		case <-over: // the operation has failed before its After event
			return
		default:
		}
	}
}

// told stores the error cause and returns its text, because only text can be sent to the process. If an error from the
// process contains this text, errors.Is finds the stored error.
func (c *communicator) told(cause error) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.causes = append(c.causes, cause)
	return cause.Error()
}

// Sync implements collective.Communicator.
func (c *communicator) Sync(ctx context.Context) error {
	select {
	case r := <-c.send(&request{Do: drain}, nil):
		_, err := c.take(r)
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Err implements collective.Communicator.
func (c *communicator) Err() error {
	_, err := c.ask(&request{Do: failure})
	return err
}

// Abort implements collective.Communicator.
func (c *communicator) Abort(cause error) {
	_, _ = c.ask(&request{Do: abort, Cause: c.told(cause)}) // a process that has ended needs no abort
}

// Position implements collective.Positioner.
func (c *communicator) Position() collective.Progress {
	r, err := c.ask(&request{Do: position})
	if err != nil {
		return collective.Progress{Rank: -1}
	}
	return r.Position
}

// Close implements collective.Communicator.
func (c *communicator) Close() error {
	_, err := c.ask(&request{Do: leave})
	return err
}
