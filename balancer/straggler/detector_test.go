package straggler_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

func TestASlowTypeIsNotSick(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	ranks := []fakeRank{gpuRank(0.2), gpuRank(0.21), laptopRank(0.5), gpuRank(0.2)}
	d := straggler.NewDetector(len(ranks))
	for n := range 30 {
		if n == 20 {
			ranks[2].expected = 0.2 // the rank got a smaller share
		}
		v := observe(t, d, n, windowOf(ranks, random, 0.02))[2]
		want := straggler.Healthy
		if n >= 1 && n < 21 { // the verdict ends after two healthy windows
			want = straggler.SlowType
		}
		if v.Kind != want {
			t.Errorf("window %d: got %+v, want %v", n, v, want)
		}
		if v.Kind == straggler.SlowType &&
			(v.SinceStep != 10 || v.Ratio < 2 || !strings.Contains(v.Evidence, "times the median of the ranks") ||
				!strings.Contains(v.Evidence, "times the prediction of its step-time curve")) {
			t.Errorf("window %d: got %+v", n, v)
		}
	}
}

// On a busy machine, the times of windows vary by a factor of 2. Then a CPU quota makes a rank 4 times as slow. Noise
// alone could explain this. If sensors measure the quota, the detector must find it.
func TestNoiseDoesNotHideAMeasuredSlowdown(t *testing.T) {
	for _, measured := range []bool{false, true} {
		random := rand.New(rand.NewPCG(5, 6))
		d := straggler.NewDetector(2)
		found := 0
		for n := range 60 {
			window := []straggler.Observation{cpuRank(0.2).window(random, 0.5), cpuRank(0.2).window(random, 0.5)}
			low := n >= 40 && n < 50
			if low {
				window[1].Seconds *= 4
				if measured {
					set(&window[1].Health, telemetry.CPUQuota, 75)
				}
			}
			verdicts := observe(t, d, n, window)
			for rank, v := range verdicts {
				// The detector knows the noise from this window on; before, it may need two slow windows.
				known := n >= 20
				if v.Kind != straggler.Healthy && known && (rank == 0 || n < 41 || n > 52) {
					t.Errorf("window %d, rank %d: got %+v", n, rank, v)
				}
			}
			if v := verdicts[1]; v.Kind == straggler.Sick && v.Cause == straggler.CauseQuota && low {
				found++
			}
			if low && measured && d.Learns(1) {
				t.Errorf("window %d: the curve would learn while the quota stops the rank", n)
			}
		}
		if measured != (found >= 7) {
			t.Errorf("measured %v: found in %d of 10 windows", measured, found)
		}
	}
}

// A rank that takes longer because of a larger share must not get the verdict "slow type". Only a rank of another type
// that needs more time per sample may get it.
func TestOnlyAnotherTypeIsASlowerType(t *testing.T) {
	for _, c := range []struct {
		name    string
		types   []string
		samples []int
		seconds []float64 // seconds per sample, by rank
		want    []straggler.Kind
	}{
		{"two ranks alike, one with more samples", []string{"a", "a"}, []int{48, 80}, []float64{0.01, 0.01},
			[]straggler.Kind{0, 0}},
		{"the same without types", nil, []int{48, 80}, []float64{0.01, 0.01}, []straggler.Kind{0, 0}},
		{"two ranks alike, one slower per sample", []string{"a", "a"}, []int{64, 64}, []float64{0.01, 0.02},
			[]straggler.Kind{0, 0}},
		{"another type, balanced", []string{"a", "b"}, []int{80, 40}, []float64{0.01, 0.02},
			[]straggler.Kind{0, straggler.SlowType}},
		{"two of another type", []string{"a", "a", "b", "b"}, []int{40, 40, 20, 20}, []float64{0.01, 0.01, 0.02, 0.02},
			[]straggler.Kind{0, 0, straggler.SlowType, straggler.SlowType}},
		{"another type, one of which keeps up", []string{"a", "a", "b", "b"}, []int{40, 40, 20, 40},
			[]float64{0.01, 0.01, 0.02, 0.01}, []straggler.Kind{0, 0, 0, 0}},
		{"types that are not known", []string{"", ""}, []int{64, 64}, []float64{0.01, 0.02},
			[]straggler.Kind{0, straggler.SlowType}},
	} {
		d := straggler.NewDetector(len(c.samples))
		d.SetTypes(c.types)
		for n := range 4 {
			window := make([]straggler.Observation, len(c.samples))
			for i := range window {
				window[i] = straggler.Observation{Seconds: c.seconds[i] * float64(c.samples[i]), Samples: c.samples[i],
					Data: nan, Expected: nan, Link: nan, Health: unknownHealth()}
			}
			for rank, v := range observe(t, d, n, window) {
				want := c.want[rank]
				if n == 0 {
					want = straggler.Healthy // one slow window is not enough
				}
				if v.Kind != want {
					t.Errorf("%s, window %d, rank %d: got %+v, want %v", c.name, n, rank, v, want)
				}
			}
		}
	}
}

