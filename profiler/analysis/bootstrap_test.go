package analysis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// simulated returns runs whose blocks have a throughput of about 100 samples/s. between is the standard deviation
// between runs, and within is that of the blocks of one run.
func simulated(random *rand.Rand, runs int, between, within float64) [][]block {
	out := make([][]block, runs)
	for r := range out {
		level := 100 + between*random.NormFloat64()
		for range 30 {
			var b block
			b.add(throughput, level+within*random.NormFloat64(), 1)
			out[r] = append(out[r], b)
		}
	}
	return out
}

// In many simulated experiments, the 95 % interval must contain the true value in about 95 % of the cases.
func TestIntervalsHoldTheTruthAsOftenAsTheySay(t *testing.T) {
	const experiments = 300
	for _, c := range []struct {
		name            string
		runs            int
		between, within float64
		least, most     float64 // limits of this fraction; with few runs, a bootstrap gives less than 95 %
	}{
		{"noise within one run", 1, 0, 10, 0.89, 0.98},
		{"noise within five runs", 5, 0, 10, 0.88, 0.995},
		{"runs that differ", 10, 5, 5, 0.86, 0.98},
	} {
		random, held := rand.New(rand.NewPCG(1, 2)), 0.0
		for i := range experiments {
			runs := simulated(random, c.runs, c.between, c.within)
			e := percentile(mean(runs)[throughput], column(replicate(runs, 300, uint64(i), c.name), throughput), 0.95)
			if e.Low <= 100 && 100 <= e.High {
				held += 1. / experiments
			}
			if !(e.Low < e.Value && e.Value < e.High) {
				t.Fatalf("%s: got %+v", c.name, e)
			}
		}
		if held < c.least || held > c.most {
			t.Errorf("%s: %.3f of the intervals hold the truth, want %.2f to %.2f", c.name, held, c.least, c.most)
		}
	}
}

func TestReplicatesDependOnSeedAndNameAlone(t *testing.T) {
	runs := simulated(rand.New(rand.NewPCG(1, 2)), 3, 5, 5)
	first := column(replicate(runs, 50, 1, "a"), throughput)
	for _, c := range []struct {
		seed uint64
		name string
		same bool
	}{{1, "a", true}, {2, "a", false}, {1, "b", false}} {
		if got := slices.Equal(first, column(replicate(runs, 50, c.seed, c.name), throughput)); got != c.same {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestConstantRunsHaveNoInterval(t *testing.T) {
	runs := simulated(rand.New(rand.NewPCG(1, 2)), 2, 0, 0)
	if e := percentile(mean(runs)[throughput], column(replicate(runs, 100, 1, ""), throughput),
		0.95); e != (Estimate{100, 100, 100}) {
		t.Errorf("got %+v", e)
	}
	if e := percentile(mean(runs)[oracle], column(replicate(runs, 100, 1, ""), oracle), 0.95); e.Known() {
		t.Errorf("nothing is known of the oracle, got %+v", e)
	}
}

func TestBlocksSumAllStepsOnce(t *testing.T) {
	var steps []Step
	for i := range 25 {
		steps = append(steps, Step{Seconds: 2, Samples: int64(i), Ranks: []RankStep{{1, 1, 50}, {1, 2, unknown}}})
	}
	blocks := blocksOf(steps)
	total := mean([][]block{blocks})
	if len(blocks) != 3 || !same(total[throughput], 300./50) || !same(total[utilization], 50) ||
		!same(total[imbalance], 0.5) || !same(total[waiting], 0.25) || !same(total[oracle], unknown) {
		t.Errorf("got %d blocks, %v", len(blocks), fmt.Sprint(total))
	}
}
