//go:build cgo && linux

package gloo

import (
	"context"
	"encoding/binary"
	"strconv"
	"sync"
	"time"
)

// rollTime is how long a rank whose time has expired waits for the answers of the others. Larger: the error is later.
// Smaller: on a busy machine, ranks that have entered are named as missing.
const rollTime = time.Second

// answerRoll tells the rank that calls the roll how many operations this rank has entered. It waits for the call until
// ctx ends or Control breaks. It runs apart from the thread of the operations, which waits in the library. A rank that
// computes too long therefore answers, too, with an older operation.
func (t *transport) answerRoll(ctx context.Context) {
	if _, err := t.config.Control.Get(ctx, t.config.key("roll")); err != nil {
		return
	}
	// An error means that Control is broken, or that this communicator closes. Then the operation fails anyway.
	_ = t.config.Control.Set(ctx, t.answerKey(t.config.Rank), binary.LittleEndian.AppendUint64(nil, t.entered.Load()))
}

func (t *transport) answerKey(rank int) string { return t.config.key("roll/" + strconv.Itoa(rank)) }

// callTheRoll returns the ranks that have not entered the operation whose time has expired. In a tree, a rank that
// waits for another does not know whether that one waits, too. Only the first rank whose time expires calls: the others
// receive its result through Control. The roll needs no messages before a time expires. callTheRoll returns an error if
// another rank has reported a failure meanwhile.
func (t *transport) callTheRoll(limit time.Duration) (missing []int, err error) {
	c, patience := t.config, min(rollTime, limit/2)
	if err := c.Control.Set(context.Background(), c.key("roll"), []byte(strconv.Itoa(c.Rank))); err != nil {
		// Another rank calls, or Control is broken. If that rank fails before it has a result, this rank reads the
		// answers.
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

// firstLost returns the rank that is probably at fault for the broken connection to a rank: the one that the first rank
// with a broken connection lost. A rank closes its own connections only after this report, so later reports name ranks
// that merely passed the failure on.
func (t *transport) firstLost(ctx context.Context, rank int) int {
	key := t.config.key("broke")
	_ = t.config.Control.Set(ctx, key, []byte(strconv.Itoa(rank))) // an error if another rank was first
	word, err := t.config.Control.Get(ctx, key)
	if err != nil {
		return rank
	}
	// Both ends of a broken connection report each other; this rank is not lost.
	if first, err := strconv.Atoi(string(word)); err == nil && first >= 0 && first < t.config.Size &&
		first != t.config.Rank {
		return first
	}
	return rank
}