func TestASlowTypeCanFallSick(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	ranks := []fakeRank{gpuRank(0.2), gpuRank(0.2), gpuRank(0.4)}
	d := straggler.NewDetector(len(ranks))
	for n := range 40 {
		window := windowOf(ranks, random, 0.01)
		want := straggler.SlowType
		switch {
		case n < 1:
			want = straggler.Healthy
		case n >= 20 && n < 30:
			slower(1.5)(&window[2])
			throttled(&window[2].Health, telemetry.ThermalThrottling, 20)
			if n > 20 {
				want = straggler.Sick
			}
		case n == 30:
			want = straggler.Sick
		}
		if v := observe(t, d, n, window)[2]; v.Kind != want {
			t.Errorf("window %d: got %+v, want %v", n, v, want)
		}
	}
}

func TestHealthyRanksGetNoVerdict(t *testing.T) {
	cases := []struct {
		name  string
		noise float64
		alter func(n int, window []straggler.Observation)
	}{
		{"noise", 0.05, func(int, []straggler.Observation) {}},
		{"every fifth window is slow", 0.01, func(n int, w []straggler.Observation) {
			if n%5 == 3 {
				slower(1.4)(&w[2])
			}
		}},
		{"every third window is slow from the start", 0.01, func(n int, w []straggler.Observation) {
			if n%3 == 0 {
				slower(1.4)(&w[2])
			}
		}},
		{"a curve that is 30 % off from the start", 0.02, func(_ int, w []straggler.Observation) {
			slower(1.3)(&w[0])
		}},
		{"a curve that is wrong, and then learned", 0.02, func(n int, w []straggler.Observation) {
			if n < 10 {
				slower(1.4)(&w[0])
			}
		}},
		{"a curve that is not sure of itself", 0.01, func(n int, w []straggler.Observation) {
			if w[2].ExpectedError = 0.2 * w[2].Expected; n >= 50 {
				slower(1.3)(&w[2])
			}
		}},
		{"no curve", 0.05, func(_ int, w []straggler.Observation) { w[2].Expected, w[2].ExpectedError = nan, nan }},
		{"no telemetry", 0.05, func(_ int, w []straggler.Observation) { w[2].Health = unknownHealth() }},
		{"no share", 0.01, func(n int, w []straggler.Observation) {
			if n >= 30 {
				w[2].Seconds = 0
			}
		}},
		{"the links of all ranks become slow", 0.01, func(n int, w []straggler.Observation) {
			if n >= 50 {
				for i := range w {
					w[i].Link *= 3
				}
			}
		}},
		{"a link whose time does not matter", 0.01, func(n int, w []straggler.Observation) {
			if w[2].Link /= 100; n >= 50 {
				w[2].Link *= 3
			}
		}},
		{"throttling that costs nothing", 0.01, func(n int, w []straggler.Observation) {
			if n >= 50 {
				throttled(&w[2].Health, telemetry.ThermalThrottling, 20)
			}
		}},
	}
	for _, c := range cases {
		random := rand.New(rand.NewPCG(7, 8))
		ranks := []fakeRank{gpuRank(0.4), cpuRank(0.42), laptopRank(0.41), gpuRank(0.38)}
		d := straggler.NewDetector(len(ranks))
		for n := range 200 {
			window := windowOf(ranks, random, c.noise)
			c.alter(n, window)
			for _, v := range observe(t, d, n, window) {
				if v.Kind != straggler.Healthy {
					t.Errorf("%s: window %d: got %+v", c.name, n, v)
				}
			}
		}
	}
}

