package runtime

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/account"
)

// times returns the times of a rank in a step, in milliseconds. compute is the sum of the forward and the backward
// pass.
func times(samples int, data, compute, exchanges, communication, optimizer float64) RankTimes {
	return RankTimes{Samples: samples, Data: data / 1e3, Forward: compute / 3e3, Backward: compute * 2 / 3e3,
		Exchanges:     exchanges / 1e3,
		Communication: communication / 1e3, Optimizer: optimizer / 1e3, Hidden: 0.04, MemoryPercent: 50}
}

func fill(r RankTimes, percent float64) RankTimes {
	r.MemoryPercent = percent
	return r
}

// verdictOn returns the verdict on a window of equal steps.
func verdictOn(b *Bottlenecks, step []RankTimes) Bottleneck {
	for !b.Full() {
		b.Add(0, step)
	}
	return b.Verdict()
}

func TestBottlenecks(t *testing.T) {
	cases := []struct {
		name  string
		step  []RankTimes
		bound Bound
		rank  int
		lost  [bounds]float64 // lost times in milliseconds, by kind of bound
		says  string
	}{
		{"one rank computes", []RankTimes{times(8, 1, 300, 0, 0, 10)}, ComputeBound, -1, [bounds]float64{DataBound: 1},
			"compute-bound: useful work takes 310.0 of 311.0 ms per step (100 %), the optimizer 10.0 ms of it"},
		{"one rank waits for data", []RankTimes{times(8, 100, 300, 0, 0, 0)}, DataBound, 0,
			[bounds]float64{DataBound: 100},
			"data-bound: 100.0 of 400.0 ms per step (25 %) are lost waiting for data"},
		{"the slow disk is on one rank", []RankTimes{times(8, 0, 300, 0, 100, 0), times(8, 100, 300, 0, 0, 0)},
			DataBound, 1, [bounds]float64{DataBound: 100},
			"data-bound: 100.0 of 400.0 ms per step (25 %) are lost waiting for data, mostly on rank 1"},
		{"waiting for data that costs nothing", []RankTimes{times(8, 100, 100, 0, 100, 0), times(8, 0, 300, 0, 0, 0)},
			DataBound, 0, [bounds]float64{StragglerBound: 60, DataBound: 90},
			// Better shares alone would reduce 300 ms to 240 ms. Without waits for data, the step would then take 150
			// ms.
			"data-bound: 90.0 of 300.0 ms per step (30 %) are lost waiting for data, mostly on rank 0; also lost: imbalance 60.0 ms"},
		{"shares that follow a slow disk", []RankTimes{times(6, 200, 100, 0, 100, 0), times(18, 0, 300, 0, 100, 0)},
			DataBound, 0, [bounds]float64{DataBound: 100, CommunicationBound: 100},
			"data-bound: 100.0 of 400.0 ms per step (25 %) are lost waiting for data, mostly on rank 0; also lost: communication 100.0 ms"},
		{"gradients come late", []RankTimes{times(8, 0, 300, 0, 100, 0), times(8, 0, 300, 0, 100, 0)},
			CommunicationBound, -1, [bounds]float64{CommunicationBound: 100},
			"communication-bound: 100.0 of 400.0 ms per step (25 %) are lost waiting for gradients; another 40.0 ms are hidden behind the backward pass"},
		{"batch normalisation exchanges", []RankTimes{times(8, 0, 380, 80, 20, 0), times(8, 0, 380, 80, 20, 0)},
			CommunicationBound, -1, [bounds]float64{CommunicationBound: 100},
			"lost waiting for the exchanges of batch normalisation"},
		{"a straggler", []RankTimes{times(8, 0, 100, 0, 200, 0), times(8, 0, 300, 0, 0, 0)}, StragglerBound, 1,
			[bounds]float64{StragglerBound: 150},
			"straggler: 150.0 of 300.0 ms per step (50 %) are lost to imbalance, which the best split would save: the others wait for rank 1, which is the slowest rank in 100 % of the steps and takes 2.00 times as long as with balanced shares"},
		{"a straggler behind exchanges in the passes", []RankTimes{times(8, 0, 300, 200, 0, 0),
			times(8, 0, 300, 0, 0, 0)}, StragglerBound, 1, [bounds]float64{StragglerBound: 150}, "rank 1"},
		{"the fast rank's memory is full", []RankTimes{fill(times(8, 0, 100, 0, 200, 0), 97),
			times(8, 0, 300, 0, 0, 0)}, MemoryBound, 0, [bounds]float64{MemoryBound: 150},
			"memory-bound: 150.0 of 300.0 ms per step (50 %) are lost because memory is full (97 % on rank 0)"},
		{"the slow rank's memory is full", []RankTimes{times(8, 0, 100, 0, 200, 0),
			fill(times(8, 0, 300, 0, 0, 0), 97)}, StragglerBound, 1, [bounds]float64{StragglerBound: 150}, "rank 1"},
		{"one of two fast ranks is full", []RankTimes{fill(times(8, 0, 100, 0, 200, 0), 97),
			times(8, 0, 100, 0, 200, 0), times(8, 0, 300, 0, 0, 0)}, StragglerBound, 2,
			// The speeds are 80, 80 and 26.7 samples/s. Balanced shares take 128.6 ms for 24 samples. Without
			// additional samples for rank 0, the other ranks take 150 ms for 16 samples.
			[bounds]float64{StragglerBound: 150, MemoryBound: 150 - 900.0/7}, "also lost: memory 21.4 ms"},
		{"full everywhere, with equal shares",
			[]RankTimes{fill(times(8, 0, 300, 0, 30, 0), 97), fill(times(8, 0, 300, 0, 30, 0), 97)}, ComputeBound, -1,
			[bounds]float64{CommunicationBound: 30}, "compute-bound"},
		{"full everywhere, with unequal speeds", []RankTimes{fill(times(8, 0, 100, 0, 200, 0), 97),
			fill(times(8, 0, 300, 0, 0, 0), 97)}, MemoryBound, 0, [bounds]float64{MemoryBound: 150}, "97 %"},
		{"balanced by shares", []RankTimes{times(12, 0, 300, 0, 10, 5), times(4, 0, 300, 0, 10, 5)}, ComputeBound, -1,
			[bounds]float64{CommunicationBound: 10}, "compute-bound"},
		{"a rank without samples", []RankTimes{times(8, 0, 300, 0, 20, 0), times(0, 0, 0, 0, 320, 0)}, ComputeBound, -1,
			[bounds]float64{CommunicationBound: 20}, "compute-bound"},
		{"the largest loss wins", []RankTimes{times(8, 60, 300, 0, 50, 0), times(8, 60, 300, 0, 50, 0)}, DataBound, 0,
			[bounds]float64{DataBound: 60, CommunicationBound: 50}, "also lost: communication 50.0 ms"},
		{"9 % is not enough", []RankTimes{times(8, 30, 303, 0, 0, 0)}, ComputeBound, -1, [bounds]float64{DataBound: 30},
			"also lost: data 30.0 ms"},
		{
			"memory is unknown",
			[]RankTimes{fill(times(8, 0, 100, 0, 200, 0), math.NaN()), fill(times(8, 0, 300, 0, 0, 0), math.NaN())},
			StragglerBound, 1, [bounds]float64{StragglerBound: 150}, "straggler"},
	}
	for _, c := range cases {
		v := verdictOn(NewBottlenecks(len(c.step)), c.step)
		if v.Bound != c.bound || v.Rank != c.rank || v.Steps != BottleneckWindow {
			t.Errorf("%s: got %+v, want %v of rank %d", c.name, v, c.bound, c.rank)
		}
		for cause, want := range c.lost {
			if got := 1000 * v.Lost(Bound(cause)); math.Abs(got-want) > 1e-6 {
				t.Errorf("%s: lost to %v: got %.3f ms, want %.3f", c.name, Bound(cause), got, want)
			}
		}
		if text := v.String(); !strings.Contains(text, c.says) {
			t.Errorf("%s: %q does not say %q", c.name, text, c.says)
		}
	}
}

