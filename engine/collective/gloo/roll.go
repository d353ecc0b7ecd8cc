//go:build cgo && linux

package gloo

import (
	"context"
	"encoding/binary"
	"strconv"
	"sync"
	"time"
)

// rollTime is the time for which a rank whose operation has timed out waits for the answers of the other ranks. With a
// larger value, the error comes later. With a smaller value, ranks on a busy machine may be reported as missing
// although they have entered the operation.
const rollTime = time.Second

// answerRoll waits for a roll call until ctx ends or Control breaks. It answers the call by publishing the number of
// operations that this rank has entered. It does not run on the thread of the operations, which may be waiting in the
// library. Therefore, a rank that computes for too long also answers: with the number of an earlier operation.
func (t *transport) answerRoll(ctx context.Context) {
	if _, err := t.config.Control.Get(ctx, t.config.key("roll")); err != nil {
		return
	}
	// An error of Set means that Control is broken, or that this communicator is closing. In both cases, the operation
	// fails anyway.
	_ = t.config.Control.Set(ctx, t.answerKey(t.config.Rank), binary.LittleEndian.AppendUint64(nil, t.entered.Load()))
}

func (t *transport) answerKey(rank int) string { return t.config.key("roll/" + strconv.Itoa(rank)) }

// callTheRoll returns the ranks that have not entered the operation that timed out. In a tree, a rank does not know
// whether the rank for which it waits is itself waiting for another rank. Only the first rank with a time-out calls the
// roll; the other ranks get the result through Control. Without a time-out, the roll causes no messages. If another
// rank has reported a failure, callTheRoll returns an error.
func (t *transport) callTheRoll(limit time.Duration) (missing []int, err error) {
	c, patience := t.config, min(rollTime, limit/2)
	if err := c.Control.Set(context.Background(), c.key("roll"), []byte(strconv.Itoa(c.Rank))); err != nil {
		// Either another rank has called the roll, or Control is broken. If the other rank fails before it has a
		// result, this rank reads the answers itself.
		select {
		case <-c.Control.Broken():
			return nil, c.broken()
		case <-time.After(2 * patience):
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	entered := make([]bool, c.Size)
	entered[c.Rank] = true
	var asked sync.WaitGroup
	for rank := range c.Size {
		if rank == c.Rank {
			continue
		}
		asked.Go(func() {
			word, err := c.Control.Get(ctx, t.answerKey(rank))
			entered[rank] = err == nil && len(word) == 8 && binary.LittleEndian.Uint64(word) >= t.entered.Load()
		})
	}
	asked.Wait()
	select {
	case <-c.Control.Broken(): // the answers are then incomplete
		return nil, c.broken()
	default:
	}
	for rank, in := range entered {
		if !in {
			missing = append(missing, rank)
		}
	}
	return missing, nil
}

// firstLost returns the rank that probably caused the broken connection to the given rank. The first rank in the group
// that detects a broken connection reports the rank at its other end. firstLost returns the reported rank. A rank
// closes its own connections only after its report, so later reports name ranks that only reacted to the failure.
func (t *transport) firstLost(ctx context.Context, rank int) int {
	key := t.config.key("broke")
	_ = t.config.Control.Set(ctx, key, []byte(strconv.Itoa(rank))) // an error means that another rank was first
	word, err := t.config.Control.Get(ctx, key)
	if err != nil {
		return rank
	}
	// The two ranks of a broken connection may report each other. If the report names this rank, ignore it, because
	// this rank is not lost.
	if first, err := strconv.Atoi(string(word)); err == nil && first >= 0 && first < t.config.Size &&
		first != t.config.Rank {
		return first
	}
	return rank
}
