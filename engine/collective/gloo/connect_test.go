//go:build cgo && linux

package gloo

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
)

// slow is a Control on which it takes a while until a value is there, and never is if the context ends before.
type slow struct{ collectivetest.Seat }

func (s slow) Set(ctx context.Context, key string, value []byte) error {
	select {
	case <-time.After(50 * time.Millisecond):
		return s.Seat.Set(ctx, key, value)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// configs are of two ranks that meet at a board. Gloo lets the one with the larger address connect, the other waits for it.
func configs(control func(collectivetest.Seat) Control) (b *collectivetest.Board, ranks [2]Config) {
	b = collectivetest.NewBoard()
	for rank, host := range []string{"127.0.0.1", "127.0.0.2"} {
		ranks[rank] = Config{Rank: rank, Size: 2, Control: control(collectivetest.Seat{Board: b, Rank: rank}), RankOf: collectivetest.LostRank, Host: host}
	}
	return b, ranks
}

func seat(s collectivetest.Seat) Control { return s }

// TestOneRankHasConnectedBeforeTheOtherKnows: rank 1 knows where rank 0 listens, and is connected to it, while rank 0 still waits to hear of rank 1.
func TestOneRankHasConnectedBeforeTheOtherKnows(t *testing.T) {
	need(t)
	_, ranks := configs(func(s collectivetest.Seat) Control { return slow{s} })
	comms := collectivetest.Connected(t, 2, func(ctx context.Context, rank int) (*Communicator, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return Connect(ctx, ranks[rank])
	})
	done := make(chan error, 2)
	for _, c := range comms {
		if err := c.Enqueue(collective.Barrier{}); err != nil {
			t.Fatal(err)
		}
		go func() { done <- errors.Join(c.Sync(t.Context()), c.Close()) }()
	}
	for range comms {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestConnectingEnds: with the context, or when the other rank is gone, whatever it waits for, and says what that was.
func TestConnectingEnds(t *testing.T) {
	need(t)
	lib, err := openLibrary()
	if err != nil {
		t.Fatal(err)
	}
	errGone := errors.New("gone")
	for _, c := range []struct {
		name    string
		listens bool // rank 1 says so, but does not connect
		phase   string
	}{
		{"before the other says where it listens", false, "wait for rank 1 to say where it listens: "},
		{"before the other connects", true, "wait for the connection with rank 1: "},
	} {
		for _, lost := range []bool{false, true} {
			b, ranks := configs(seat)
			if c.listens {
				conn, err := lib.open(1, 2, ranks[1].Host, "", time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.close()
				word, err := json.Marshal([][]byte{conn.address(0), nil})
				if err != nil {
					t.Fatal(err)
				}
				if err := b.Set(t.Context(), ranks[1].addressesKey(1), word); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			began := make(chan struct{})
			ranks[0].Control = watched{ranks[0].Control, began}
			go func() {
				<-began
				time.Sleep(20 * time.Millisecond) // it may wait by now
				if lost {
					b.Lose(1, errGone)
				} else {
					cancel(errGone)
				}
			}()
			_, err := Connect(ctx, ranks[0])
			cancel(nil)
			var peer *collective.PeerError
			if !errors.Is(err, errGone) || !strings.Contains(err.Error(), "rank 0 of 2: connect: "+c.phase) || lost != (errors.As(err, &peer) && peer.Rank == 1) {
				t.Errorf("%s, rank 1 lost: %v: got %v", c.name, lost, err)
			}
		}
	}
}

// watched closes began when its rank waits for another.
type watched struct {
	Control
	began chan struct{}
}

func (w watched) Get(ctx context.Context, key string) ([]byte, error) {
	close(w.began)
	return w.Control.Get(ctx, key)
}
