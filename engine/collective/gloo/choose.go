//go:build cgo && linux

package gloo

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

const (
	// trialBytes is what a rank contributes to an operation that compares shapes: about the report of a rank.
	trialBytes = 1 << 10
	// trialRounds is the number of measured operations of a shape. Larger: a longer start. Smaller: more noise.
	trialRounds = 4
	// fewRanks is the largest group in which all ranks measure direct messages several times. In larger groups one
	// such operation takes up to a second if the ranks share few cores.
	fewRanks = 16
	// trialTime is the least time limit of an operation that measures.
	trialTime = 10 * time.Second
	// firstTrial is the number of the first operation that measures; the queue counts from 1.
	firstTrial = 1 << 40
)

// treeBytes are the sizes of small operations among which a tree chooses. The top of the tree receives the data of all
// ranks, so larger operations are faster if each rank reduces a part.
var treeBytes = []int64{256, 1 << 10, 4 << 10, maxTreeBytes}

// trial measures operations before the communicator starts.
type trial struct {
	*transport
	memory []byte
	number uint64
}

// choose returns the shape for this group: Config.Shape, or the fastest one. All ranks get the same.
func (t *transport) choose(ctx context.Context) (s Shape, err error) {
	size := int64(t.config.Size)
	direct := Shape{Bytes: max(directBytes/size, treeBytes[0])}
	switch {
	case t.config.Shape != nil:
		return *t.config.Shape, t.conn.shape(*t.config.Shape)
	case size == 2: // a tree has the same messages, one after the other
		return direct, t.conn.shape(direct)
	}
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
			t.conn.stop()
		case <-t.config.Control.Broken():
			t.conn.stop()
		case <-over:
		}
	}()
	defer func() {
		close(over)
		<-stopped
	}()
	m := &trial{t, make([]byte, maxTreeBytes), firstTrial}
	if s, err = m.fastest(ctx, direct); err == nil {
		err = t.conn.shape(s)
	}
	return s, err
}

// fastest compares trees of several radices and direct messages.
func (m *trial) fastest(ctx context.Context, direct Shape) (Shape, error) {
	size := m.config.Size
	candidates := []Shape{{Radix: size, Bytes: maxTreeBytes}}
	for radix := 2; radix < size && radix <= 8; radix *= 2 {
		candidates = append(candidates, Shape{Radix: radix, Bytes: maxTreeBytes})
	}
	took := make([]float64, len(candidates)+1) // seconds
	for i, s := range candidates {
		var err error
		if took[i], err = m.measure(ctx, s, trialBytes, trialRounds); err != nil {
			return s, err
		}
	}
	rounds := trialRounds
	if size > fewRanks {
		rounds = 0 // only one operation, without a warm-up
	}
	var err error
	if took[len(candidates)], err = m.measure(ctx, direct, min(trialBytes, direct.Bytes), rounds); err != nil {
		return direct, err
	}
	best := 0
	for i := range candidates {
		if took[i] < took[best] {
			best = i
		}
	}
	directTook, s := took[len(candidates)], candidates[best]
	if directTook <= took[best] {
		s = direct
	}
	// All ranks take the choice of rank 0. No other rank computes it: times and rounding differ between machines.
	if s, err = m.agree(ctx, candidates[0], s); err != nil || s.Radix == 0 {
		return s, err
	}
	large, err := m.measure(ctx, s, maxTreeBytes, trialRounds)
	if err != nil {
		return s, err
	}
	chosen := s
	chosen.Bytes = threshold(took[best], large, directTook)
	return m.agree(ctx, s, chosen)
}

// threshold returns the largest size of operations that are faster along a tree than with direct messages.
//
//	small, large  seconds of an operation of trialBytes and of maxTreeBytes along the tree
//	direct        seconds of one exchange of messages between all ranks; an operation that each rank reduces a part of
//	              enters along the tree and has two exchanges
func threshold(small, large, direct float64) (bytes int64) {
	bytes = treeBytes[0]
	for _, b := range treeBytes[1:] {
		fraction := float64(b-trialBytes) / (maxTreeBytes - trialBytes)
		if small+max(large-small, 0)*fraction > small+2*direct {
			break
		}
		bytes = b
	}
	return bytes
}

// measure returns the seconds of an operation in a shape: the mean of some rounds after a warm-up, or for 0 rounds the
// time of one operation.
func (m *trial) measure(ctx context.Context, s Shape, bytes int64, rounds int) (seconds float64, err error) {
	if err := m.conn.shape(s); err != nil {
		return 0, err
	}
	if err := m.run(ctx, collective.Barrier{Name: "measure"}); err != nil { // begin together
		return 0, err
	}
	op := collective.AllReduce{Name: "measure", DType: tensor.U8,
		Buffer: device.Region{Bytes: bytes}}
	if rounds > 0 {
		if err := m.run(ctx, op); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	for range max(rounds, 1) {
		if err := m.run(ctx, op); err != nil {
			return 0, err
		}
	}
	return time.Since(start).Seconds() / float64(max(rounds, 1)), nil
}

// agree returns the choice of rank 0. The ranks exchange it in the shape s.
func (m *trial) agree(ctx context.Context, s, choice Shape) (Shape, error) {
	if err := m.conn.shape(s); err != nil {
		return choice, err
	}
	binary.LittleEndian.PutUint64(m.memory, uint64(choice.Radix))
	binary.LittleEndian.PutUint64(m.memory[8:], uint64(choice.Bytes))
	if err := m.run(ctx, collective.Broadcast{Name: "measure", Buffer: device.Region{Bytes: 16}}); err != nil {
		return choice, err
	}
	return Shape{Radix: int(binary.LittleEndian.Uint64(m.memory)),
		Bytes: int64(binary.LittleEndian.Uint64(m.memory[8:]))}, nil
}

// limit returns the time limit of one operation. The first one also waits for ranks that are still connecting, so a
// short Config.Timeout does not count. The limit ends before ctx does: the error of ctx names no rank.
func (m *trial) limit(ctx context.Context) time.Duration {
	limit := m.config.Timeout
	if limit > 0 {
		limit = max(limit, trialTime)
	}
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		if left -= min(left/4, 4*rollTime); limit == 0 || limit > left {
			limit = max(left, time.Millisecond)
		}
	}
	return limit
}

// run performs one operation on all ranks. The operation states only the size of its buffer, which is in m.memory.
func (m *trial) run(ctx context.Context, op collective.Op) error {
	buffer, _, _ := op.Memory()
	limit := m.limit(ctx)
	r := m.transport.run(op, m.number, limit, m.memory[:buffer.Bytes])
	m.number++
	switch r.status {
	case completed:
		return nil
	case stopped:
		return m.config.reason(ctx, errors.New("stopped"))
	}
	return m.failure(op, m.number-1, limit, r)
}
