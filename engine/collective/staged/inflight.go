package staged

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
	"github.com/hetero-train/hetero-train/engine/device"
)

// inFlight is the state of an in-flight operation: the copy to page-locked memory, the inner operation, and the copy
// back. The state and its page-locked memory are kept, so that the next use of the operation can reuse both.
type inFlight struct {
	comm      *Communicator
	op        collective.Op
	parts     []int64 // parts of op when inFlight was created
	pinned    device.Buffer
	travel    collective.Op // op, but on the page-locked memory
	out, back stage
	arrived   *queue.Link // link from fetch to inner
	returned  *queue.Link // link from inner to bring
	in, outgo []device.Region

	// The communicator's lock protects these fields.
	number uint64
	busy   bool
}

// mostKept is the maximum number of operations whose memory and stages are kept.
const mostKept = 512

// begin counts op and returns its in-flight state.
func (c *Communicator) begin(op collective.Op) (*inFlight, error) {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	select {
	case <-c.stop:
		return nil, fmt.Errorf("collective: rank %d: %s: %w", c.Rank(), collective.Describe(op), collective.ErrClosed)
	default:
	}
	f, err := c.inFlightOf(op)
	if err != nil {
		return nil, fmt.Errorf("collective: rank %d: %s: page-locked memory: %w", c.Rank(), collective.Describe(op),
			err)
	}
	c.count++
	f.number, f.busy = c.count, true
	f.arrived.Clear()
	f.returned.Clear()
	c.under = append(c.under, f)
	return f, nil
}

// inFlightOf finds or creates the state of an operation. The caller must hold the lock.
func (c *Communicator) inFlightOf(op collective.Op) (*inFlight, error) {
	for _, f := range c.kept {
		if !f.busy && f.serves(op) {
			return f, nil
		}
	}
	if len(c.kept) >= mostKept {
		var busy []*inFlight
		for _, f := range c.kept {
			if f.busy {
				busy = append(busy, f)
			} else if err := f.pinned.Free(); err != nil {
				return nil, err
			}
		}
		c.kept = busy
	}
	region, _, _ := op.Memory()
	pinned, err := c.dev.AllocHost(region.Bytes)
	if err != nil {
		return nil, err
	}
	f := &inFlight{comm: c, op: op, parts: slices.Clone(op.Parts()), pinned: pinned, arrived: queue.NewLink(),
		returned: queue.NewLink()}
	tags := op.Tags()
	f.out = stage{Op: op, inFlight: f, tags: collective.Tags{Name: tags.Name, After: tags.After, Done: f.arrived}}
	f.back = stage{Op: op, inFlight: f, tags: collective.Tags{Name: tags.Name, After: f.returned, Done: tags.Done}}
	f.lay(region)
	c.kept = append(c.kept, f)
	return f, nil
}

// serves reports whether op equals f's operation, including memory and events.
func (f *inFlight) serves(op collective.Op) bool {
	a, at, ar := f.op.Memory()
	b, bt, br := op.Memory()
	x, y := f.op.Tags(), op.Tags()
	if a.Offset != b.Offset || a.Bytes != b.Bytes || at != bt || ar != br || x.Name != y.Name ||
		!slices.Equal(f.parts, op.Parts()) || f.op.Kind() != op.Kind() {
		return false
	}
	if was, rooted := f.op.(collective.Broadcast); rooted && was.Root != op.(collective.Broadcast).Root {
		return false
	}
	return same(a.Buffer, b.Buffer) && same(x.After, y.After) && same(x.Done, y.Done)
}

func same(a, b any) bool {
	return a == nil && b == nil || a != nil && reflect.TypeOf(a).Comparable() && a == b
}

// lay determines the regions to copy, and creates the operation on page-locked memory.
func (f *inFlight) lay(region device.Region) {
	rank := f.comm.Rank()
	whole := []device.Region{{Bytes: region.Bytes}}
	there := device.Region{Buffer: f.pinned, Bytes: region.Bytes}
	own, others := parts(f.op, rank, region.Bytes)
	switch op := f.op.(type) {
	case collective.AllReduce:
		f.in, f.outgo = whole, whole
		op.Buffer, op.After, op.Done = there, f.arrived, f.returned
		f.travel = op
	case collective.Broadcast:
		if op.Root == rank {
			f.in = whole
		} else {
			f.outgo = whole
		}
		op.Buffer, op.After, op.Done = there, f.arrived, f.returned
		f.travel = op
	case collective.AllGather:
		f.in, f.outgo = own, others
		op.Buffer, op.After, op.Done, op.Counts = there, f.arrived, f.returned, f.parts
		f.travel = op
	case collective.ReduceScatter:
		f.in, f.outgo = whole, own
		op.Buffer, op.After, op.Done, op.Counts = there, f.arrived, f.returned, f.parts
		f.travel = op
	}
}