// Without jitter, the parts must sum to the whole step. This must also hold if ranks wait for each other.
func TestPartsAddUpToTheStep(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		ranks := 1 + r.IntN(6)
		step, slowest := make([]RankTimes, ranks), 0.0
		for i := range step {
			step[i] = fill(times(1+r.IntN(32), 50*r.Float64(), 50+300*r.Float64(), 0, 0, 7), 100*r.Float64())
			slowest = max(slowest, step[i].total())
		}
		for i := range step {
			step[i].Communication = slowest - step[i].total() + 0.02
		}
		v := verdictOn(NewBottlenecks(ranks), step)
		sum := 0.0
		for _, part := range v.Parts() {
			if part.Seconds < 0 {
				t.Fatalf("a negative part: %+v of %+v", v, step)
			}
			sum += part.Seconds
		}
		if math.Abs(sum-v.Step) > 1e-9 || math.Abs(v.Step-(slowest+0.02)) > 1e-9 {
			t.Fatalf("parts are %v of a step of %v s: %+v of %+v", sum, v.Step, v, step)
		}
	}
}

func TestJitterIsNobodysFault(t *testing.T) {
	b := NewBottlenecks(4)
	for n := 0; !b.Full(); n++ {
		step := make([]RankTimes, 4)
		for i := range step {
			if step[i] = times(8, 0, 200, 0, 200, 0); n%4 == i {
				step[i] = times(8, 0, 400, 0, 0, 0)
			}
		}
		b.Add(0, step)
	}
	v := b.Verdict()
	if v.Bound != NoiseBound || v.Rank != -1 ||
		!strings.Contains(v.String(),
			"to noise, which no split removes: the times of the ranks vary from step to step") ||
		!strings.Contains(v.Advice(BottleneckSettings{}), "other shares do not help") {
		t.Errorf("got %+v", v)
	}
}

