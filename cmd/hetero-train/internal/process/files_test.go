package process

import (
	"log/slog"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// The counts are peaks of the number of files in /proc/PID/fd, from real runs. The computed need must be at least the
// count, and at most 1.3 times the count.
func TestNeedOfFilesFollowsRealRuns(t *testing.T) {
	for _, c := range []struct {
		name string
		need FileNeed
		peak int
	}{
		{"1 rank", FileNeed{Ranks: 1, Local: 1, First: true, Shared: true}, 24},
		{"8 ranks", FileNeed{Ranks: 8, Local: 8, First: true, Starts: true, Shared: true}, 59},
		{"24 ranks", FileNeed{Ranks: 24, Local: 24, First: true, Starts: true, Shared: true}, 139},
		{"8 ranks over TCP", FileNeed{Ranks: 8, Local: 8, First: true, Starts: true}, 61},
		{"24 ranks over TCP", FileNeed{Ranks: 24, Local: 24, First: true, Starts: true}, 141},
		{"8 ranks, encrypted", FileNeed{Ranks: 8, Local: 8, First: true, Starts: true, Encrypt: true}, 90},
		{"another rank of 24 over TCP", FileNeed{Ranks: 24, Local: 1}, 63},
		{"another rank of 8, encrypted", FileNeed{Ranks: 8, Local: 1, Encrypt: true}, 59},
	} {
		least, most := c.need.Least(), c.need.Most()
		if least < c.peak || least != most || float64(least) > 1.3*float64(c.peak) {
			t.Errorf("%s: got %d to %d files, want one number, %d to %.0f", c.name, least, most, c.peak,
				1.3*float64(c.peak))
		}
	}
}

// If this machine has one rank, the number of machines is unknown: the other ranks may share one machine, or each have
// its own. Such a run must not be refused.
func TestUnknownMachinesAreNotRefused(t *testing.T) {
	n := FileNeed{Ranks: 33, Local: 1, First: true, Shared: true}
	least, most := n.Least(), n.Most()
	if want := 30 + 3*32 + 4 + 2; least != want {
		t.Errorf("got at least %d files, want %d: one connection to another machine", least, want)
	}
	if want := 30 + 3*32 + 4 + 2*32; most != want {
		t.Errorf("got at most %d files, want %d: a connection to each rank", most, want)
	}
	n.Machines = 2
	if n.Least() != least || n.Most() != least {
		t.Errorf("got %d to %d files of 2 machines, want %d", n.Least(), n.Most(), least)
	}
}

func TestSamplesNeedFiles(t *testing.T) {
	opts := session.Options{Assignment: discovery.Assignment{WorldSize: 1, LocalWorldSize: 1}}
	cfg := parts.Defaults()
	cfg.Data.Dataset, cfg.Device.Kind = "image_folder", "cpu"
	trains, computes := needOfFiles(cfg, opts, true), needOfFiles(cfg, opts, false)
	if trains.Least() != 30 || trains.Most() != 60 || computes.Most() != 30 {
		t.Errorf("got %d to %d files with samples and %d without, want 30 to 60 and 30", trains.Least(), trains.Most(),
			computes.Most())
	}
	cfg.Device.Kind = "cuda"
	if got := needOfFiles(cfg, opts, false); got.Least() != 30 || got.Most() != 94 {
		t.Errorf("a GPU: got %d to %d files, want 30 to 94", got.Least(), got.Most())
	}
}

// If the machines of all ranks are known, the need of files is exact.
func TestFilesAreCheckedWithTheMachines(t *testing.T) {
	limit, ok := platform.FileLimit()
	if !ok || limit > 1<<20 {
		t.Skipf("the limit of open files is %d", limit)
	}
	ranks := int(limit) / 4 // rank 0 needs 3 files for each rank, and a connection needs 2
	opts := session.Options{Assignment: discovery.Assignment{WorldSize: ranks, LocalWorldSize: 1},
		Log: slog.New(slog.DiscardHandler)}
	cfg := parts.Defaults()
	if err := CheckFiles(cfg, opts, false); err != nil {
		t.Errorf("unknown machines: %v", err)
	}
	apart := make([][]int, ranks)
	together := [][]int{{0}, nil}
	for rank := range apart {
		apart[rank] = []int{rank}
		if rank > 0 {
			together[1] = append(together[1], rank)
		}
	}
	if err := CheckFilesOf(cfg, opts, together); err != nil {
		t.Errorf("two machines: %v", err)
	}
	if err := CheckFilesOf(cfg, opts, apart); exit.Code(err) != exit.Usage {
		t.Errorf("each rank on its own machine: got %v, want a refusal", err)
	}
}
