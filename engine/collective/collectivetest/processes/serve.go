package processes

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
)

// Connect joins a group on a rank's device. All ranks of the group call it concurrently.
type Connect func(ctx context.Context, dev device.Device, g Group) (collective.Communicator, error)

// Serve runs a rank's process: it opens the device and serves requests from in until in ends.
func Serve(in io.Reader, out io.Writer, open func() (device.Device, error), connect Connect) error {
	s := &server{out: gob.NewEncoder(out), connect: connect, groups: map[uint64]*member{},
		starts: map[uint64]*inFlight{}, landing: make(chan landing, queued)}
	dev, err := open()
	if err == nil {
		s.rig, err = newRig(dev)
	}
	s.reply(reply{Fault: faultOf(err)})
	if err != nil {
		return err
	}
	go s.land()
	todo := make(chan *request, queued)
	go func() { // its own goroutine, so that Serve detects the end of its input even if a request blocks
		for q := range todo {
			s.do(q)
		}
	}()
	requests := gob.NewDecoder(in)
	for {
		q := new(request)
		if err := requests.Decode(q); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("processes: request: %w", err)
		}
		todo <- q
	}
}

// queued is the maximum number of pending requests and operations. The suite always has fewer.
const queued = 1 << 16

// server serves the requests of its process.
type server struct {
	connect Connect
	rig     *rig

	writing sync.Mutex
	out     *gob.Encoder

	groups  map[uint64]*member
	starts  map[uint64]*inFlight // operations that wait for the request ready, by the number of their enqueue request
	landing chan landing         // operations of all groups, in order
}

// member is this rank's endpoint in a group.
type member struct {
	collective.Communicator
	flying sync.WaitGroup // counts in-flight operations
	left   atomic.Bool
}

// reply sends a reply. It ignores write errors: they mean that the reader is gone and this process is about to end.
func (s *server) reply(r reply) {
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = s.out.Encode(&r)
}

// do serves a request. A request that waits for other ranks runs in its own goroutine, because the next request may be
// the one that ends this wait.
func (s *server) do(q *request) {
	comm := s.groups[q.Group.Number]
	if comm == nil && q.Do != join && q.Do != ready { // ready refers to an operation, not to a group
		s.reply(reply{Number: q.Number, Fault: faultOf(collective.ErrClosed)})
		return
	}
	switch q.Do {
	case join:
		// Closed communicators are removed only now, because they must report their state until the next group joins.
		maps.DeleteFunc(s.groups, func(_ uint64, m *member) bool { return m.left.Load() })
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c, err := s.connect(ctx, s.rig.dev, q.Group)
		if err == nil {
			s.groups[q.Group.Number] = &member{Communicator: c}
		}
		s.reply(reply{Number: q.Number, Fault: faultOf(err)})
	case enqueue:
		s.reply(reply{Number: q.Number, Fault: faultOf(s.enqueue(comm, q))})
	case ready:
		f := s.starts[q.Of]
		delete(s.starts, q.Of)
		if f != nil {
			f.begin(s.rig, q.Data, q.Cause)
		}
	case failure:
		s.reply(reply{Number: q.Number, Fault: faultOf(comm.Err())})
	case position:
		p, ok := comm.Communicator.(collective.Positioner)
		if !ok {
			s.reply(reply{
				Number: q.Number, Fault: faultOf(fmt.Errorf("processes: %T tells no position", comm.Communicator))})
			return
		}
		s.reply(reply{Number: q.Number, Position: p.Position()})
	case abort:
		go func() {
			comm.Abort(errors.New(q.Cause))
			s.reply(reply{Number: q.Number})
		}()
	case drain:
		go func() {
			err := comm.Sync(context.Background())
			comm.flying.Wait() // the results must be sent before the reply
			s.reply(reply{Number: q.Number, Fault: faultOf(err)})
		}()
	case leave:
		go func() {
			err := comm.Close()
			comm.left.Store(true)
			s.reply(reply{Number: q.Number, Fault: faultOf(err)})
		}()
	}
}

// enqueue passes an operation to the communicator. If the data is present, it also starts the operation.
func (s *server) enqueue(comm *member, q *request) error {
	f, err := s.rig.prepare(q.Operation)
	if err != nil {
		return err
	}
	op, err := q.Operation.on(f.region(), f.start, f.done)
	if err == nil {
		err = comm.Enqueue(op)
	}
	if err != nil {
		s.rig.giveBack(f)
		return err
	}
	comm.flying.Add(1)
	if q.Operation.Waits {
		s.starts[q.Number] = f
	} else {
		f.begin(s.rig, q.Data, "")
	}
	s.landing <- landing{f, q.Number, comm}
	return nil
}

// landing is an operation whose result must be sent back.
type landing struct {
	*inFlight
	number uint64
	comm   *member
}

// land sends the results of operations back, in order. It runs in its own goroutine, because on some devices
// Stream.Wait blocks the caller. Every operation reaches land, because a failed communicator completes all its
// operations.
func (s *server) land() {
	for l := range s.landing {
		r := reply{Number: l.number, Complete: true}
		data, err := l.result(s.rig)
		good := err == nil && l.comm.Err() == nil
		if r.Fault = faultOf(err); good {
			r.Data = data
		}
		s.reply(r)
		if good { // not after a failure: a pending request ready may still use this memory
			s.rig.giveBack(l.inFlight)
		}
		l.comm.flying.Done()
	}
}
