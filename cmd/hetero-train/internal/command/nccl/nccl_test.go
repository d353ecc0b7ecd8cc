package nccl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/nccl"
	"github.com/hetero-train/hetero-train/profiler/measure"
)

func TestTuningIsSavedAndShown(t *testing.T) {
	trials := []nccl.Trial{
		{Bytes: 2 << 20, Seconds: 200e-6, BusGBytes: 10}, {Bytes: 16 << 20, Seconds: 1600e-6, BusGBytes: 10},
		{Combination: nccl.Combination{Algo: "Tree", Proto: "Simple", Channels: 8}, Bytes: 2 << 20, Seconds: 100e-6,
			BusGBytes: 20},
		{Combination: nccl.Combination{Algo: "Tree", Proto: "Simple", Channels: 8}, Bytes: 16 << 20, Seconds: 800e-6,
			BusGBytes: 20},
	}
	found, dir := sumUp(trials), filepath.Join(t.TempDir(), "new")
	if err := found.save(dir, 1, 2); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "nccl.toml"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse("nccl.toml", text, parts.BuiltinCatalog) // the written file must be a valid configuration
	if err != nil || cfg.NCCL.Algo != "Tree" || cfg.NCCL.Proto != "Simple" || cfg.NCCL.MaxCTAs != 8 {
		t.Errorf("got %q: %v and %v", text, cfg, err)
	}
	if csv, err := os.ReadFile(filepath.Join(dir, "nccl_tuner.csv")); err != nil ||
		!strings.Contains(string(csv), "allreduce,0,8388607,tree,simple,8,1,2,-1,-1\n") {
		t.Errorf("got %q and %v", csv, err)
	}
	var out bytes.Buffer
	if err := found.write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2048 KiB  16384 KiB", "any, any", "10.00", "Tree, Simple, 8 channels",
		"for gradient buckets: Tree, Simple, 8 channels (2.00 times"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", out.String(), want)
		}
	}
}

func TestCheckIsShown(t *testing.T) {
	found := ncclFound{Ranks: []rankNCCL{{Host: "a", Device: "cuda:0", Model: "H100", NCCL: "2.28.9 (/x)"}},
		AllReduce: []measure.AllReduced{{Bytes: 4 << 10, Seconds: 20e-6, BusGBytes: 0.2}},
		Pairs:     []nccl.Pair{{Ranks: [2]int{0, 1}, LatencySeconds: 12e-6, BusGBytes: 120}}, Slow: []int{2, 3}}
	var out bytes.Buffer
	if err := found.write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0     a     cuda:0  H100", "4 KiB", "20.0 us", "0 - 1", "120.00 GB/s",
		"slow: rank 2, 3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", out.String(), want)
		}
	}
}
