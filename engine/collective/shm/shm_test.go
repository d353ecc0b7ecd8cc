//go:build cgo && linux

package shm

import (
	"context"
	"errors"
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
	c.Size, c.Address = size, NewAddress()
	comms := make([]*Communicator, size)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for rank := range comms {
		wg.Go(func() {
			c := c
			c.Rank = rank
			var err error
			if comms[rank], err = Connect(ctx, c); err != nil {
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

func groupOf(comms []*Communicator) collectivetest.Group {
	g := collectivetest.Group{Kill: func(rank int) { comms[rank].transport.die() }}
	for _, c := range comms {
		g.Comms = append(g.Comms, collective.Communicator(c))
	}
	return g
}

func TestConformance(t *testing.T) {
	collectivetest.Run(t, func(t *testing.T, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		return groupOf(connect(t, size, Config{Timeout: limit}))
	})
}

// TestConformanceInManyTurns: stages so small that every buffer takes many turns.
func TestConformanceInManyTurns(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	collectivetest.Run(t, func(t *testing.T, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		return groupOf(connect(t, size, Config{Timeout: limit, StageBytes: 4096}))
	})
}
