package exchange

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

// One exchange opens communicators of different groups of ranks, as nccl check does. A group must not use the shape of
// another one, because the tree of a group cannot have more ranks than the group.
func TestEachGroupOfRanksHasItsOwnShape(t *testing.T) {
	nativetest.Need(t, "gloo", gloo.LibraryName)
	const size = 3
	board := collectivetest.NewBoard()
	var exchanges []*Exchange
	for rank := range size {
		place := discovery.Assignment{Rank: rank, WorldSize: size}
		k := compute.NewRank(parts.Defaults(), session.Options{Assignment: place,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		k.Team = &process.Team{Place: place}
		exchanges = append(exchanges, &Exchange{Rank: k})
	}
	open := func(name string, ranks ...int) {
		t.Helper()
		comms := collectivetest.Connected(t, len(ranks),
			func(ctx context.Context, i int) (collective.Communicator, error) {
				return exchanges[ranks[i]].Network(ctx, collectivetest.Seat{Board: board, Rank: i}, name, ranks,
					time.Minute, collectivetest.LostRank)
			})
		for _, c := range comms {
			if c.Size() != len(ranks) {
				t.Errorf("%s: got %d ranks, want %d", name, c.Size(), len(ranks))
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	// Measurements of all ranks often choose this shape.
	for _, x := range exchanges {
		x.shapes = map[string]*gloo.Shape{"[0 1 2]": {Radix: 3, Bytes: 4096}}
	}
	open("all ranks", 0, 1, 2)
	open("pair 0-1", 0, 1)
	open("pair 1-2", 1, 2)
	open("pair 1-2 again", 1, 2)
	for rank, x := range exchanges {
		var keys []string
		for key := range x.shapes {
			keys = append(keys, key)
		}
		if want := []int{2, 3, 2}[rank]; len(keys) != want {
			t.Errorf("rank %d: got shapes of %s, want %d", rank, strings.Join(keys, " and "), want)
		}
	}
}