// The text and the advice must name the cause of noise. If a window has no cause, it must not get the cause of the
// previous window.
func TestAVerdictNamesTheCauseOfNoise(t *testing.T) {
	r, b := rand.New(rand.NewPCG(3, 4)), NewBottlenecks(3)
	verdict := func(cause Cause) Bottleneck {
		for !b.Full() {
			x := 300 * math.Exp(0.6*r.NormFloat64())
			b.Add(0, []RankTimes{times(8, 0, x, 0, max(0, 300-x), 0), times(8, 0, 300, 0, max(0, x-300), 0),
				times(8, 0, 300, 0, max(0, x-300), 0)})
		}
		b.Balanced(b.Steps(), account.Split{Oracle: 1})
		b.Noise(5, cause)
		b.Noise(0.1, Cause{"data starvation", 1, "rank 1 waits"})
		b.Noise(0.1, Cause{}) // a later decision finds little noise
		return b.Verdict()
	}
	for _, c := range []struct {
		cause        Cause
		text, advice string
	}{
		{Cause{"CPU quota", 0, "a CPU quota stops rank 0"}, "rank 0; cause: a CPU quota stops rank 0",
			"remove the cause (a CPU quota stops rank 0)"},
		{Cause{"CPU quota", -1, "a CPU quota stops rank 2"}, "rank 0; cause: a CPU quota stops rank 2",
			"remove the cause (a CPU quota stops rank 2)"},
		{Cause{"unknown", 0, ""}, "rank 0; no sensor shows the cause", "check whether other programs"},
		{Cause{}, "mostly those of rank 0", "check whether other programs"},
	} {
		v := verdict(c.cause)
		if v.Bound != NoiseBound || !strings.Contains(v.String(), c.text) || v.Cause != c.cause ||
			!strings.Contains(v.Advice(BottleneckSettings{}), c.advice) {
			t.Errorf("got %v and the advice %q, want %q and %q", v, v.Advice(BottleneckSettings{}), c.text, c.advice)
		}
	}
	other := verdict(Cause{"CPU quota", 1, "a CPU quota stops rank 1"})
	if text := other.String() + other.Advice(BottleneckSettings{}); strings.Contains(text, "quota") {
		t.Errorf("the cause of another rank is named: %s", text)
	}
	quota, unknown := Cause{"CPU quota", 0, "a CPU quota stops rank 0"}, Cause{"unknown", 0, ""}
	var total BottleneckTotal
	for _, c := range []Cause{quota, unknown, quota} {
		total.Add(verdict(c))
	}
	if v := total.Verdict(); v.Bound != NoiseBound || v.Cause != quota {
		t.Errorf("got %v of two windows with a CPU quota of three", v)
	}
	total.Add(verdict(unknown))
	total.Add(verdict(Cause{"CPU quota", 1, "a CPU quota stops rank 1"}))
	total.Add(verdict(Cause{}))
	if v := total.Verdict(); v.Bound != NoiseBound || v.Cause != (Cause{}) {
		t.Errorf("got %v, want no cause: none has most of the noise", v)
	}

	// A window without a decision has the cause of the newest decision, unless the steps of that decision were
	// discarded.
	b.Noise(1, quota)
	b.Reset()
	b.Noise(1, unknown)
	for b.Noise(0, Cause{}); !b.Full(); {
		b.Add(0, []RankTimes{times(8, 0, 300, 0, 0, 0)})
	}
	if v := b.Verdict(); v.Cause != unknown {
		t.Errorf("got the cause %v, want that of the decisions after the reset", v.Cause)
	}
	b.Noise(1, quota)
	_ = verdictOn(b, []RankTimes{times(8, 0, 300, 0, 0, 0)})
	if v := verdictOn(b, []RankTimes{times(8, 0, 300, 0, 0, 0)}); v.Cause != quota {
		t.Errorf("got the cause %v in a window without a decision, want that of the newest one", v.Cause)
	}
}

