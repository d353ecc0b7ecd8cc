//go:build cgo && linux

package gloo

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
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
	if errors.Is(err, fs.ErrNotExist) && !strings.Contains(os.Getenv("HETERO_REQUIRE"), "gloo") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// connect makes a group whose ranks are all in this process.
func connect(t testing.TB, size int, limit time.Duration) ([]*Communicator, *collectivetest.Board) {
	t.Helper()
	need(t)
	return connected(t, size, limit)
}

func connected(t conformance.TB, size int, limit time.Duration) ([]*Communicator, *collectivetest.Board) {
	t.Helper()
	b := collectivetest.NewBoard()
	return collectivetest.Connected(t, size, func(ctx context.Context, rank int) (*Communicator, error) {
		return Connect(ctx, Config{Rank: rank, Size: size, Control: collectivetest.Seat{Board: b, Rank: rank}, RankOf: collectivetest.LostRank, Name: "test",
			Host: "127.0.0.1", Timeout: limit})
	}), b
}

func TestConformance(t *testing.T) {
	need(t)
	collectivetest.Run(conformance.Go(t), func(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		comms, b := connected(t, size, limit)
		return collectivetest.GroupOf(comms, func(rank int) {
			comms[rank].Die()
			b.Lose(rank, collective.ErrDied) // as the rendezvous finds out
		})
	})
}
