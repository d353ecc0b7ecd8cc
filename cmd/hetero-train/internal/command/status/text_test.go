package status

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/profiler/runs"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/telemetry"
)

func TestTextOfARun(t *testing.T) {
	half, oracle := 0.5, 0.987
	v := runs.View{Name: "a", Last: 50, Length: 200, State: runs.State{Kind: runs.Running}}
	v.Settings.Model.Name, v.Settings.Data.Dataset, v.Settings.Balance.Policy = "resnet50", "cifar10", "hybrid"
	v.Decision = &runs.Decision{Step: 40, Policy: "hybrid", Shares: []int{40, 24}, Next: []int{48, 16}, Changed: true, Reason: "rank 1 is the slowest", OfOracle: &oracle, Imbalance: &half,
		Lost: map[string]*float64{"data": &half}}
	v.Alerts = []runs.Alert{{Step: 40, Kind: "straggler", Text: "rank 1 is slower than usual"}}
	for rank, health := range []string{"healthy", "sick"} {
		r := runtime.Record{Iteration: 50, Rank: rank, BatchSize: int64(40 - 16*rank), Loss: 1.25, Forward: 100 * time.Millisecond, Backward: 100 * time.Millisecond, Telemetry: telemetry.Unknown()}
		r.Telemetry[telemetry.Utilization] = 71
		k := runs.RankView{Rank: rank, Record: &r, Health: health}
		if rank == 1 {
			k.Cause = "thermal throttling"
		}
		v.Ranks = append(v.Ranks, k)
	}
	const want = `a: running, step 50 of 200 (25 %), about 30s left
resnet50 on cifar10 | policy hybrid | loss 1.2500 | step 200.0 ms

[Load Balancer Status] step 50 | hybrid, decision at step 40: imbalance 50.0 % | 98.7 % of the oracle (- to -) | time lost per step, ms: data 500.0
  node  use %  memory %  batch  samples/s  busy ms  wait ms                                       verdict
     0     71         -     40        200    200.0      0.0                                       healthy
     1     71         -     24        120    200.0      0.0  slower than usual, cause: thermal throttling
Cluster Throughput: 320 samples/s
last decision: step 40: 40/24 to 48/16: rank 1 is the slowest
alert: step 40: rank 1 is slower than usual
`
	if got := Text(v); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	empty := Text(runs.View{Name: "b", State: runs.State{Kind: runs.Crashed, Why: "the process ended"}})
	if !strings.HasPrefix(empty, "b: crashed\nthe process ended\n") {
		t.Errorf("a run without records: got %q", empty)
	}
}

func TestWatchEndsWhenTheRunIsGone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := errors.Join(os.MkdirAll(filepath.Join(path, "configs"), 0o755), os.WriteFile(filepath.Join(path, "configs", "resolved.toml"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", path} {
		folder, run, err := open(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		defer folder.Close()
		defer run.Close()
		if err := os.Rename(path, path+"-1"); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = follow(t.Context(), folder, run, screen{View: logs.NewView(&out), out: &out})
		if exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), "folder of run a no longer exists") || out.Len() > 0 {
			t.Errorf("%s: got error %v and output %q, want exit code %d and no output", name, err, out.String(), exit.Usage)
		}
		if err := os.Rename(path+"-1", path); err != nil {
			t.Fatal(err)
		}
	}
}