// One of two equal ranks is the slowest in at least half of the steps, by chance. It must not count as a straggler.
func TestNoiseOfTwoRanksNamesNobody(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		b := NewBottlenecks(2)
		for !b.Full() {
			x, y := 300*math.Exp(0.3*r.NormFloat64()), 300*math.Exp(0.3*r.NormFloat64())
			b.Add(0, []RankTimes{times(8, 0, x, 0, max(0, y-x), 0), times(8, 0, y, 0, max(0, x-y), 0)})
		}
		if v := b.Verdict(); v.Bound != NoiseBound && v.Bound != ComputeBound || v.Rank != -1 {
			t.Errorf("got %v", v)
		}
	}
}

// If the memory of a rank became full, and the rank has been slower since then, it must count as memory-bound.
func TestMemoryThatSlowsDown(t *testing.T) {
	b := NewBottlenecks(1)
	for _, c := range []struct {
		step RankTimes
		want Bound
		lost float64 // lost time in milliseconds
	}{
		{times(8, 0, 300, 0, 0, 0), ComputeBound, 0},
		{fill(times(8, 0, 300, 0, 0, 0), 98), ComputeBound, 0},
		{fill(times(8, 0, 450, 0, 0, 0), 98), MemoryBound, 150},
		{times(8, 0, 450, 0, 0, 0), ComputeBound, 0},
		// The share has changed, so the times are not comparable.
		{fill(times(16, 0, 900, 0, 0, 0), 98), ComputeBound, 0},
		{fill(times(8, 0, 310, 0, 0, 0), 98), ComputeBound, 0},
	} {
		v := verdictOn(b, []RankTimes{c.step})
		if v.Bound != c.want || math.Abs(1000*v.Lost(MemoryBound)-c.lost) > 1e-6 {
			t.Errorf("%+v: got %+v, want %v and %v ms", c.step, v, c.want, c.lost)
		}
	}
}

