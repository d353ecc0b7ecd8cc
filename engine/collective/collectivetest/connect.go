package collectivetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/conformance"
)

// Connected returns communicators of ranks that are all in this process. It calls connect for every rank concurrently.
func Connected[C collective.Communicator](t conformance.TB, size int,
	connect func(ctx context.Context, rank int) (C, error)) []C {
	t.Helper()
	comms := make([]C, size)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wg sync.WaitGroup
	for rank := range comms {
		wg.Go(func() {
			var err error
			if comms[rank], err = connect(ctx, rank); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return comms
}

// GroupOf returns a group of communicators. The function kill must end a rank as kill -9 does: the rank notifies no
// other rank.
func GroupOf[C collective.Communicator](comms []C, kill func(rank int)) Group {
	g := Group{Kill: kill}
	for _, c := range comms {
		g.Comms = append(g.Comms, c)
	}
	return g
}

// Board is a key-value store for communicators that need such a store to connect. All ranks are in one process. Each
// rank has a [Seat].
type Board struct {
	mu      sync.Mutex
	values  map[string][]byte
	changed chan struct{} // closed and replaced when a value is stored
	broken  chan struct{}
	err     error
}

// NewBoard returns an empty board.
func NewBoard() *Board {
	return &Board{values: map[string][]byte{}, changed: make(chan struct{}), broken: make(chan struct{})}
}

// Seat is a rank's view of a board.
type Seat struct {
	*Board
	Rank int
}

// Abort breaks the group for all ranks.
func (s Seat) Abort(cause error) { s.Lose(s.Rank, cause) }

// lostError is the error of a board that has lost a rank.
type lostError struct {
	rank  int
	cause error
}

func (e *lostError) Error() string { return fmt.Sprintf("rank %d is lost: %v", e.rank, e.cause) }
func (e *lostError) Unwrap() error { return e.cause }

// LostRank returns the lost rank that err names, if err is the error of a Board. For any other error, it returns -1.
func LostRank(err error) int {
	var lost *lostError
	if errors.As(err, &lost) {
		return lost.rank
	}
	return -1
}

// Set stores value under key. Like package rendezvous, it keeps the first value, and returns an error if a later value
// differs.
func (b *Board) Set(_ context.Context, key string, value []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before, ok := b.values[key]; ok {
		if !bytes.Equal(before, value) {
			return fmt.Errorf("key %q is set to %q already, got %q", key, before, value)
		}
		return nil
	}
	b.values[key] = value
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

// Get waits until a rank has set the key.
func (b *Board) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		b.mu.Lock()
		value, ok := b.values[key]
		changed := b.changed
		b.mu.Unlock()
		if ok {
			return value, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Broken returns a channel that is closed when a rank is lost.
func (b *Board) Broken() <-chan struct{} { return b.broken }

// Err returns an error that names the lost rank; nil if no rank is lost.
func (b *Board) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Lose marks a rank as lost, as rank discovery does when a rank is gone. Only the first call has an effect.
func (b *Board) Lose(rank int, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = &lostError{rank, cause}
		close(b.broken)
	}
}