// The curve of a rank comes from an earlier run, and the rank has a problem from its first window on. The detector must
// find the problem from the sensors alone.
func TestSickFromTheStart(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	r := gpuRank(0.4)
	d := straggler.NewDetector(1)
	for n := range 20 {
		o := r.window(random, 0.01)
		slower(1.5)(&o)
		throttled(&o.Health, telemetry.ThermalThrottling, 20)
		v := observe(t, d, n, []straggler.Observation{o})[0]
		if n >= 1 && (v.Kind != straggler.Sick || v.Cause != straggler.CauseThermal || v.SinceStep != 10) {
			t.Fatalf("window %d: got %+v", n, v)
		}
	}
}

// The curve of a laptop was measured while it was cold. The laptop may count as sick in the first windows, but must
// count as healthy after some more.
func TestALaptopIsNotSickForEver(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	r := laptopRank(0.4)
	d := straggler.NewDetector(1)
	learned := 0
	for n := range 60 {
		o := r.window(random, 0.01)
		slower(1.3)(&o)
		v := observe(t, d, n, []straggler.Observation{o})[0]
		if d.Learns(0) {
			learned++
		}
		want := straggler.Healthy
		if n >= 1 && n <= 20 {
			want = straggler.Sick
		}
		if v.Kind != want {
			t.Fatalf("window %d: got %+v, want %v", n, v, want)
		}
	}
	if learned != 60-21 {
		t.Errorf("its curve learns from %d windows, want those after the 21st", learned)
	}
}

// While a sensor shows a cause, the verdict must keep this cause. When the sensor no longer shows it, the cause must
// change.
func TestACauseStaysWhileItsSignDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	r := gpuRank(0.4)
	d := straggler.NewDetector(1)
	for n := range 40 {
		o := r.window(random, 0.01)
		want := straggler.CauseNone
		if n >= 10 {
			slower(1.5)(&o)
			want = straggler.CauseClock
			if set(&o.Health, telemetry.Clock, 60); n >= 20 && n < 30 {
				set(&o.Health, telemetry.OtherProcesses, 2) // stronger evidence for another cause appears later
			}
			if n >= 30 {
				set(&o.Health, telemetry.Clock, 96)
				set(&o.Health, telemetry.ECCErrors, 3)
				want = straggler.CauseECC
			}
		}
		v := observe(t, d, n, []straggler.Observation{o})[0]
		if n != 10 && v.Cause != want {
			t.Fatalf("window %d: got %+v, want %v", n, v, want)
		}
	}
}

func TestTroubleOfMostRanksIsSaid(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	d := straggler.NewDetector(4)
	for n := range 20 {
		window := make([]straggler.Observation, 4)
		for i := range window {
			window[i] = gpuRank(0.4).window(random, 0.01)
			if n >= 10 && i > 0 {
				slower(1.4)(&window[i])
			}
		}
		if v := observe(t, d, n, window)[3]; n > 10 &&
			!strings.HasSuffix(v.Evidence, "; 3 of 4 ranks are slower than their step-time curves predict") {
			t.Errorf("window %d: got %+v", n, v)
		}
	}
}

func TestObserveWantsEveryRank(t *testing.T) {
	if _, err := straggler.NewDetector(3).Observe(10, make([]straggler.Observation, 2)); err == nil ||
		!strings.Contains(err.Error(), "got 2 observations, want one for each of 3 ranks") {
		t.Errorf("got %v", err)
	}
}

// falseAlarms counts the false verdicts on healthy ranks in windows with lognormal noise.
func falseAlarms(t *testing.T, ranks, windows int, noise float64, seed uint64) int {
	random := rand.New(rand.NewPCG(seed, 1))
	d := straggler.NewDetector(ranks)
	alarms, was := 0, make([]bool, ranks)
	window := make([]straggler.Observation, ranks)
	for n := range windows {
		for i := range window {
			window[i] = gpuRank(0.4).window(random, noise)
		}
		for i, v := range observe(t, d, n, window) {
			sick := v.Kind != straggler.Healthy
			if sick && !was[i] {
				alarms++
			}
			was[i] = sick
		}
	}
	return alarms
}

