//go:build cgo && linux

package gloo

import (
	"context"
	"encoding/binary"
	"strconv"
	"sync"
	"time"
)

// rollTime is how long a rank whose operation has timed out waits for the answers of the other ranks. Larger: the error
// comes later. Smaller: on a busy machine, ranks that have entered the operation are reported as missing.
const rollTime = time.Second

// answerRoll answers a roll call: it publishes the number of operations that this rank has entered. It waits for the
// call until ctx ends or Control breaks. It does not run on the thread of the operations, which waits in the library. A
// rank that computes too long therefore also answers, with the number of an older operation.
func (t *transport) answerRoll(ctx context.Context) {
	if _, err := t.config.Control.Get(ctx, t.config.key("roll")); err != nil {
		return
	}
	// An error means that Control is broken, or that this communicator is closing. In both cases the operation fails
	// anyway.
	_ = t.config.Control.Set(ctx, t.answerKey(t.config.Rank), binary.LittleEndian.AppendUint64(nil, t.entered.Load()))
}

func (t *transport) answerKey(rank int) string { return t.config.key("roll/" + strconv.Itoa(rank)) }

// callTheRoll returns the ranks that have not entered the operation that timed out. In a tree, a rank does not know
// whether the rank for which it waits is itself waiting. Only the first rank with a time-out calls the roll; other
// ranks receive its result through Control. Before a time-out, the roll needs no messages. If another rank has reported
// a failure, callTheRoll returns an error.
func (t *transport) callTheRoll(limit time.Duration) (missing []int, err error) {
	c, patience := t.config, min(rollTime, limit/2)
	if err := c.Control.Set(context.Background(), c.key("roll"), []byte(strconv.Itoa(c.Rank))); err != nil {
		// Another rank calls the roll, or Control is broken. If the other rank fails before it has a result, this rank
		// reads the answers.
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

// firstLost returns the rank that probably caused the broken connection to rank. The first rank that detects a broken
// connection reports the rank at its other end, and firstLost returns this rank. A rank closes its own connections only
// after its report, so later reports name ranks that only reacted to the failure.
func (t *transport) firstLost(ctx context.Context, rank int) int {
	key := t.config.key("broke")
	_ = t.config.Control.Set(ctx, key, []byte(strconv.Itoa(rank))) // an error if another rank was first
	word, err := t.config.Control.Get(ctx, key)
	if err != nil {
		return rank
	}
	// The two ranks of a broken connection report each other; this rank itself is not lost.
	if first, err := strconv.Atoi(string(word)); err == nil && first >= 0 && first < t.config.Size &&
		first != t.config.Rank {
		return first
	}
	return rank
}
