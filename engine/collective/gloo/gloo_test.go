//go:build cgo && linux

package gloo

import (
	"context"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

// need skips the test if the library was not built.
func need(t testing.TB) {
	t.Helper()
	nativetest.Need(t, "gloo", LibraryName)
	if err := Available(); err != nil {
		t.Fatal(err)
	}
}

// connect opens a group whose ranks are all in this process.
func connect(t testing.TB, size int, limit time.Duration) ([]*Communicator, *collectivetest.Board) {
	t.Helper()
	need(t)
	return connected(t, size, limit, false)
}

func connected(t conformance.TB, size int, limit time.Duration, encrypt bool) ([]*Communicator,
	*collectivetest.Board) {
	t.Helper()
	return shaped(t, size, limit, encrypt, nil)
}

// shaped opens a group with shape s. If s is nil, the group chooses a shape by measurements.
func shaped(t conformance.TB, size int, limit time.Duration, encrypt bool, s *Shape) ([]*Communicator,
	*collectivetest.Board) {
	t.Helper()
	if s != nil && s.Radix > max(size, 2) {
		s = &Shape{Radix: max(size, 2), Bytes: s.Bytes}
	}
	b := collectivetest.NewBoard()
	return collectivetest.Connected(t, size, func(ctx context.Context, rank int) (*Communicator, error) {
		return Connect(ctx, Config{Rank: rank, Size: size, Control: collectivetest.Seat{Board: b, Rank: rank},
			RankOf: collectivetest.LostRank, Name: "test",
			Host: "127.0.0.1", Timeout: limit, Encrypt: encrypt, Shape: s})
	}), b
}

func TestConformance(t *testing.T) { conform(t, false, nil, collectivetest.Options{}) }

// The group uses a tree for small operations, even if another shape is faster.
func TestConformanceOfATree(t *testing.T) {
	conform(t, false, &Shape{Radix: 2, Bytes: 4 << 10}, collectivetest.Options{Sizes: []int{2, 4, 7}})
}

// crypto/tls allocates a little memory for each record of about 16 KiB that it reads. The suite therefore permits some
// allocations.
func TestConformanceEncrypted(t *testing.T) {
	conform(t, true, &Shape{Radix: 3, Bytes: 256}, collectivetest.Options{Sizes: []int{2, 3, 7}, Allocations: 1000})
}

func conform(t *testing.T, encrypt bool, s *Shape, o collectivetest.Options) {
	need(t)
	open := func(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		comms, b := shaped(t, size, limit, encrypt, s)
		return collectivetest.GroupOf(comms, func(rank int) {
			comms[rank].Die()
			b.Lose(rank, collective.ErrDied) // rank discovery does the same when it loses a rank
		})
	}
	suite := conformance.Go(t)
	if s != nil && !encrypt {
		// The long checks use large operations, but only small operations travel along a tree.
		suite = conformance.Brief(suite, "a long check, which the communicators of packages shm and gloo pass")
	}
	collectivetest.RunWith(suite, open, o)
}
