package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// madeRun describes a run whose records the test writes. The tests use no real runs, because few people have such
// clusters, and pictures must not change by chance. The time of a rank is (overhead + share / speed) * noise.
type madeRun struct {
	policy string
	speeds []float64 // samples/s of each rank
	batch  int
	steps  int64
	text   bool             // trains on text instead of images
	state  experiment.State // Running: this process holds the lock of the run; Failed: the run has a long error
	resume int64            // last step of the first of two processes; 0: there is only one process
	noise  float64          // relative standard deviation of the times of a rank
	power  float64          // W per rank; 0: unknown
}

// madeRuns are the runs of the tests of the page, by name.
var madeRuns = map[string]madeRun{
	"equal": {policy: "none", speeds: []float64{3200, 1600, 1600, 600}, batch: 256, steps: 400,
		state: experiment.Finished, noise: 0.03, power: 250},
	"balanced": {policy: "hybrid", speeds: []float64{3200, 1600, 1600, 600}, batch: 256, steps: 400,
		state: experiment.Finished, noise: 0.03, power: 250},
	"text": {policy: "none", speeds: []float64{400, 400, 160}, batch: 48, steps: 260, text: true,
		state: experiment.Running, noise: 0.02},
	"lost": {policy: "hybrid", speeds: []float64{900, 900, 300}, batch: 64, steps: 180, state: experiment.Failed,
		noise: 0.05},
	"killed": {policy: "hybrid", speeds: []float64{900, 300}, batch: 64, steps: 120, resume: 50,
		state: experiment.Crashed, noise: 0.05},
	"one": {policy: "none", speeds: []float64{900}, batch: 32, steps: 120, state: experiment.Finished,
		noise: 0.02},
	"many": {policy: "hybrid", speeds: slices.Concat(repeated(3200, 32), repeated(1600, 24), repeated(500, 8)),
		batch: 4096, steps: 120, state: experiment.Finished, noise: 0.03},
	"empty": {policy: "hybrid", speeds: []float64{900, 300}, batch: 64},
}

