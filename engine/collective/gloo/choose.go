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
	// trialBytes is the buffer size of the all-reduces with which the method fastest compares shapes. It is about the
	// size of a rank's report.
	trialBytes = 1 << 10
	// trialRounds is the number of measured operations per shape. A larger value makes the start longer, and a smaller
	// one makes the times noisier.
	trialRounds = 4
	// fewRanks is the largest group in which direct messages are measured several times. In larger groups, one such
	// operation takes up to a second if the ranks share few cores.
	fewRanks = 16
	// trialTime is the minimum time limit of a measured operation.
	trialTime = 10 * time.Second
	// firstTrial is the number of the first measured operation. It is so large that these numbers differ from those of
	// the queue, which start at 1.
	firstTrial = 1 << 40
)

// treeBytes are the candidates for Shape.Bytes with a tree. In a tree, rank 0 receives the data of all ranks, so larger
// operations are faster if each rank reduces a part.
var treeBytes = []int64{256, 1 << 10, 4 << 10, maxTreeBytes}

// trial measures operations before the communicator starts its queue.
type trial struct {
	*transport
	memory []byte
	number uint64
}

// choose returns the shape for this group: Config.Shape if it is set, otherwise the fastest shape. The result is the
// same on all ranks.
func (t *transport) choose(ctx context.Context) (s Shape, err error) {
	size := int64(t.config.Size)
	direct := Shape{Bytes: max(directBytes/size, treeBytes[0])}
	switch {
	case t.config.Shape != nil:
		return *t.config.Shape, t.conn.shape(*t.config.Shape)
	case size == 2: // a tree would send the same messages, but in sequence
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

// fastest measures trees of several radices and direct messages, and returns the fastest shape.
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
		rounds = 0 // measure only one operation, without a warm-up
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
	// All ranks use the choice of rank 0. Their own choices could differ, because times and rounding differ between
	// machines.
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

// threshold returns the largest size for which operations are faster along the tree than with direct messages.
//
//	small, large  seconds of a tree operation on trialBytes and on maxTreeBytes
//	direct        seconds of one direct exchange of messages between all ranks
//
// Above the threshold, each rank reduces one part of the buffer. Such an operation takes the time of a small tree
// operation and two direct exchanges.
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

// measure returns the seconds of an operation with shape s: the mean of some rounds after a warm-up. If rounds is 0, it
// returns the time of one operation without a warm-up.
func (m *trial) measure(ctx context.Context, s Shape, bytes int64, rounds int) (seconds float64, err error) {
	if err := m.conn.shape(s); err != nil {
		return 0, err
	}
	if err := m.run(ctx, collective.Barrier{Name: "measure"}); err != nil { // so that all ranks start at the same time
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

// agree returns the choice of rank 0. The ranks use shape s for this exchange.
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

// limit returns the time limit of one operation. It is at least trialTime, because the first operation also waits for
// ranks that are still connecting. The limit expires before ctx ends, because an error of ctx would not name a rank.
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

// run performs one operation on all ranks. The buffer is m.memory; op determines only its size.
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
