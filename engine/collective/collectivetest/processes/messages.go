package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Group describes the group that a rank joins.
type Group struct {
	Rank, Size int
	Number     uint64        // unique in the crew, because several groups may exist at the same time
	Address    string        // the same for all ranks of this group, different for every other group
	Limit      time.Duration // time limit of an operation; 0: no limit
}

// verb is the kind of a request.
type verb uint8

const (
	join verb = iota + 1
	enqueue
	ready // the After event of an operation is complete
	drain
	failure
	abort
	position
	leave
)

// request is a message to a rank's process.
type request struct {
	Number    uint64
	Do        verb
	Group     Group     // for join: the group; for other requests: only its Number is set
	Operation operation // for enqueue: the operation
	Of        uint64    // for ready: number of the request that enqueued the operation
	Data      []byte    // content of the operation's buffer
	Cause     string    // the cause of an abort, or the error of a failed After event
}

// reply is a message from a rank's process. Each request except ready has one reply. An operation has a second reply
// when it is complete.
type reply struct {
	Number   uint64
	Complete bool   // the operation that this request enqueued is complete
	Data     []byte // content of the operation's buffer; nil if the communicator has failed
	Fault    *fault
	Position collective.Progress
}

// operation is a collective.Op without memory and events.
type operation struct {
	Kind, Name string
	DType      tensor.DType
	Reduce     collective.Reduce
	Root       int
	Counts     []int64
	Bytes      int64
	Waits      bool // the request ready will send the Data
}

// described returns the description of an operation that can be sent to a process.
func described(op collective.Op) operation {
	buffer, dtype, reduce := op.Memory()
	tags := op.Tags()
	o := operation{Kind: op.Kind(), Name: tags.Name, DType: dtype, Reduce: reduce, Counts: op.Parts(),
		Bytes: buffer.Bytes, Waits: tags.After != nil}
	if b, ok := op.(collective.Broadcast); ok {
		o.Root = b.Root
	}
	return o
}

// on returns the operation with the given buffer and events.
func (o operation) on(buffer device.Region, after, done device.Event) (collective.Op, error) {
	switch o.Kind {
	case collective.AllReduce{}.Kind():
		return collective.AllReduce{Name: o.Name, Buffer: buffer, DType: o.DType, Reduce: o.Reduce, After: after,
			Done: done}, nil
	case collective.Broadcast{}.Kind():
		return collective.Broadcast{Name: o.Name, Buffer: buffer, Root: o.Root, After: after, Done: done}, nil
	case collective.AllGather{}.Kind():
		return collective.AllGather{Name: o.Name, Buffer: buffer, DType: o.DType, Counts: o.Counts, After: after,
			Done: done}, nil
	case collective.ReduceScatter{}.Kind():
		return collective.ReduceScatter{Name: o.Name, Buffer: buffer, DType: o.DType, Reduce: o.Reduce,
			Counts: o.Counts, After: after, Done: done}, nil
	case collective.Barrier{}.Kind():
		return collective.Barrier{Name: o.Name, After: after, Done: done}, nil
	}
	return nil, fmt.Errorf("processes: got an operation of kind %q", o.Kind)
}

// fault is the form of an error that can be sent to another process. The pointers preserve its type for errors.As, and
// Is preserves its identity for errors.Is.
type fault struct {
	Text     string
	Is       []int // indices in sentinels
	Rank     int
	Peer     *fault // the cause, if the error is a PeerError of rank Rank
	Late     *collective.TimeoutError
	Mismatch *collective.MismatchError
}

// sentinels are the errors for which the suite checks with errors.Is.
var sentinels = []error{collective.ErrAborted, collective.ErrClosed, collective.ErrDied, os.ErrDeadlineExceeded,
	context.DeadlineExceeded, device.ErrDevice}

// faultOf returns the fault for an error, or nil if err is nil.
func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	f := &fault{Text: err.Error()}
	var peer *collective.PeerError
	if errors.As(err, &peer) {
		f.Rank, f.Peer = peer.Rank, faultOf(peer.Cause)
		return f
	}
	errors.As(err, &f.Late)
	errors.As(err, &f.Mismatch)
	for i, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			f.Is = append(f.Is, i)
		}
	}
	return f
}

// err restores the error of a fault. causes are the causes that the suite has sent to the rank.
func (f *fault) err(causes []error) error {
	switch {
	case f == nil:
		return nil
	case f.Peer != nil:
		return &collective.PeerError{Rank: f.Rank, Cause: f.Peer.err(nil)}
	case f.Late != nil:
		return f.Late
	case f.Mismatch != nil:
		return f.Mismatch
	}
	return &farError{f, causes}
}

// farError is an error that occurred in the process of a rank.
type farError struct {
	fault  *fault
	causes []error
}

func (e *farError) Error() string { return e.fault.Text }

// Is reports whether target is a sentinel that the error matched in the rank's process, or a cause of the suite with
// the same text.
func (e *farError) Is(target error) bool {
	return slices.ContainsFunc(e.fault.Is, func(i int) bool { return sentinels[i] == target }) ||
		slices.ContainsFunc(e.causes, func(cause error) bool {
			return errors.Is(cause, target) && strings.Contains(e.fault.Text, cause.Error())
		})
}
