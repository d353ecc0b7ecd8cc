package gradsync

import (
	"context"
	"flag"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective/local"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/null"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// modelled returns ranks on null devices. Every launch takes 1 ms, and links have 1 MB/s.
func modelled(t testing.TB, j job, size int, options func(ends []int64, ready []float64, link Link) Options) []*rank {
	t.Helper()
	model := null.Model{LaunchSeconds: 1e-3, FLOPS: 1e18, BytesPerSecond: 1e18, CopyBytesPerSecond: 1e18,
		MemoryBytes: 1 << 30}
	j.open = func(int) device.Device {
		dev, err := null.New(model)
		if err != nil {
			t.Fatal(err)
		}
		return dev
	}
	first := j.ranksOver(t, 1, local.Model{})[0]
	p, err := first.pass(2)
	if err != nil {
		t.Fatal(err)
	}
	elapsed := make([]time.Duration, len(p.plan.Launches()))
	for i := range elapsed {
		elapsed[i] = time.Millisecond
	}
	var ready []float64
	for _, at := range p.plan.GradientTimes(elapsed) {
		ready = append(ready, at.Seconds())
	}
	link := local.Model{LatencySeconds: 0.5e-3, BytesPerSecond: 1e6} // between two ranks: 1 ms and 1 MB/s
	j.options = options(ends(first.state.Params), ready, Link{LatencySeconds: 1e-3, BytesPerSecond: 1e6})
	return j.ranksOver(t, size, link)
}

// modelSteps runs a step of two samples on each rank, and returns the times.
func modelSteps(t *testing.T, ranks []*rank) []Times {
	t.Helper()
	times := make([]Times, len(ranks))
	for i, err := range each(ranks, func(r *rank) (err error) {
		times[r.number], err = r.modelStep(2)
		return err
	}) {
		if err != nil {
			t.Fatalf("rank %d: %v", i, err)
		}
	}
	return times
}

// modelStep runs a step without inputs.
func (r *rank) modelStep(n int) (Times, error) {
	p, err := r.pass(n)
	if err != nil {
		return Times{}, err
	}
	if err := p.Forward(r.stream); err != nil {
		return Times{}, err
	}
	if err := p.Backward(r.stream, true); err != nil {
		return Times{}, err
	}
	return r.sync.Finish(context.Background(), r.stream)
}

// For any buckets, the exposed time must be the time that Choose predicts with its model. The buckets that Choose
// returns must have the shortest exposed time.
func TestExposedTimeIsWhatTheModelForetells(t *testing.T) {
	j := job{dtype: tensor.F32, micro: 4, count: 1, mode: "none"}
	exposed := map[string]time.Duration{}
	for _, c := range []struct {
		name string
		cut  func(ends []int64, ready []float64, link Link) []int64
	}{
		{"one bucket", func(ends []int64, _ []float64, _ Link) []int64 { return ends[len(ends)-1:] }},
		{"a bucket for each parameter", func(ends []int64, _ []float64, _ Link) []int64 { return ends }},
		{"chosen", Choose},
		{"chosen, one after the other", Choose},
	} {
		var want, busy float64
		sequential := c.name == "chosen, one after the other"
		ranks := modelled(t, j, 2, func(ends []int64, ready []float64, link Link) Options {
			at := c.cut(ends, ready, link)
			want = finish(at, ends, ready, link)
			busy = float64(len(at))*link.LatencySeconds + float64(at[len(at)-1])/link.BytesPerSecond
			return Options{Ends: at, Sequential: sequential}
		})
		var backward float64
		p, err := ranks[0].pass(2)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.plan.Launches() {
			if l.Phase == "backward" {
				backward += 1e-3
			}
		}
		want -= backward
		if sequential {
			want = busy
		}
		for step := range 3 {
			times := modelSteps(t, ranks)
			exposed[c.name] = times[0].Exposed
			for i, got := range times {
				checkReductions(t, ranks[i].sync, got)
				if math.Abs(got.Exposed.Seconds()-want) > 1e-7 || math.Abs(got.Busy.Seconds()-busy) > 0.5*busy ||
					got.Hidden != got.Busy-got.Exposed {
					t.Errorf("%s: step %d: rank %d: got %+v, want %.4f s exposed of about %.4f s", c.name, step, i, got,
						want, busy)
				}
			}
		}
	}
	for name, got := range exposed {
		if got < exposed["chosen"] {
			t.Errorf("%s exposes %v, less than the %v of what was chosen", name, got, exposed["chosen"])
		}
	}
}

// The flags allow larger measurements, such as 1,000 ranks and 100 steps.
var (
	manyRanks = flag.Int("many-ranks", 200, "ranks of TestManyRanksInOneProcess")
	manySteps = flag.Int("many-steps", 3, "steps of TestManyRanksInOneProcess")
)

func TestManyRanksInOneProcess(t *testing.T) {
	size, steps := *manyRanks, *manySteps
	if testing.Short() {
		size = 50
	}
	j := job{dtype: tensor.F32, micro: 2 * size, count: 1, mode: "sync"}
	begun := time.Now()
	ranks := modelled(t, j, size, func(ends []int64, _ []float64, _ Link) Options {
		return Options{Ends: slices.Clone(ends), FirstBytes: 1}
	})
	for range steps {
		times := modelSteps(t, ranks)
		for i, got := range times {
			checkReductions(t, ranks[i].sync, got)
			if got.Bytes != times[0].Bytes {
				t.Errorf("rank %d: got all-reduces of %d bytes, rank 0 has %d", i, got.Bytes, times[0].Bytes)
			}
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d ranks, %d steps: %v, %d MB of heap", size, steps, time.Since(begun).Round(time.Millisecond),
		m.HeapAlloc>>20)
}