// parts returns two lists of regions of a buffer with one part per rank: the rank's own part, and the regions before
// and after it.
func parts(op collective.Op, rank int, bytes int64) (own, others []device.Region) {
	counts := op.Parts()
	if counts == nil {
		return nil, nil
	}
	_, dt, _ := op.Memory()
	var from int64
	for _, n := range counts[:rank] {
		from += n * dt.Size()
	}
	to := from + counts[rank]*dt.Size()
	return []device.Region{{Offset: from, Bytes: to - from}},
		[]device.Region{{Bytes: from}, {Offset: to, Bytes: bytes - to}}
}

// stage is an entry in the queue of a copier: an operation, with the events before and after its copy.
type stage struct {
	collective.Op
	inFlight *inFlight
	tags     collective.Tags
}

func (s *stage) Tags() collective.Tags { return s.tags }
func (s *stage) Check(int) error       { return nil } // Enqueue has checked the operation

// copier moves data between a device and page-locked memory; it implements queue.Transport.
type copier struct {
	comm   *Communicator
	stream device.Stream
	copy   func(*inFlight, device.Stream) error
}

// Do implements queue.Transport.
func (t *copier) Do(op collective.Op, _ uint64, _ time.Duration) (time.Duration, error) {
	return 0, t.copy(op.(*stage).inFlight, t.stream)
}

// Fail implements queue.Transport.
func (t *copier) Fail(err error) { t.comm.fail(err) }

// Close implements queue.Transport.
func (t *copier) Close(bool) error { return t.stream.Close() }

// carryOut copies to host memory once no earlier operation uses the device memory.
func (f *inFlight) carryOut(stream device.Stream) error {
	if err := f.comm.awaitTurn(f); err != nil {
		return err
	}
	return f.carry(stream, f.in, true)
}

// carryBack copies to device memory, unless the communicator has failed.
func (f *inFlight) carryBack(stream device.Stream) error {
	defer f.comm.end(f)
	if err := f.comm.Err(); err != nil {
		return err
	}
	return f.carry(stream, f.outgo, false)
}

func (f *inFlight) carry(stream device.Stream, pieces []device.Region, out bool) error {
	region, _, _ := f.op.Memory()
	for _, p := range pieces {
		if p.Bytes == 0 {
			continue
		}
		there := device.Region{Buffer: region.Buffer, Offset: region.Offset + p.Offset, Bytes: p.Bytes}
		here := device.Region{Buffer: f.pinned, Offset: p.Offset, Bytes: p.Bytes}
		if !out {
			here, there = there, here
		}
		if err := stream.Copy(here, there); err != nil {
			return fmt.Errorf("collective: rank %d: %s: copy: %w", f.comm.Rank(), collective.Describe(f.op), err)
		}
	}
	if err := stream.Sync(); err != nil {
		return fmt.Errorf("collective: rank %d: %s: copy: %w", f.comm.Rank(), collective.Describe(f.op), err)
	}
	return nil
}

// awaitTurn waits until no earlier operation uses the memory of f. It cannot deadlock, because the end of an operation
// never waits for a later operation.
func (c *Communicator) awaitTurn(f *inFlight) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil &&
		slices.ContainsFunc(c.under, func(o *inFlight) bool { return o.number < f.number && overlap(o.op, f.op) }) {
		c.turn.Wait()
	}
	return c.err
}

func overlap(a, b collective.Op) bool {
	x, _, _ := a.Memory()
	y, _, _ := b.Memory()
	return (!reflect.TypeOf(x.Buffer).Comparable() || x.Buffer == y.Buffer) && x.Offset < y.Offset+y.Bytes &&
		y.Offset < x.Offset+x.Bytes
}

// end records the end of an operation. Its memory may then be reused.
func (c *Communicator) end(f *inFlight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.busy = false
	if at := slices.Index(c.under, f); at >= 0 {
		c.under = slices.Delete(c.under, at, at+1)
	}
	c.turn.Broadcast()
}
