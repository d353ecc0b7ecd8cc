package simulate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// measuredGPUs reads step times on K80, P100 and V100, by network and type. Gavel measured them (Narayanan et al., OSDI
// 2020; github.com/stanford-futuredata/gavel, MIT). The repository does not contain these times.
func measuredGPUs(t *testing.T) map[string]map[string]divide.Curve {
	t.Helper()
	text, err := os.ReadFile(needtest.Data(t, "gavel", "simulation_throughputs.json"))
	if err != nil {
		t.Fatal(err)
	}
	// Type, "('NETWORK (batch size N)', GPUS)", "null": steps/s of the job alone.
	var types map[string]map[string]map[string]any
	if err := json.Unmarshal(text, &types); err != nil {
		t.Fatal(err)
	}
	curves := map[string]map[string]divide.Curve{}
	for kind, jobs := range types {
		for job, rates := range jobs {
			name, rest, found := strings.Cut(strings.TrimPrefix(job, "('"), " (batch size ")
			batch, alone := strings.CutSuffix(rest, ")', 1)")
			rate, _ := rates["null"].(float64)
			samples, err := strconv.ParseFloat(batch, 64)
			if !found || !alone || err != nil || rate <= 0 {
				continue
			}
			if curves[name] == nil {
				curves[name] = map[string]divide.Curve{}
			}
			curves[name][kind] = append(curves[name][kind], divide.Point{Samples: samples, Seconds: 1 / rate})
		}
	}
	for name, kinds := range curves {
		for kind, c := range kinds {
			if slices.SortFunc(c, func(a, b divide.Point) int { return int(a.Samples - b.Samples) }); len(c) < 3 {
				delete(kinds, kind)
			}
		}
		if len(kinds) < 3 {
			delete(curves, name)
		}
	}
	return curves
}

// measuredBlind makes a cluster of measured GPUs whose types the policy does not know. The batch is a quarter to three
// quarters of the capacity of the ranks. With a smaller batch, the first shares would be in the flat parts of the
// curves. No policy can predict that such a curve falls later.
func measuredBlind(gpus map[string]divide.Curve, seed uint64, noise float64) simulate.Options {
	r := rand.New(rand.NewPCG(seed, 3))
	var cluster []divide.Curve
	capacity := 0.0
	for range 2 + r.IntN(7) {
		c := gpus[[]string{"k80", "p100", "v100"}[r.IntN(3)]]
		cluster, capacity = append(cluster, c), capacity+c[len(c)-1].Samples
	}
	return simulate.Options{Policy: "hybrid", Total: int(capacity * (0.25 + 0.5*r.Float64())), Curves: cluster,
		Noise: noise, Steps: 200, Interval: 10, Seed: seed}
}

// The curves of real GPUs are not lines, and are flat for small batches. One curve falls: a K80 takes less time for 32
// images of ResNet-18 than for 16. A policy that does not measure both shares cannot find this. The worst run of this
// network therefore has no bound.
func TestHybridOnMeasuredGPUs(t *testing.T) {
	curves := measuredGPUs(t)
	seeds := seeds(10, 400) // without -simulate.full, 200 runs in total
	for _, noise := range []float64{0.05, 0.2} {
		var known, blind endings
		for _, network := range slices.Sorted(maps.Keys(curves)) {
			p := promise{median: 0.99, worst: 0.9, low: 0.05, worse: 0.02, deepest: 0.03}
			if noise > 0.1 { // with this noise, 200 steps determine the times of a rank only to 2 to 3 %
				p = promise{median: 0.97, worst: 0.9, low: 0.45, worse: 0.1, deepest: 0.05}
			}
			if network == "ResNet-18" {
				p.worst, p.deepest = 0, 0.15
			}
			name := fmt.Sprintf("%s on measured GPUs, %.0f %% noise", network, 100*noise)
			e := playAll(t, seeds, func(seed uint64) simulate.Options {
				o := measuredCluster(curves[network], seed)
				o.Noise = noise
				return o
			})
			e.check(t, name+", types known", p)
			known.add(e)
			e = playAll(t, seeds, func(seed uint64) simulate.Options {
				return measuredBlind(curves[network], seed, noise)
			})
			e.check(t, name+", types unknown", p)
			blind.add(e)
		}
		all := promise{median: 0.99, low: 0.05, worse: 0.02, deepest: 0.15}
		if noise > 0.1 {
			all.median, all.low, all.worse = 0.98, 0.25, 0.06
		}
		known.check(t, fmt.Sprintf("all networks, %.0f %% noise, types known", 100*noise), all)
		blind.check(t, fmt.Sprintf("all networks, %.0f %% noise, types unknown", 100*noise), all)
	}
}