// The comment of Detector states 2 false alarms in a million at 5 % noise, and 3 at 15 %. The limits leave a margin for
// chance.
func TestFalseAlarmsAreRare(t *testing.T) {
	ranks, windows, few, more := 20, 4000, 1, 2
	if needtest.Large.On() {
		windows, few, more = 10_000, 2, 4
	}
	for _, c := range []struct {
		noise float64
		most  int
	}{{0.01, 0}, {0.05, few}, {0.15, more}} {
		got := falseAlarms(t, ranks, windows, c.noise, 11)
		t.Logf("noise %2.0f %%: %d false alarms in %d windows", 100*c.noise, got, ranks*windows)
		if got > c.most {
			t.Errorf("noise %.0f %%: got %d false alarms in %d windows, want at most %d", 100*c.noise, got,
				ranks*windows, c.most)
		}
	}
}

// A healthy rank must not get a verdict because a CPU quota sometimes stops it. It must not get a verdict either if a
// quota limits it as much as other programs did before.
func TestAQuotaAloneIsNoVerdict(t *testing.T) {
	for _, noise := range []float64{0.05, 0.1, 0.15} {
		for name, c := range map[string]struct {
			spread, fall float64
		}{"a quota that varies": {8, 0}, "the load of the machine falls": {2, 40}} {
			random := rand.New(rand.NewPCG(21, 22))
			alarms := 0
			for range 100 {
				d := straggler.NewDetector(1)
				for n := range 300 {
					o := cpuRank(0.4).window(random, noise)
					quota, stolen := 20.0, 0.0
					if n < 100 && c.fall > 0 {
						quota, stolen = 0, c.fall
					} else {
						quota = max(0, quota+c.spread*random.NormFloat64())
					}
					set(&o.Health, telemetry.CPUQuota, quota)
					set(&o.Health, telemetry.StolenCPU, stolen)
					if v := observe(t, d, n, []straggler.Observation{o})[0]; v.Kind == straggler.Sick &&
						v.SinceStep == int64(10*n) {
						alarms++
					}
				}
			}
			if alarms > 4 { // with a constant quota, 3 false alarms at 10 % and at 15 % noise, in the first windows
				t.Errorf("noise %.2f, %s: %d false verdicts in 30,000 windows", noise, name, alarms)
			}
		}
	}
}

// A rank with little noise becomes slower in an early window.
func TestSlowdownsEarlyInARunAreFound(t *testing.T) {
	for _, c := range []struct {
		factor   float64
		from, in int // first slow window; number of windows until the verdict
	}{{1.3, 3, 2}, {1.2, 5, 2}, {1.2, 12, 2}, {1.1, 20, 3}} {
		random := rand.New(rand.NewPCG(9, 10))
		d := straggler.NewDetector(1)
		found := -1
		for n := range 40 {
			o := gpuRank(0.4).window(random, 0.01)
			if n >= c.from {
				slower(c.factor)(&o)
			}
			if v := observe(t, d, n, []straggler.Observation{o})[0]; v.Kind == straggler.Sick && found < 0 {
				found = n - c.from + 1
			}
		}
		if found < 1 || found > c.in {
			t.Errorf("%.1f times from window %d on: found after %d windows, want at most %d", c.factor, c.from, found,
				c.in)
		}
	}
}

// With noise of 5 %, a device that is 1.5 times as slow must get a verdict. The verdict must not end before the
// slowdown.
func TestAVerdictDoesNotFlap(t *testing.T) {
	random := rand.New(rand.NewPCG(12, 13))
	d := straggler.NewDetector(1)
	changes, was := 0, straggler.Healthy
	for n := range 10_000 {
		o := gpuRank(0.4).window(random, 0.05)
		if n >= 100 && n < 9_900 {
			slower(1.5)(&o)
		}
		v := observe(t, d, n, []straggler.Observation{o})[0]
		if v.Kind != was {
			changes++
		}
		was = v.Kind
	}
	if changes != 2 || was != straggler.Healthy {
		t.Errorf("got %d changes of the verdict and %v at the end, want 2 and healthy", changes, was)
	}
}

func BenchmarkObserve(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	const ranks = 1000
	d := straggler.NewDetector(ranks)
	windows := make([][]straggler.Observation, 100)
	for n := range windows {
		windows[n] = make([]straggler.Observation, ranks)
		for i := range windows[n] {
			windows[n][i] = gpuRank(0.4).window(random, 0.05)
		}
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		d.Observe(int64(n), windows[n%len(windows)])
	}
}