func repeated(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

const (
	madeOverhead = 0.004 // in s, for each rank and step
	madeExchange = 0.006 // exposed communication, in s per step
	madePause    = 0.001 // in s per step
	madeInterval = 10    // in steps, between two decisions
	madeProgram  = "hetero-train test"
)

// madeError is the error of a run that lost a rank. It has the length of a real error.
const madeError = "step %d: forward: collective: rank 0: communication aborted: rank 2: rank 2 is lost: " +
	"read tcp 10.0.0.1:25826->10.0.0.3:51312: connection reset by peer; the last step that all ranks completed is saved: " +
	"the run continues from step %d with: ./hetero-train train -c configs/resnet50.toml --set data.batch_size=%d " +
	"--set balance.policy=%s --set experiment.name=lost --set train.epochs=90 (under the same launcher)"

// madeBegin is the time of the first step of ended runs. Runs that still train begin at another time.
var madeBegin = time.Date(2026, 11, 1, 9, 0, 0, 0, time.UTC)

// random returns a number between -1 and 1 that depends only on its arguments.
func random(rank int, step int64) float64 {
	x := uint64(step)*0x9e3779b97f4a7c15 + uint64(rank+1)*0xbf58476d1ce4e5b9
	x ^= x >> 31
	x *= 0x94d049bb133111eb
	x ^= x >> 29
	return float64(x%20001)/10000 - 1
}

// seconds returns the time of a rank for a share, without noise.
func (m *madeRun) seconds(rank, share int) float64 {
	return madeOverhead + float64(share)/m.speeds[rank]
}

// equal returns equal shares.
func (m *madeRun) equal() []int {
	shares := make([]int, len(m.speeds))
	for i := range m.batch {
		shares[i%len(shares)]++
	}
	return shares
}

// best returns the best shares: each sample goes to the rank that then has the shortest time.
func (m *madeRun) best() []int {
	shares := make([]int, len(m.speeds))
	for range m.batch {
		first := 0
		for rank := range shares {
			if m.seconds(rank, shares[rank]+1) < m.seconds(first, shares[first]+1) {
				first = rank
			}
		}
		shares[first]++
	}
	return shares
}

// slowest returns the rank with the longest time, and this time without noise.
func (m *madeRun) slowest(shares []int) (rank int, seconds float64) {
	for r, n := range shares {
		if s := m.seconds(r, n); s > seconds {
			rank, seconds = r, s
		}
	}
	return rank, seconds
}

// shares returns the shares of a step. After the first decision, policy hybrid uses the means of equal and best shares,
// and then the best shares.
func (m *madeRun) shares(step int64) []int {
	equal := m.equal()
	if m.policy != "hybrid" || step <= madeInterval {
		return equal
	}
	best := m.best()
	if step > 2*madeInterval {
		return best
	}
	half, sum := make([]int, len(best)), 0
	for i := range half {
		half[i] = (equal[i] + best[i]) / 2
		sum += half[i]
	}
	half[0] += m.batch - sum
	return half
}

// write writes the files of the run into a folder.
func (m madeRun) write(t *testing.T, dir string) {
	t.Helper()
	logs := filepath.Join(dir, "logs")
	if err := errors.Join(os.MkdirAll(logs, 0o755), os.MkdirAll(filepath.Join(dir, "configs"), 0o755),
		os.MkdirAll(filepath.Join(dir, "results"), 0o755)); err != nil {
		t.Fatal(err)
	}
	model, data, unit, units := "resnet50", "cifar10", "img", 1
	if m.text {
		model, data, unit, units = "gpt2", "text", "tok", 256
	}
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("configs/resolved.toml",
		fmt.Sprintf("[model]\nname = %q\n[data]\ndataset = %q\nbatch_size = %d\n", model, data, m.batch)+
			fmt.Sprintf("[balance]\npolicy = %q\n[train]\nprecision = \"bf16\"\n", m.policy))
	put("configs/gpu_profiles.json", m.profiles(t))
	if m.state != experiment.Running && m.steps == 0 {
		return
	}
	begin := madeBegin
	if m.state == experiment.Running {
		begin = time.Now().Add(-time.Duration(float64(m.steps) * 0.1 * float64(time.Second)))
		m.lock(t, dir)
	}
	var events, decisions strings.Builder
	event := func(e runtime.Event) { events.WriteString(madeJSON(t, e) + "\n") }
	start := &runtime.StartEvent{Program: madeProgram, Model: model, Dataset: data, Policy: m.policy,
		Ranks: len(m.speeds), BatchSize: m.batch, Precision: "bf16", Unit: unit, Units: units, BestMetric: "top1"}
	if !m.text {
		start.Metrics = []runtime.EventMetric{{Key: "top1", Title: "top-1", Percent: true}}
	}
	event(runtime.Event{Time: begin, Start: start})
	length := m.steps
	if m.state != experiment.Finished {
		length = 600
	}
	event(runtime.Event{Step: 1, Time: begin, Length: &runtime.LengthEvent{Steps: length, EpochSteps: 100}})
	var files []*runtime.Writer
	for rank := range m.speeds {
		w, _, err := runtime.Open(filepath.Join(logs, runtime.FileName(rank)), runtime.Options{Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, w)
	}
	at := 0.0 // in s since the start of training
	window := madeWindow{ranks: make([]float64, len(m.speeds))}
	loss := math.NaN()
	for step := int64(1); step <= m.steps; step++ {
		shares, own, longest := m.shares(step), make([]float64, len(m.speeds)), 0.0
		for rank, n := range shares {
			own[rank] = m.seconds(rank, n) * (1 + m.noise*(1+random(rank, step)))
			longest = max(longest, own[rank])
		}
		took := longest + madeExchange + madePause
		at += took
		loss = 0.3 + 2*math.Exp(-float64(step)/120) + 0.08*random(0, 7*step)
		for rank, w := range files {
			r := runtime.Record{Iteration: step, Epoch: step / 100, Rank: rank, BatchSize: int64(shares[rank]),
				Timestamp: begin.Add(time.Duration(at * 1e9)), Telemetry: telemetry.Unknown(),
				Values: telemetry.Values{telemetry.Loss: loss, telemetry.LearningRate: 0.1 * math.Cos(
					float64(step)/500), telemetry.GradNorm: 1 + 0.2*random(0, step), telemetry.LossScale: 1,
					telemetry.Accuracy: math.NaN()},
				Forward: time.Duration(own[rank] / 3 * 1e9), Backward: time.Duration(own[rank] * 2 / 3 * 1e9),
				Communication: time.Duration((longest - own[rank] + madeExchange) * 1e9), CommunicationHidden: 4e6,
				StepTime: time.Duration(took * 1e9), TrainingTime: time.Duration(at * 1e9), Bytes: 25 << 20, Buckets: 4}
			r.Telemetry[telemetry.Utilization], r.Telemetry[telemetry.Memory] = 100*own[rank]/took,
				40+float64(shares[rank])/float64(m.batch)*50
			if m.power > 0 {
				r.Telemetry[telemetry.Power] = m.power
			}
			w.Append(&r)
		}
		window.add(took, own)
		if step%madeInterval == 0 {
			decisions.WriteString(m.decision(t, step, &window) + "\n")
			window = madeWindow{ranks: make([]float64, len(m.speeds))}
		}
		now := begin.Add(time.Duration(at * 1e9))
		if step%50 == 0 {
			event(runtime.Event{Step: step, Time: now, Bottleneck: m.bottleneck(step)})
		}
		if step%100 == 0 {
			value, accuracy := loss+0.05, 1-loss/2.5
			e := &runtime.EvaluationEvent{Samples: 1000, Loss: &value, Best: true, Seconds: 1}
			if !m.text {
				e.Metrics = map[string]*float64{"top1": &accuracy}
			}
			event(runtime.Event{Step: step, Time: now, Evaluation: e})
		}
		if step == m.resume {
			event(runtime.Event{Step: step, Time: now, Start: start})
		}
	}
	for _, w := range files {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	put("logs/"+runtime.EventsFile, events.String())
	put("logs/balance.jsonl", decisions.String())
	put("logs/curves.csv", m.curves())
	if m.state == experiment.Finished || m.state == experiment.Failed {
		r := experiment.Result{Steps: m.steps, FinalTrainLoss: experiment.Number(loss),
			BestEval: experiment.Number(1 - loss/2.5), BestEvalMetric: "top1",
			SamplesPerSecond: experiment.Number(float64(m.steps*int64(m.batch)) / at),
			State:            m.state, Program: madeProgram, Model: model, Dataset: data, Device: "cuda:0",
			Precision: "bf16",
			BatchSize: int64(m.batch), Ranks: len(m.speeds), SamplesSeen: m.steps * int64(m.batch),
			Seconds: experiment.Number(at), Started: begin, Ended: begin.Add(time.Duration(at * 1e9))}
		if m.state == experiment.Failed {
			r.Exit, r.Error = 5, fmt.Sprintf(madeError, m.steps+1, m.steps, m.batch, m.policy)
		}
		put("results/result.json", madeJSON(t, r))
	}
}

// madeWindow contains sums over the steps of a window, in s.
type madeWindow struct {
	steps float64
	took  float64
	ranks []float64 // own times, by rank
}

func (w *madeWindow) add(took float64, own []float64) {
	w.steps++
	w.took += took
	for rank, seconds := range own {
		w.ranks[rank] += seconds
	}
}

// split returns the parts of a step with these shares, without noise, in s.
func (m *madeRun) split(shares []int) (useful, imbalance, granularity float64) {
	_, longest := m.slowest(shares)
	_, best := m.slowest(m.best())
	speed := 0.0
	for _, s := range m.speeds {
		speed += s
	}
	useful = madeOverhead + float64(m.batch)/speed
	return useful, longest - best, best - useful
}

// decision returns the line of balance.jsonl for the decision after a window.
func (m *madeRun) decision(t *testing.T, step int64, w *madeWindow) string {
	shares, next := m.shares(step), m.shares(step+1)
	took := w.took / w.steps
	worst, longest := m.slowest(shares)
	_, best := m.slowest(m.best())
	_, equal := m.slowest(m.equal())
	_, predicted := m.slowest(next)
	useful, imbalance, granularity := m.split(shares)
	changed := fmt.Sprint(shares) != fmt.Sprint(next)
	reason := "the current shares are the best ones"
	switch {
	case changed:
		reason = fmt.Sprintf("rank %d is the slowest; without noise, the step should get %.1f %% shorter", worst,
			100*(1-predicted/longest))
	case m.policy == "none":
		reason = "equal shares"
	}
	const rest = madeExchange + madePause
	line := map[string]any{
		"step": step, "policy": m.policy, "shares": shares, "next": next, "changed": changed, "reason": reason,
		"step_seconds":        took,
		"fitted_step_seconds": longest + rest, "oracle_step_seconds": best + rest,
		"share_of_oracle":      (best + rest) / (longest + rest),
		"share_of_oracle_low":  0.98 * (best + rest) / (longest + rest),
		"share_of_oracle_high": min(1, 1.02*(best+rest)/(longest+rest)),
		"imbalance":            imbalance / longest,
		"useful_seconds":       useful, "equal_step_seconds": equal + took - longest,
		"equal_step_seconds_low": 0.97 * (equal + took - longest), "equal_step_seconds_high": 1.03 * (equal + took - longest),
		"predicted_step_seconds": predicted + took - longest,
		"lost_seconds": map[string]float64{"imbalance": imbalance, "communication": madeExchange, "data": 0,
			"noise": took - longest - rest, "granularity": granularity, "pauses": madePause}, "noisy_rank": nil,
	}
	if step == 2*madeInterval && m.policy == "hybrid" {
		_, before := m.slowest(m.equal())
		line["outcome"] = map[string]any{"step": madeInterval, "predicted": (before + rest) / (longest + rest),
			"achieved":      0.99 * (before + rest) / (longest + rest),
			"achieved_low":  0.95 * (before + rest) / (longest + rest),
			"achieved_high": 1.03 * (before + rest) / (longest + rest)}
	}
	if step == 3*madeInterval && m.policy == "hybrid" {
		_, before := m.slowest(m.shares(step - madeInterval))
		line["outcome"] = map[string]any{"step": 2 * madeInterval, "predicted": (before + rest) / (longest + rest),
			"achieved":      1.01 * (before + rest) / (longest + rest),
			"achieved_low":  0.97 * (before + rest) / (longest + rest),
			"achieved_high": 1.05 * (before + rest) / (longest + rest)}
	}
	var ranks []map[string]any
	for rank, seconds := range w.ranks {
		own, caused := seconds/w.steps, 0.0
		if rank == worst && imbalance > 0.05*longest {
			for _, other := range w.ranks {
				caused += max(0, own-other/w.steps)
			}
		}
		health := "healthy"
		if m.speeds[rank] <= 0.4*m.speeds[0] {
			health = "slow type"
		}
		ranks = append(ranks, map[string]any{"seconds": own, "fitted_seconds": m.seconds(rank, shares[rank]),
			"fitted_error_seconds": 0.001, "waited_seconds": max(0, took-own-rest), "caused_seconds": caused,
			"health": health})
	}
	line["ranks"] = ranks
	return madeJSON(t, line)
}

// bottleneck returns the verdict on all steps up to step.
func (m *madeRun) bottleneck(step int64) *runtime.BottleneckEvent {
	shares := m.shares(step)
	useful, imbalance, granularity := m.split(shares)
	worst, longest := m.slowest(shares)
	noise := m.noise * longest
	seconds := longest + noise + madeExchange + madePause
	e := &runtime.BottleneckEvent{Bound: "compute-bound", Rank: -1, Seconds: seconds,
		Advice: "raise data.batch_size, because devices compute larger batches more efficiently; or add ranks",
		Parts: map[string]float64{"useful": useful, "imbalance": imbalance, "communication": madeExchange, "data": 0,
			"memory": 0, "noise": noise, "granularity": granularity, "pauses": madePause}}
	e.Text = fmt.Sprintf("compute-bound: useful work takes %.1f of %.1f ms per step", 1000*useful, 1000*seconds)
	switch {
	case imbalance > 0.1*seconds:
		e.Bound, e.Rank, e.Advice = "straggler", worst, `set balance.policy = "hybrid"`
		e.Text = fmt.Sprintf("straggler: %.1f of %.1f ms per step are lost waiting for rank %d", 1000*imbalance,
			1000*seconds, worst)
	case madeExchange > 0.1*seconds:
		e.Bound, e.Advice = "communication-bound", `set parallel.wire_dtype = "bf16"; or raise data.batch_size`
		e.Text = fmt.Sprintf("communication-bound: %.1f of %.1f ms per step are lost waiting for gradients",
			1000*madeExchange, 1000*seconds)
	}
	return e
}

// curves returns the fitted curves of the ranks.
func (m *madeRun) curves() string {
	var b strings.Builder
	b.WriteString("rank,batch,seconds\n")
	for rank := range m.speeds {
		for n := 1; n <= m.batch; n += max(1, m.batch/16) {
			fmt.Fprintf(&b, "%d,%d,%.6f\n", rank, n, m.seconds(rank, n))
		}
	}
	return b.String()
}

// profiles returns the measured hardware of the ranks.
func (m *madeRun) profiles(t *testing.T) string {
	var ranks []map[string]any
	for rank, speed := range m.speeds {
		ranks = append(ranks, map[string]any{"rank": rank, "host": fmt.Sprintf("node%d", rank/8),
			"compute_score": speed / m.speeds[len(m.speeds)-1], "relative_score": speed / m.speeds[len(m.speeds)-1],
			"memory_bytes": 80 << 30,
			"device": map[string]any{"name": "cuda:0", "kind": "cuda",
				"model": fmt.Sprintf("accelerator of %.0f samples/s", speed)},
			"measured": map[string]any{"dtype": "bf16", "tflops": speed / 10,
				"memory": map[string]any{"copy_gbytes_per_second": speed}}})
	}
	return madeJSON(t, map[string]any{"schema_version": 2, "ranks": ranks})
}

// lock locks the folder until the test ends, as a training process does.
func (m *madeRun) lock(t *testing.T, dir string) {
	file, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(madeJSON(t, experiment.Holder{PID: os.Getpid(), Host: host,
		Since: time.Now()})); err != nil {
		t.Fatal(err)
	}
	if err := platform.TryLock(file); err != nil {
		t.Fatal(err)
	}
}

func madeJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