func TestVerdictStaysUntilAnotherIsClear(t *testing.T) {
	b := NewBottlenecks(1)
	for i, c := range []struct {
		data float64 // waits for data in milliseconds, in a step of about 1000 ms
		want Bound
	}{{95, ComputeBound}, {105, DataBound}, {95, DataBound}, {80, DataBound}, {60, ComputeBound}, {95, ComputeBound}} {
		if v := verdictOn(b, []RankTimes{times(8, c.data, 1000-c.data, 0, 0, 0)}); v.Bound != c.want {
			t.Errorf("window %d: got %v with %v ms lost, want %v", i, v.Bound, c.data, c.want)
		}
	}
	b = NewBottlenecks(1)
	for i, c := range []struct {
		data, communication float64
		want                Bound
	}{{200, 190, DataBound}, {200, 220, DataBound}, {200, 240, CommunicationBound}, {220, 200, CommunicationBound},
		{0, 200, CommunicationBound}, {200, 0, DataBound}} {
		if v := verdictOn(b,
			[]RankTimes{times(8, c.data, 1000-c.data-c.communication, 0, c.communication, 0)}); v.Bound != c.want {
			t.Errorf("window %d of two causes: got %v, want %v", i, v.Bound, c.want)
		}
	}
}

func TestWindowsLeaveOutWhatIsNoMeasurement(t *testing.T) {
	b := NewBottlenecks(1)
	bad := times(8, 0, 300, 0, 0, 0)
	bad.Forward = math.NaN()
	first := times(8, 9000, 300, 0, 0, 0)
	b.Add(0, []RankTimes{first})
	b.Add(0, []RankTimes{first})
	b.Add(0, []RankTimes{bad})
	b.Add(0, []RankTimes{times(0, 0, 300, 0, 0, 0)})
	b.Add(0, []RankTimes{times(8, 900, 300, 0, 0, 0)})
	b.Reset() // the run has returned to a checkpoint
	if v := verdictOn(b, []RankTimes{times(8, 0, 300, 0, 0, 0)}); v.Bound != ComputeBound ||
		v.Steps != BottleneckWindow || v.Data != 0 {
		t.Errorf("got %+v", v)
	}
}

func TestAdviceNamesWhatIsNotDoneYet(t *testing.T) {
	s := BottleneckSettings{DataWorkers: 2, CPUs: 8, Policy: "none", WireDType: "f32", Overlap: true, Precision: "f32",
		SyncNorm: true, Accumulation: 1}
	done := BottleneckSettings{DataWorkers: 8, CPUs: 8, Policy: "hybrid", Learns: true, WireDType: "bf16",
		Overlap: true, AutoBuckets: true, Precision: "bf16", Accumulation: 4}
	fixed, sequential := s, done
	fixed.Policy, sequential.Overlap = "fixed", false
	of := func(b Bound) Bottleneck {
		return Bottleneck{Bound: b, Rank: 3, Account: account.Account{Step: 1}, FullMemory: 60}
	}
	exchange := of(CommunicationBound)
	exchange.Communication, exchange.Exchange = 0.3, 0.2
	stopped, starved := of(CommunicationBound), of(CommunicationBound)
	stopped.Cause = Cause{"CPU quota", 1, "a CPU quota stops rank 1 for 51 % of its CPU time"}
	starved.Cause = Cause{"data starvation", 1, "rank 1 waits 0.2 s per step for data"}
	optimizer := of(ComputeBound)
	optimizer.Update = 0.2
	full := of(ComputeBound)
	full.FullMemory = 95
	cases := []struct {
		verdict  Bottleneck
		settings BottleneckSettings
		says     string
		not      string
	}{
		{of(DataBound), s, "raise data.workers (now 2, 8 CPUs)", ""},
		{of(DataBound), done, "all 8 CPUs already load data", "raise data.workers"},
		{of(CommunicationBound), s, `set parallel.wire_dtype = "bf16", which halves the transferred bytes; or set parallel.bucket_cap_mb = 0, so that the program finds the best bucket sizes; or raise data.batch_size`,
			"overlap"},
		{of(CommunicationBound), sequential, "set parallel.overlap = true", "bucket_cap_mb"},
		{of(CommunicationBound), done, "raise data.batch_size", "parallel."},
		{stopped, done, "remove what stops a rank, in exchanges too (a CPU quota stops rank 1 for 51 % of its CPU time); or raise data.batch_size",
			"parallel."},
		{starved, done, "raise data.batch_size", "remove what stops"},
		{exchange, s, `set model.batch_norm = "ghost"`, "wire_dtype"},
		{of(StragglerBound), s, `set balance.policy = "hybrid" (now "none")`, ""},
		{of(StragglerBound), fixed, "remove balance.fixed_shares", ""},
		{of(StragglerBound), done, "rank 3 is too slow for its share", "balance.policy"},
		{of(MemoryBound), s, `set train.precision = "bf16"`, ""},
		{of(MemoryBound), done, "raise train.grad_accumulation (now 4)", "precision"},
		{of(ComputeBound), s, `set train.precision = "bf16", if the device is fast in bf16; or raise data.batch_size`,
			""},
		{of(ComputeBound), done, "raise data.batch_size", "precision"},
		{full, done, "add ranks", "batch_size"},
		{optimizer, s, "the optimizer takes 20 % of the step", "precision"},
	}
	for _, c := range cases {
		got := c.verdict.Advice(c.settings)
		if !strings.Contains(got, c.says) || c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%v with %+v: got %q, want %q and not %q", c.verdict.Bound, c.settings, got, c.says, c.not)
		}
	}
}

