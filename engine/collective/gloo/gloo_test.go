//go:build cgo && linux

package gloo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/nativelib"
)

// need skips where the library is not built. Without HETERO_LIB_DIR it is taken from the source tree's build/lib: a test
// binary lies elsewhere than the program.
func need(t testing.TB) {
	t.Helper()
	if os.Getenv(nativelib.DirVariable) == "" {
		dir, err := filepath.Abs("../../../build/lib")
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(nativelib.DirVariable, dir)
	}
	err := Available()
	if errors.Is(err, fs.ErrNotExist) && !strings.Contains(os.Getenv("HETERO_REQUIRE"), "gloo") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// board is the Control of ranks in one process: what one sets, all see.
type board struct {
	mu      sync.Mutex
	values  map[string][]byte
	changed chan struct{} // closed at the next change
	broken  chan struct{}
	err     error
}

func newBoard() *board {
	return &board{values: map[string][]byte{}, changed: make(chan struct{}), broken: make(chan struct{})}
}

// seat is a rank's view of a board.
type seat struct {
	*board
	rank int
}

// goneError is what the board says of a rank.
type goneError struct {
	rank  int
	cause error
}

func (e *goneError) Error() string { return fmt.Sprintf("rank %d is gone: %v", e.rank, e.cause) }
func (e *goneError) Unwrap() error { return e.cause }

func rankOf(err error) int {
	var gone *goneError
	if errors.As(err, &gone) {
		return gone.rank
	}
	return -1
}

func (b *board) Set(_ context.Context, key string, value []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values[key] = value
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

func (b *board) Get(ctx context.Context, key string) ([]byte, error) {
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

func (b *board) Broken() <-chan struct{} { return b.broken }

func (b *board) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

func (s seat) Abort(cause error) { s.lose(s.rank, cause) }

func (b *board) lose(rank int, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = &goneError{rank, cause}
		close(b.broken)
	}
}

// connect makes a group whose ranks are all in this process.
func connect(t testing.TB, size int, limit time.Duration) ([]*Communicator, *board) {
	t.Helper()
	need(t)
	b := newBoard()
	comms := make([]*Communicator, size)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for rank := range comms {
		wg.Go(func() {
			var err error
			comms[rank], err = Connect(ctx, Config{Rank: rank, Size: size, Control: seat{b, rank}, RankOf: rankOf, Name: "test", Host: "127.0.0.1", Timeout: limit})
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return comms, b
}

func TestConformance(t *testing.T) {
	collectivetest.Run(t, func(t *testing.T, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		comms, b := connect(t, size, limit)
		g := collectivetest.Group{Kill: func(rank int) {
			comms[rank].transport.die()
			b.lose(rank, collective.ErrDied) // as the rendezvous finds out
		}}
		for _, c := range comms {
			g.Comms = append(g.Comms, collective.Communicator(c))
		}
		return g
	})
}
