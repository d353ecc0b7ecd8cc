package analysis

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
	"github.com/hetero-train/hetero-train/profiler/runs"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// writeRecords writes the records of ranks to dir/logs.
func writeRecords(t testing.TB, dir string, ranks ...[]runtime.Record) {
	t.Helper()
	logs := filepath.Join(dir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	for rank, records := range ranks {
		w, _, err := runtime.Open(filepath.Join(logs, runtime.FileName(rank)), runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range records {
			records[i].Rank = rank
			w.Append(&records[i])
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// steadyRecords returns one step every 100 ms. The forward pass takes 30 ms times factor.
func steadyRecords(steps int64, samples int64, factor float64) (records []runtime.Record) {
	for i := int64(1); i <= steps; i++ {
		own := time.Duration(factor * 30 * float64(time.Millisecond))
		records = append(records, runtime.Record{Iteration: i, Timestamp: time.Unix(1_800_000_000, i*100_000_000),
			BatchSize: samples, Values: telemetry.Values{telemetry.Loss: 1 / float64(i)},
			DataLoading: time.Millisecond, Forward: own, Backward: own, Exchanges: own, Optimizer: 2 * time.Millisecond,
			Communication:       90*time.Millisecond - 2*own,
			CommunicationHidden: 10 * time.Millisecond, Bytes: 1 << 20, Buckets: 2,
			Telemetry: telemetry.Sample{telemetry.Utilization: 50, telemetry.Memory: 20 * factor, telemetry.Power: 100,
				telemetry.Temperature: 60 + factor}})
	}
	return records
}

func near(got Number, want float64) bool { return math.Abs(float64(got)-want) <= 1e-6*math.Abs(want) }

func TestASummaryAddsUpWhatRanksMeasured(t *testing.T) {
	dir := t.TempDir()
	writeRecords(t, dir, steadyRecords(50, 24, 1), steadyRecords(50, 8, 1.4))
	s, err := Summarize(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	const first = 0.003 + 0.090 // no step precedes the first one, so its time is the sum of its measured parts
	for _, c := range []struct {
		name string
		got  Number
		want float64
	}{
		{"throughput", s.Throughput, 50 * 32 / (49*0.1 + first)},
		{"median step", s.StepTime.P50, 0.1},
		{"fastest step", s.StepTime.Min, first},
		{"training time", s.TrainingTime, 49*0.1 + first},
		{"communication", s.CommunicationTime, (0.030 + 0.006) / 2},
		{"hidden communication", s.CommunicationHidden, 0.010},
		{"overlap", s.Overlap, 0.010 / (0.010 + 0.018)},
		{"ratio", s.CommunicationRatio, 0.018 / 0.072},
		{"bus bandwidth", s.BusBandwidth, (1 << 20) / 0.028},
		{"memory", s.MemoryUtilization, 0.28},
		{"utilization", s.Utilization, 0.5},
		// The imbalance excludes exchanges, because they are not compute time.
		{"imbalance", s.Imbalance, 1 - 0.031/0.043},
		{"loss", s.FinalTrainLoss, 0.02},
		{"compute of rank 1", s.PerRank[1].Compute, 0.043},
		{"all-reduce of rank 1", s.PerRank[1].AllReduce.P99, 0.016},
		{"temperature", s.PerRank[1].Temperature, 61.4},
	} {
		if !near(c.got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
		}
	}
	if s.Steps != 50 || s.RecordedSteps != 50 || s.Ranks != 2 || s.BatchSize != 32 || s.Status != "crashed" {
		t.Errorf("got %+v", s)
	}
	if shares := s.PerRank[1].ByBatchSize; len(shares) != 1 || shares[0].Samples != 8 ||
		!near(shares[0].SamplesPerSecond, 8/0.043) {
		t.Errorf("shares of rank 1: got %+v", shares)
	}
}

// The last batch of an epoch may be smaller. In a PyTorch run, the summary must count it as a step.
func TestASmallerLastBatchIsAStep(t *testing.T) {
	root := t.TempDir()
	run, err := experiment.Open(experiment.Options{OutputDir: root, Name: "run", Resume: experiment.ResumeNone})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if err := errors.Join(run.Begin(), run.StoreConfig("[data]\nbatch_size = 32\n", "test")); err != nil {
		t.Fatal(err)
	}
	first, second := steadyRecords(50, 24, 1), steadyRecords(50, 8, 1.4)
	first[49].BatchSize, second[49].BatchSize = 10, 3
	writeRecords(t, run.Dir, first, second)
	s, err := Summarize(run.Dir, "")
	if err != nil {
		t.Fatal(err)
	}
	const seconds = 49*0.1 + 0.003 + 0.090
	if s.Steps != 50 || s.RecordedSteps != 50 || s.BatchSize != 32 || !near(s.TrainingTime, seconds) ||
		!near(s.Throughput, (49*32+13)/seconds) {
		t.Errorf("got %+v", s)
	}
}

func TestPausesAreNoPartOfTheThroughput(t *testing.T) {
	dir := t.TempDir()
	records := steadyRecords(40, 10, 1)
	for i := 20; i < 40; i++ {
		records[i].Timestamp = records[i].Timestamp.Add(time.Minute) // the gap simulates an evaluation
	}
	writeRecords(t, dir, records)
	s, err := Summarize(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := 400 / (38*0.1 + 2*0.093); s.Pauses != 1 || !near(s.Throughput, want) {
		t.Errorf("got %d pauses and %v samples/s, want 1 and %v", s.Pauses, s.Throughput, want)
	}
	if !math.IsNaN(float64(s.BusBandwidth)) || !math.IsNaN(float64(s.Imbalance)) {
		t.Errorf("one rank: got a bus bandwidth of %v and an imbalance of %v", s.BusBandwidth, s.Imbalance)
	}
}

// In a killed run, the last records of rank 1 are missing, and its last line is incomplete. The result belongs to the
// previous process.
func TestAKilledRunIsSummedUp(t *testing.T) {
	root := t.TempDir()
	run := begun(t, root, "killed")
	if err := run.StoreConfig("[data]\nbatch_size = 32\n", "test"); err != nil {
		t.Fatal(err)
	}
	if err := run.WriteResult(experiment.Result{Steps: 20, Exit: 75, Model: "resnet50",
		FinalTrainLoss: 7}); err != nil {
		t.Fatal(err)
	}
	if err := run.Begin(); err != nil {
		t.Fatal(err)
	}
	writeRecords(t, run.Dir, steadyRecords(50, 24, 1), steadyRecords(47, 8, 1.4))
	path := filepath.Join(run.Dir, "logs", runtime.FileName(1))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)-40], 0o644); err != nil { // ends the file in the middle of record 47
		t.Fatal(err)
	}
	s, err := Summarize(run.Dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if s.Steps != 46 || s.Ranks != 2 || s.BatchSize != 32 || s.Status != "running" || s.Model != "resnet50" {
		t.Errorf("got %+v", s)
	}
	if want := []string{"rank_1_metrics.json: 1 damaged line ignored",
		"rank_1_metrics.json: ends at step 46, before the last 4 steps of rank 0, which the figures leave out"}; !slices.Equal(s.Damaged, want) {
		t.Errorf("got %q, want %q", s.Damaged, want)
	}
	if err := run.WriteResult(experiment.Result{Steps: 50, Exit: 75, FinalTrainLoss: 7}); err != nil {
		t.Fatal(err)
	}
	if s, err = Summarize(run.Dir, ""); err != nil || s.Status != "stopped" || s.FinalTrainLoss != 7 {
		t.Errorf("got %v and %+v", err, s)
	}
	if err := run.Begin(); err != nil { // a later process begins, and is then killed
		t.Fatal(err)
	}
	if s, err = Summarize(run.Dir, ""); err != nil || s.Status != "running" || s.Model != "" ||
		near(s.FinalTrainLoss, 7) {
		t.Errorf("after a later start: got %v and %+v", err, s)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Summarize(run.Dir, ""); err != nil || s.Status != "crashed" {
		t.Errorf("after the end of this process: got %v and %+v", err, s)
	}
}

// If a process ends before its first step, the records belong to an earlier process, or there are none. The summary
// must state the end of the newest process.
func TestASummaryStatesTheEndOfTheNewestProcess(t *testing.T) {
	run := begun(t, t.TempDir(), "stopped")
	writeRecords(t, run.Dir, steadyRecords(6, 24, 1))
	if err := run.WriteResult(experiment.Result{Exit: 130, Error: "stopped by Ctrl-C"}); err != nil {
		t.Fatal(err)
	}
	if s, err := Summarize(run.Dir, ""); err != nil || s.Status != "stopped" || s.Steps != 6 ||
		!near(s.FinalTrainLoss, 1.0/6) {
		t.Errorf("with the records of an earlier process: got %v and %+v, want stopped after 6 steps", err, s)
	}
	if err := os.Remove(filepath.Join(run.Dir, "logs", runtime.FileName(0))); err != nil {
		t.Fatal(err)
	}
	if _, err := Summarize(run.Dir, ""); err == nil ||
		!strings.Contains(err.Error(), "ended before its first step was complete (exit code 130: stopped by Ctrl-C)") {
		t.Errorf("without records: got %v, want the reason", err)
	}
}

func TestARankWithoutRecordsIsToldOf(t *testing.T) {
	run := begun(t, t.TempDir(), "ranks")
	records := steadyRecords(50, 8, 1)
	writeRecords(t, run.Dir, records, records, records)
	if err := os.Remove(filepath.Join(run.Dir, "logs", runtime.FileName(1))); err != nil {
		t.Fatal(err)
	}
	if _, err := Summarize(run.Dir, ""); err == nil || !strings.Contains(err.Error(), "rank 1 of 3") {
		t.Errorf("without the second of three: got %v", err)
	}
	if err := os.Remove(filepath.Join(run.Dir, "logs", runtime.FileName(2))); err != nil {
		t.Fatal(err)
	}
	if _, err := Summarize(run.Dir, ""); err != nil {
		t.Errorf("of one rank: %v", err)
	}
	writeFile(t, filepath.Join(run.Dir, "logs", runtime.EventsFile), `{"step":0,"start":{"ranks":2}}`+"\n")
	if _, err := Summarize(run.Dir, ""); err == nil || !strings.Contains(err.Error(), "rank 1 of 2") ||
		!strings.Contains(err.Error(), "copy the whole folder") {
		t.Errorf("with a start of two ranks: got %v", err)
	}
	if err := run.WriteResult(experiment.Result{Steps: 50, Ranks: 3, Ended: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := Summarize(run.Dir, ""); err == nil || !strings.Contains(err.Error(), "ranks 1, 2 of 3") {
		t.Errorf("with a result of three ranks: got %v", err)
	}
}

func TestAFolderWithoutRecordsIsToldOf(t *testing.T) {
	if _, err := Summarize(t.TempDir(), ""); !errors.Is(err, ErrNoRecords) {
		t.Errorf("got %v", err)
	}
}

func TestThinnedValuesStayEvenlySpaced(t *testing.T) {
	var kept thinned
	for i := range 5*maxLatencies + 17 {
		kept.add(float64(i))
	}
	if len(kept.values) > maxLatencies || len(kept.values) < maxLatencies/2 {
		t.Fatalf("kept %d values, want %d to %d", len(kept.values), maxLatencies/2, maxLatencies)
	}
	for i, v := range kept.values {
		if v != float32(i*kept.every) {
			t.Fatalf("value %d: got %v, want %v", i, v, i*kept.every)
		}
	}
	if d := distribution(slices.Clone(kept.values[:100])); d.P50 != Number(kept.values[49]) ||
		d.P99 != Number(kept.values[98]) || d.Max != Number(kept.values[99]) {
		t.Errorf("got %+v", d)
	}
}

func BenchmarkSummarize(b *testing.B) {
	dir := b.TempDir()
	writeRecords(b, dir, steadyRecords(10000, 24, 1))
	for b.Loop() {
		if _, err := Summarize(dir, ""); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10000, "ns/record")
}

// The verdict of the summary must combine all windows. In this run, the share of rank 1 is larger than its speed
// justifies.
func TestASummarySaysWhatLimitsTheRun(t *testing.T) {
	record := func(samples int64, ms time.Duration) (records []runtime.Record) {
		for i := int64(1); i <= 152; i++ { // two warm-up steps, and three windows
			records = append(records, runtime.Record{Iteration: i, Timestamp: time.Unix(1_800_000_000, i*100_000_000),
				BatchSize: samples, Forward: ms * time.Millisecond, Backward: ms * time.Millisecond,
				Communication: (90 - 2*ms) * time.Millisecond, Optimizer: time.Millisecond,
				Telemetry: telemetry.Sample{telemetry.Memory: 20}})
		}
		return records
	}
	dir := t.TempDir()
	writeRecords(t, dir, record(16, 10), record(16, 40))
	s, err := Summarize(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	b := s.Bottleneck
	// The speeds are 16 samples in 20 ms and in 80 ms, together 1 sample/ms. With shares in proportion to the speeds,
	// 32 samples would take 32 ms. The slowest rank takes 80 ms.
	const lost = 0.080 - 0.032 // in seconds
	if b == nil || b.Bound != "straggler" || b.Windows["straggler"] != 3 || b.Rank == nil || *b.Rank != 1 ||
		!near(b.Parts.Imbalance, lost) || !near(b.Parts.Communication, 0.010) {
		t.Errorf("got %+v, want rank 1 as straggler in 3 windows, losing %g s", b, lost)
	}
	short := t.TempDir()
	writeRecords(t, short, steadyRecords(10, 8, 1))
	if s, err := Summarize(short, ""); err != nil || s.Bottleneck == nil || s.Bottleneck.Bound == "" {
		t.Errorf("fewer steps than a window: got %+v, %v, want a verdict on them", s.Bottleneck, err)
	}
	one := t.TempDir()
	writeRecords(t, one, steadyRecords(1, 8, 1))
	if s, err := Summarize(one, ""); err != nil || s.Bottleneck != nil {
		t.Errorf("one step: got %+v, %v, want no verdict", s.Bottleneck, err)
	}
}

// The verdict must cover all steps after the warm-up. A straggler in one of two windows counts half. The steps after
// the last window count, too.
func TestAVerdictCoversTheWholeRun(t *testing.T) {
	records := func(own func(step int64) time.Duration) (records []runtime.Record) {
		for i := int64(1); i <= 122; i++ { // two warm-up steps, two windows, and 20 more steps
			compute, wait := own(i), 100*time.Millisecond-own(i)
			if i <= runtime.WarmUpSteps {
				wait = time.Second
			}
			records = append(records, runtime.Record{Iteration: i, Timestamp: time.Unix(1_800_000_000, i*120_000_000),
				BatchSize: 16, Forward: compute, Backward: 10 * time.Millisecond, Exchanges: 10 * time.Millisecond,
				Communication: wait, CommunicationHidden: 4 * time.Millisecond, Bytes: 1 << 20,
				Telemetry: telemetry.Sample{telemetry.Memory: 20}})
		}
		return records
	}
	dir := t.TempDir()
	writeRecords(t, dir, records(func(int64) time.Duration { return 40 * time.Millisecond }),
		records(func(step int64) time.Duration {
			if step <= 52 {
				return 80 * time.Millisecond
			}
			return 40 * time.Millisecond
		}))
	balance := `{"step":2,"share_of_oracle":0.5}` + "\n" + `{"step":42,"share_of_oracle":0.8}` + "\n" +
		`{"step":122,"share_of_oracle":1}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "logs", balanceFile), []byte(balance), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Summarize(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	// A step takes 120 ms. In the first window, the slowest rank computes for 80 ms, sums gradients for 20 ms and
	// exchanges statistics for 10 ms. According to the decisions, 40 of these steps are at 80 % of the oracle, and 10
	// are at 100 %.
	// In the other 70 steps, gradients take 60 ms and exchanges take 10 ms.
	const communication, imbalance = (50*0.030 + 70*0.070) / 120, 40 * 0.2 * 0.110 / 120
	b := s.Bottleneck
	if b == nil || b.Bound != "communication-bound" || !near(b.Parts.Communication, communication) ||
		!near(b.Parts.Imbalance, imbalance) || !near(b.Step, 0.120) {
		t.Fatalf("got %+v, want communication-bound, losing %g s, and %g s to imbalance", b, communication, imbalance)
	}
	if want := "communication-bound: 53.3 of 120.0 ms per step (44 %) are lost waiting for gradients; another 4.0 ms are hidden behind the backward pass; also lost: imbalance 7.3 ms, pauses 10.0 ms"; b.Verdict !=
		want {
		t.Errorf("got verdict %q, want %q", b.Verdict, want)
	}
	// Rank 0 waits 40 ms longer than rank 1 in each of 50 steps, which is a mean of 20 ms over the ranks.
	if waits := s.StepParts.Communication + s.StepParts.Exchanges; !near(waits-b.Parts.Communication, 50*0.020/120) ||
		!near(s.StepParts.Exchanges, 0.010) {
		t.Errorf("ranks wait %v s, of it %v s in exchanges; want %g s more than the lost communication", waits,
			s.StepParts.Exchanges, 50*0.020/120)
	}
	// The fraction of the oracle must agree with the parts of the mean step.
	if want := 1 - imbalance/0.120; !near(s.ShareOfOracleMean, want) || s.ShareOfOracle != 1 {
		t.Errorf("got %v and %v of the oracle, want %v, and 1 at the end", s.ShareOfOracleMean, s.ShareOfOracle, want)
	}
}

// A run of three unequal ranks was resumed with one rank, whose time per sample is different. The summary must describe
// this rank.
func TestASummaryBelongsToThePresentRanks(t *testing.T) {
	dir := t.TempDir()
	alone := steadyRecords(120, 32, 0.5)
	for i := range 60 {
		alone[i] = steadyRecords(60, 16, 1)[i]
	}
	for i := range alone {
		alone[i].StepTime, alone[i].TrainingTime = 100*time.Millisecond, time.Duration(i+1)*100*time.Millisecond
	}
	writeRecords(t, dir, alone, steadyRecords(60, 8, 1.4), steadyRecords(60, 8, 1.2))
	events := `{"step":0,"start":{"ranks":3,"unit":"img","units_per_sample":1}}` + "\n" +
		`{"step":60,"start":{"ranks":1,"unit":"img","units_per_sample":1}}` + "\n"
	decisions := `{"step":50,"share_of_oracle":0.5}` + "\n"
	for name, text := range map[string]string{runtime.EventsFile: events, balanceFile: decisions} {
		if err := os.WriteFile(filepath.Join(dir, "logs", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Summarize(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if s.Ranks != 1 || len(s.PerRank) != 1 || s.FirstStep != 61 || s.Steps != 120 || s.RecordedSteps != 60 {
		t.Errorf("got %d ranks, %d of them described, steps %d to %d (%d recorded), want 1 rank in steps 61 to 120",
			s.Ranks, len(s.PerRank), s.FirstStep, s.Steps, s.RecordedSteps)
	}
	if !near(s.Throughput, 320) || !near(s.PerRank[0].Samples, 32) || s.ShareOfOracle == s.ShareOfOracle {
		t.Errorf("got %v samples/s, %v samples a step, %v of the oracle, want 320, 32 and an unknown fraction",
			s.Throughput, s.PerRank[0].Samples, s.ShareOfOracle)
	}
	if b := s.Bottleneck; b == nil || strings.Contains(b.Verdict, "rank") {
		t.Errorf("got the bottleneck %+v, want one that names no rank", b)
	}
	other, _ := pair(t)
	side, err := CompareTrials(trials(t, dir, other))
	if err != nil {
		t.Fatal(err)
	}
	if of := side.Trials[0]; of.FirstStep != 61 || !near(of.TrainingTime, 12) ||
		!near(of.RankHours, (6*3+6*1)/3600.0) || !math.IsNaN(float64(of.Energy)) {
		t.Errorf("got steps from %d, %v s, %v rank-hours, %v kWh; want 61, 12 s, the hours of three ranks and then one, and unknown",
			of.FirstStep, of.TrainingTime, of.RankHours, of.Energy)
	}
	if text := side.Report(nil); !strings.Contains(text, presentRanks) || !strings.Contains(text, "61 to 120") ||
		!strings.Contains(text, "are those from step 61 on (1 of them)") {
		t.Errorf("got\n%s\nwant the steps of the figures", text)
	}
}

// The records of a killed run may end before its last decision.
func TestTheLastDecisionNeedsNoRecord(t *testing.T) {
	s := Summary{FirstStep: 1, Steps: 90}
	s.addDecisions([]Decision{{Step: 80, ShareOfOracle: 0.5}, {Step: 93, ShareOfOracle: 0.9}})
	if !near(s.ShareOfOracle, 0.9) || !near(s.ShareOfOracleMean, (80*0.5+10*0.9)/90) {
		t.Errorf("got %v at the end and %v as mean, want 0.9 and 0.544", s.ShareOfOracle, s.ShareOfOracleMean)
	}
}

// If the estimate of the last decision differs from the busy times, the summary must contain the decision's reason. If
// they agree, it must contain no such text.
func TestTheSummarySaysWhyFiguresDiffer(t *testing.T) {
	of := 0.9
	for last, want := range map[string]string{"": "",
		"busy times vary": `"share_of_oracle_disagreement":"busy times vary"`} {
		var lines []byte
		for step, differs := range []string{"rank 0 is busy for 1.8 of 8.0 ms", last} {
			line, err := json.Marshal(runs.Decision{Step: int64(step) + 1, OfOracle: &of, Differs: differs})
			if err != nil {
				t.Fatal(err)
			}
			lines = append(append(lines, line...), '\n')
		}
		path := filepath.Join(t.TempDir(), balanceFile)
		writeFile(t, path, string(lines))
		var run Run
		if err := run.readDecisions(path); err != nil || len(run.Decisions) != 2 {
			t.Fatalf("got %d decisions, error %v, want 2", len(run.Decisions), err)
		}
		s := Summary{FirstStep: 1, Steps: 2}
		s.addDecisions(run.Decisions)
		text, err := json.Marshal(&s)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) || want == "" && strings.Contains(string(text), "disagreement") {
			t.Errorf("after %q: got %s, want %q", last, text, want)
		}
	}
}

// The evaluations of a killed run are only in its events.
func TestAKilledRunHasItsEvaluations(t *testing.T) {
	run := begun(t, t.TempDir(), "killed")
	writeRecords(t, run.Dir, steadyRecords(50, 24, 1))
	writeFile(t, filepath.Join(run.Dir, "logs", runtime.EventsFile), `{"step":0,"start":{"ranks":1,"best_metric":"top1","metrics":[{"key":"top1","title":"top-1","percent":true}]}}
{"step":20,"evaluation":{"samples":8,"loss":2,"metrics":{"top1":0.5},"best":true}}
{"step":30,"evaluation":{"samples":8,"loss":1,"metrics":{"top1":0.75},"best":true}}
{"step":40,"evaluation":{"samples":8,"loss":null,"metrics":{"top1":0.25},"best":false}}
{"step":40,"start":{"ranks":1,"best_metric":"loss","metrics":[{"key":"top1","title":"top-1","percent":true}]}}
`)
	s, err := Summarize(run.Dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if s.BestEval != 0.75 || s.BestEvalMetric != "top1" || s.BestEvalStep != 30 {
		t.Errorf("got the best %s %v at step %d, want top1 0.75 at step 30", s.BestEvalMetric, s.BestEval,
			s.BestEvalStep)
	}
	if e := s.LastEval; e == nil || e.Step != 40 || !math.IsNaN(float64(e.Loss)) || e.Metrics["top1"] != 0.25 {
		t.Errorf("got the last evaluation %+v, want that of step 40", e)
	}
	if err := run.WriteResult(experiment.Result{Steps: 50, BestEval: 0.9, BestEvalMetric: "top1",
		BestEvalStep: 50}); err != nil {
		t.Fatal(err)
	}
	if s, err = Summarize(run.Dir, ""); err != nil || s.BestEval != 0.9 || s.BestEvalStep != 50 || s.LastEval == nil {
		t.Errorf("with a result: got %+v, %v, want the best evaluation of the result", s, err)
	}
}

// If the verdict is noise-bound, the summary must name the cause that the decisions state.
func TestTheSummaryNamesTheCauseOfNoise(t *testing.T) {
	run := twoRanks
	run.noise, run.shares, run.speed = 0.5, []int64{16, 16}, []float64{1000, 1000}
	for step := 10; step <= int(run.steps); step += 10 {
		run.decisions += fmt.Sprintf(`{"step":%d,"shares":[16,16],"share_of_oracle":1,"step_seconds":0.02,`+
			`"lost_seconds":{"noise":0.005},"noisy_rank":null,"noise_cause":"CPU quota",`+
			`"noise_evidence":"a CPU quota\nstops rank 1"}`+"\n", step)
	}
	s, err := Summarize(run.write(t, t.TempDir()), "")
	if err != nil {
		t.Fatal(err)
	}
	if want := "; cause: a CPU quota stops rank 1"; !strings.Contains(s.Bottleneck.Verdict, want) {
		t.Errorf("got the verdict %q, want %q in it", s.Bottleneck.Verdict, want)
	}
}
