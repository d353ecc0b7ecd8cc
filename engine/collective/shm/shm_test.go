//go:build cgo && linux

package shm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/conformance"
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
	if errors.Is(err, fs.ErrNotExist) && !strings.Contains(os.Getenv("HETERO_REQUIRE"), "cpu") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// connect makes a group whose ranks are all in this process.
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

// TestConformanceInManyTurns: stages so small that every buffer takes many turns.
func TestConformanceInManyTurns(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	need(t)
	collectivetest.Run(conformance.Go(t), func(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		return groupOf(connected(t, size, Config{Timeout: limit, StageBytes: 4096}))
	})
}
