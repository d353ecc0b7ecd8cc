package hosts

import (
	"reflect"
	"slices"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// inFlight is the state of an operation in the stages. It is kept so that the next use of the operation can reuse it.
type inFlight struct {
	comm        *Communicator
	op          collective.Op
	parts       []int64 // parts of op when the stages were created
	stages      []collective.Op
	after, done device.Event // events of op
	links       [2]link
	memory      span

	// The communicator's lock protects these fields.
	number uint64
	behind uint64 // number of the earlier operation that uses some of this operation's memory; 0: none
	busy   bool
	next   *inFlight // next state with the same key
}

// key identifies operations whose stages are equal, except for the counts.
type key struct {
	kind, name  string
	buffer      device.Region
	dtype       tensor.DType
	reduce      collective.Reduce
	root        int
	after, done device.Event
}

// mostKept is the maximum number of operations whose state is kept.
const mostKept = 512

// inFlightOf returns a state for op that is not in use. The caller must hold the lock.
func (c *Communicator) inFlightOf(op collective.Op) *inFlight {
	tags := op.Tags()
	k := key{kind: op.Kind(), name: tags.Name, after: tags.After, done: tags.Done}
	k.buffer, k.dtype, k.reduce = op.Memory()
	if b, rooted := op.(collective.Broadcast); rooted {
		k.root = b.Root
	}
	// Only pointers are keys: values of other types may not be comparable.
	kept := pointer(k.buffer.Buffer) && pointer(k.after) && pointer(k.done)
	if kept {
		for f := c.kept[k]; f != nil; f = f.next {
			if !f.busy && slices.Equal(f.parts, op.Parts()) {
				for i := range f.links {
					f.links[i].clear()
				}
				return f
			}
		}
	}
	f := c.newInFlight(op)
	if kept {
		if c.cached >= mostKept {
			clear(c.kept) // operations in flight keep their states
			c.cached = 0
		}
		f.next = c.kept[k]
		c.kept[k] = f
		c.cached++
	}
	return f
}

func pointer(v any) bool { return v == nil || reflect.TypeOf(v).Kind() == reflect.Pointer }

func (c *Communicator) newInFlight(op collective.Op) *inFlight {
	tags := op.Tags()
	f := &inFlight{comm: c, op: op, parts: slices.Clone(op.Parts()), after: tags.After, done: tags.Done}
	buffer, _, _ := op.Memory()
	f.memory = spanOf(buffer)
	s := c.stagesOf(op, f.parts)
	ops := []func(after, done device.Event) collective.Op{s.within, s.between, s.spread}
	switch {
	case len(c.ranks) == 1:
		ops = ops[1:2]
	case c.place > 0:
		ops = []func(after, done device.Event) collective.Op{s.within, s.spread}
	}
	var after device.Event = &start{f}
	for i, stage := range ops {
		var done device.Event = &finish{f}
		if i < len(ops)-1 {
			f.links[i].prepare(c)
			done = &f.links[i]
		}
		f.stages = append(f.stages, stage(after, done))
		after = done
	}
	return f
}

// stages are the three parts of one operation: within the host, between hosts, and within the host again.
type stages struct {
	within, between, spread func(after, done device.Event) collective.Op
}

// stagesOf returns the operations of the three stages. Every stage has an operation, even if it only waits, so that all
// inner communicators run the same number of operations. Different operations differ in at least one stage. If ranks
// enqueue different operations, this stage detects the mismatch.
func (c *Communicator) stagesOf(op collective.Op, parts []int64) stages {
	name := op.Tags().Name
	barrier := func(after, done device.Event) collective.Op {
		return collective.Barrier{Name: name, After: after, Done: done}
	}
	broadcast := func(buffer device.Region, root int) func(after, done device.Event) collective.Op {
		return func(after, done device.Event) collective.Op {
			return collective.Broadcast{Name: name, Buffer: buffer, Root: root, After: after, Done: done}
		}
	}
	switch op := op.(type) {
	case collective.AllReduce:
		again := func(after, done device.Event) collective.Op {
			op.After, op.Done = after, done
			return op
		}
		return stages{again, again, broadcast(op.Buffer, 0)}
	case collective.Broadcast:
		host, place := HostOf(c.opts.Hosts, op.Root)
		s := stages{barrier, broadcast(op.Buffer, host), broadcast(op.Buffer, 0)}
		if host == c.host {
			s.within, s.spread = broadcast(op.Buffer, place), barrier
		}
		return s
	case collective.AllGather:
		there, counts, hosts := c.partsOf(op.Buffer, op.DType, parts)
		gather := func(buffer device.Region, counts []int64) func(after, done device.Event) collective.Op {
			return func(after, done device.Event) collective.Op {
				return collective.AllGather{Name: name, Buffer: buffer, DType: op.DType, Counts: counts, After: after,
					Done: done}
			}
		}
		return stages{gather(there, counts), gather(op.Buffer, hosts), broadcast(op.Buffer, 0)}
	case collective.ReduceScatter:
		there, _, hosts := c.partsOf(op.Buffer, op.DType, parts)
		all := make([]int64, len(c.ranks)) // all elements of the buffer go to the host's first rank
		all[0] = op.Buffer.Bytes / op.DType.Size()
		scatter := func(counts []int64) func(after, done device.Event) collective.Op {
			return func(after, done device.Event) collective.Op {
				op.Counts, op.After, op.Done = counts, after, done
				return op
			}
		}
		return stages{scatter(all), scatter(hosts), broadcast(there, 0)}
	}
	return stages{barrier, barrier, barrier}
}

// partsOf divides a buffer that contains one part per rank. It returns the region of this host's parts, the counts of
// these parts, and the counts of all hosts.
func (c *Communicator) partsOf(buffer device.Region, dt tensor.DType, parts []int64) (there device.Region, own,
	hosts []int64) {
	there = device.Region{Buffer: buffer.Buffer, Offset: buffer.Offset}
	for host, ranks := range c.opts.Hosts {
		var n int64
		for _, rank := range ranks {
			n += parts[rank]
		}
		hosts = append(hosts, n)
		if host < c.host {
			there.Offset += n * dt.Size()
		}
	}
	there.Bytes = hosts[c.host] * dt.Size()
	first := c.ranks[0]
	return there, parts[first : first+len(c.ranks)], hosts
}

// span is a range of memory [from, to), in bytes. The numbers are host addresses, or offsets in a buffer that the host
// cannot access.
type span struct {
	buffer   device.Buffer // nil for host memory
	from, to uintptr
}

func spanOf(r device.Region) span {
	if r.Buffer == nil || r.Bytes == 0 {
		return span{}
	}
	if host := r.Host(); host != nil {
		from := uintptr(unsafe.Pointer(unsafe.SliceData(host)))
		return span{from: from, to: from + uintptr(r.Bytes)}
	}
	return span{buffer: r.Buffer, from: uintptr(r.Offset), to: uintptr(r.Offset + r.Bytes)}
}

func (s span) overlaps(o span) bool {
	return s.from < o.to && o.from < s.to && (s.buffer == nil) == (o.buffer == nil) &&
		(s.buffer == nil || !pointer(s.buffer) || !pointer(o.buffer) || s.buffer == o.buffer)
}
