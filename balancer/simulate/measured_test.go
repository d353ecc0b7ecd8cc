package simulate_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/simulate"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// measuredGPUs reads the step times that Gavel (Narayanan et al., OSDI 2020; github.com/stanford-futuredata/gavel, MIT) measured on K80, P100 and V100, by network
// and type. They are no part of this project.
func measuredGPUs(t *testing.T) map[string]map[string]balancer.Curve {
	t.Helper()
	text, err := os.ReadFile(needtest.Data(t, "gavel", "simulation_throughputs.json"))
	if err != nil {
		t.Fatal(err)
	}
	var types map[string]map[string]map[string]any // type, "('NETWORK (batch size N)', GPUS)", "null": steps/s alone
	if err := json.Unmarshal(text, &types); err != nil {
		t.Fatal(err)
	}
	curves := map[string]map[string]balancer.Curve{}
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
				curves[name] = map[string]balancer.Curve{}
			}
			curves[name][kind] = append(curves[name][kind], balancer.Point{Samples: samples, Seconds: 1 / rate})
		}
	}
	for name, kinds := range curves {
		for kind, c := range kinds {
			if slices.SortFunc(c, func(a, b balancer.Point) int { return int(a.Samples - b.Samples) }); len(c) < 3 {
				delete(kinds, kind)
			}
		}
		if len(kinds) < 3 {
			delete(curves, name)
		}
	}
	return curves
}

// Clusters of real GPUs, whose curves bend, are flat for small batches, and in one case fall: a K80 takes less time for 32 images of ResNet-18 than for 16.
func TestHybridOnMeasuredGPUs(t *testing.T) {
	curves := measuredGPUs(t)
	kinds, seeds := []string{"k80", "p100", "v100"}, uint64(40)
	if *full {
		seeds = 400
	}
	names := make([]string, 0, len(curves))
	for name := range curves {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		var shares []float64
		low, worst := 0, ""
		for seed := range seeds {
			r := rand.New(rand.NewPCG(seed, 3))
			var types []string
			var cluster []balancer.Curve
			capacity := 0.0
			for range 2 + r.IntN(7) {
				kind := kinds[r.IntN(len(kinds))]
				c := curves[name][kind]
				types, cluster, capacity = append(types, kind), append(cluster, c), capacity+c[len(c)-1].Samples
			}
			// Equal shares of a quarter to three quarters of what the ranks can hold: no policy can predict the curve of a rank that starts where the curve is flat before it falls.
			total := int(capacity * (0.25 + 0.5*r.Float64()))
			res, err := simulate.Run(simulate.Options{Policy: "hybrid", Total: total, Curves: cluster, Noise: 0.05, Steps: 200, Interval: 10, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			share := lastQuarter(res)
			if len(shares) == 0 || share < slices.Min(shares) {
				worst = fmt.Sprintf("%v, batch %d, shares %v", types, total, res.Shares)
			}
			if shares = append(shares, share); share < 0.98 {
				low++
			}
		}
		slices.Sort(shares)
		t.Logf("%s: %d clusters: median %.4f, %d below 0.98, worst %.4f (%s)", name, len(shares), shares[len(shares)/2], low, shares[0], worst)
		if shares[len(shares)/2] < 0.99 || 5*low > len(shares) {
			t.Errorf("%s: want a median of at least 0.99, and at most a fifth below 0.98", name)
		}
	}
}
