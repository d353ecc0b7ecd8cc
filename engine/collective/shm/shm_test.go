//go:build cgo && linux

package shm

import (
	"context"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// need skips the test if the library was not built.
func need(t testing.TB) {
	t.Helper()
	nativetest.Need(t, "cpu", LibraryName)
	if err := Available(); err != nil {
		t.Fatal(err)
	}
}

// connect opens a group whose ranks are all in this process.
func connect(t testing.TB, size int, c Config) []*Communicator {
	t.Helper()
	need(t)
	return connected(t, size, c)
}

func connected(t conformance.TB, size int, c Config) []*Communicator {
	c.Size, c.Address = size, NewAddress()
	return collectivetest.Connected(t, size, func(ctx context.Context, rank int) (*Communicator, error) {
		own := c
		own.Rank = rank
		return Connect(ctx, own)
	})
}

func groupOf(comms []*Communicator) collectivetest.Group {
	return collectivetest.GroupOf(comms, func(rank int) { comms[rank].Die() })
}

func TestConformance(t *testing.T) {
	need(t)
	collectivetest.Run(conformance.Go(t), func(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		return groupOf(connected(t, size, Config{Timeout: limit}))
	})
}

// The stages are so small that every buffer passes through them in many turns.
func TestConformanceInManyTurns(t *testing.T) {
	needtest.NotShort(t, "sends every buffer in many turns")
	need(t)
	collectivetest.Run(conformance.Go(t), func(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		return groupOf(connected(t, size, Config{Timeout: limit, StageBytes: 4096}))
	})
}