// fakeSteps returns steps of ranks whose times have noise.
func fakeSteps(ranks int) [][]RankTimes {
	r := rand.New(rand.NewPCG(1, 2))
	steps := make([][]RankTimes, 64)
	for n := range steps {
		steps[n] = make([]RankTimes, ranks)
		for i := range steps[n] {
			steps[n][i] = times(8, r.Float64(), 300+10*r.NormFloat64(), 3, 20, 5)
		}
	}
	return steps
}

func TestAddAllocatesNothing(t *testing.T) {
	b, steps, n := NewBottlenecks(4), fakeSteps(4), 0
	if got := testing.AllocsPerRun(200, func() {
		b.Add(0, steps[n%len(steps)])
		if n++; b.Full() {
			b.Verdict()
		}
	}); got != 0 {
		t.Errorf("a step allocates %v times", got)
	}
}

func BenchmarkBottlenecks(b *testing.B) {
	for _, ranks := range []int{4, 1000} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			w, steps := NewBottlenecks(ranks), fakeSteps(ranks)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				w.Add(0, steps[n%len(steps)])
				if w.Full() {
					w.Verdict()
				}
			}
		})
	}
}

// The verdict must agree with the fraction of the oracle. With the best shares, no time is lost to imbalance, even if
// ranks wait for each other for long.
func TestAVerdictAgreesWithTheFractionOfTheOracle(t *testing.T) {
	step := []RankTimes{times(8, 0, 100, 0, 200, 0), times(8, 0, 300, 0, 0, 0)}
	for oracle, want := range map[float64]float64{1: 0, 0.944: 0.056 * 300, 0.5: 150} {
		b := NewBottlenecks(2)
		for n := 0; !b.Full(); n++ {
			if b.Add(0.31, step); n%10 == 9 {
				b.Balanced(10, account.Split{Oracle: oracle})
			}
		}
		v := b.Verdict()
		if got := 1000 * v.Imbalance; math.Abs(got-want) > 1e-6 || math.Abs(v.Step-0.31) > 1e-9 ||
			(v.Bound == StragglerBound) != (want >= 31) {
			t.Errorf("%.1f %% of the oracle: got %+v, want %.1f ms of imbalance in a step of 310 ms", 100*oracle, v,
				want)
		}
	}
}
