package status

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/runs"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// viewOf returns a run with values of typical lengths.
func viewOf(ranks int) runs.View {
	half, oracle, useful, step := 0.5, 0.987, 0.1, 0.6
	v := runs.View{Name: "a", Last: 51, Common: 50, Length: 200, State: runs.State{Kind: runs.Running},
		Precision: "bf16"}
	v.Totals = runs.Totals{Seconds: 12, StepSeconds: 0.24, SamplesPerSecond: experiment.Number(show.NaN)}
	v.Settings.Model.Name, v.Settings.Data.Dataset, v.Settings.Balance.Policy = "resnet50", "cifar10", "hybrid"
	v.Decision = &runs.Decision{Step: 40, Policy: "hybrid", Shares: []int{40, 24}, Next: []int{48, 16}, Changed: true,
		Reason: "rank 1 is the slowest", OfOracle: &oracle, Imbalance: &half,
		Seconds: &step, Useful: &useful, Lost: map[string]*float64{"data": &half}}
	v.Speed = runs.Speed{Decision: 40, Samples: 64, StepSeconds: 0.6, SamplesPerSecond: 320}
	v.Alerts = []runs.Alert{{Step: 40, Kind: "straggler", Text: "rank 1 is slower than usual"}}
	for rank := range ranks {
		r := runtime.Record{Iteration: 50, Rank: rank, BatchSize: int64(40 - 16*(rank%2)),
			Values: telemetry.Values{telemetry.Loss: 1.25}, Forward: 100 * time.Millisecond,
			Backward: 100 * time.Millisecond, Telemetry: telemetry.Unknown()}
		r.Telemetry[telemetry.Utilization] = 71
		k := runs.RankView{Rank: rank, Record: &r, Health: "healthy", RankSpeed: runs.RankSpeed{
			Share: experiment.Number(40 - 16*(rank%2)), BusySeconds: 0.2, WaitedSeconds: 0.35}}
		k.SamplesPerSecond = k.Share / k.BusySeconds
		if rank%2 == 1 {
			k.Health, k.Cause = "sick", "thermal throttling"
		}
		v.Ranks = append(v.Ranks, k)
	}
	return v
}

func TestSlowRunsHaveAThroughput(t *testing.T) {
	v := viewOf(1)
	v.Ranks[0].SamplesPerSecond, v.Speed.SamplesPerSecond = 0.4, 0.2 // the rank waits during half of the step
	if got := Text(v, 0, 0); strings.Count(got, "0.4000") != 1 ||
		!strings.Contains(got, "Cluster Throughput: 0.2000 samples/s") {
		t.Errorf("got\n%s\nwant 0.4000 samples/s of the rank's busy time and 0.2000 of the step", got)
	}
}

func TestATallTerminalShowsAllRanks(t *testing.T) {
	v := viewOf(100)
	for height, want := range map[int]bool{0: false, 40: false, 500: true} {
		if got := Text(v, 0, height); strings.Contains(got, "more ranks") == want || height == 0 &&
			!strings.Contains(got, "68 more ranks") {
			t.Errorf("%d lines: got\n%s", height, got)
		}
	}
}

// After its end, a run must show the verdict on all its steps. It must also show the newest advice about the kind of
// loss that this verdict names.
func TestBottleneckOfARun(t *testing.T) {
	v := viewOf(2)
	v.Verdicts = []runs.Verdict{
		{From: 1, To: 52, NewestFrom: 3,
			BottleneckEvent: runtime.BottleneckEvent{Bound: "noise-bound", Text: "noise-bound: A", Advice: "calm it"}},
		{From: 53, To: 102, NewestFrom: 53,
			BottleneckEvent: runtime.BottleneckEvent{Bound: "data-bound", Text: "data-bound: B", Advice: "load faster"}}}
	whole := &runs.Account{From: 3, To: 120, Bound: "noise-bound", Verdict: "noise-bound: C"}
	for _, c := range []struct {
		account *runs.Account
		want    string
	}{
		{nil, "bottleneck: data-bound: B (steps 53 to 102)\n  advice: load faster\n"},
		{whole, "bottleneck: noise-bound: C (steps 3 to 120)\n  advice: calm it\n"},
		{&runs.Account{From: 3, To: 120, Bound: "compute-bound", Verdict: "compute-bound: D"},
			"bottleneck: compute-bound: D (steps 3 to 120)\nalert"},
		{&runs.Account{From: 3, To: 120}, "bottleneck: data-bound: B"}, // a summary that an older program wrote
	} {
		v.Account = c.account
		if got := Text(v, 0, 0); !strings.Contains(got, c.want) {
			t.Errorf("got\n%s\nwant %q", got, c.want)
		}
	}
}

// The figures of the run cover all steps, and those of ranks only some. The text must say so.
func TestFiguresOfTheWholeRunSaySo(t *testing.T) {
	v := viewOf(2)
	v.SegmentFrom, v.Totals.Ended, v.Totals.SamplesPerSecond = 41, true, 300
	for _, want := range []string{"from step 41 on, the first step with 2 ranks; figures of the whole run say so",
		"mean step 240.0 ms (whole run)", "training time 12.0 s (whole run)", "300.0 samples/s (whole run)"} {
		if got := Text(v, 0, 0); !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q", got, want)
		}
	}
}

func TestTextOfARun(t *testing.T) {
	v := viewOf(2)
	const want = `a: running, step 51 of 200 (26 %), about 1m29s left
The cluster does 17 % of what it could.
resnet50 on cifar10 | policy hybrid | bf16 | loss 1.2500 | step 50: 200.0 ms | training time 12.0 s

[Load Balancer Status] step 40 | hybrid | imbalance 50.0 % | 98.7 % of the oracle | a step: 600.0 ms = 100.0 useful + 500.0 data
  node  use %  memory %  batch  samples/s  busy ms  wait ms  verdict
     0     71         -     40      200.0    200.0    350.0  healthy
     1     71         -     24      120.0    200.0    350.0  slower than usual, cause: thermal throttling
Cluster Throughput: 320.0 samples/s (window of step 40)
last decision: step 40: 40/24 to 48/16: rank 1 is the slowest
alert: step 40: rank 1 is slower than usual
`
	if got := Text(v, 0, 0); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	const narrow = `a: running, step 51 of 200 (26 %), about 1m29s left
The cluster does 17 % of what it could.
resnet50 on cifar10 | policy hybrid | bf16 | loss 1.2500 | step 50: 200.0 ms |
  training time 12.0 s

[Load Balancer Status] step 40 | hybrid | imbalance 50.0 % | 98.7 % of the
  oracle | a step: 600.0 ms = 100.0 useful + 500.0 data
  node  use %  memory %  batch  samples/s  busy ms  wait ms  verdict
     0     71         -     40      200.0    200.0    350.0  healthy
     1     71         -     24      120.0    200.0    350.0  slower than usual,
                                                             cause: thermal
                                                             throttling
Cluster Throughput: 320.0 samples/s (window of step 40)
last decision: step 40: 40/24 to 48/16: rank 1 is the slowest
alert: step 40: rank 1 is slower than usual
`
	if got := Text(v, 80, 0); got != narrow {
		t.Errorf("80 columns: got\n%s\nwant\n%s", got, narrow)
	}
	empty := Text(runs.View{Name: "b", State: runs.State{Kind: runs.Crashed, Why: "the process ended"}}, 0, 0)
	if empty != "b: crashed\nthe process ended\n" {
		t.Errorf("a run without records: got %q", empty)
	}
}

// If there is no room for all ranks, the text must show those that need attention.
func TestTextShowsRanksThatNeedAttention(t *testing.T) {
	v := viewOf(1000)
	for rank := range v.Ranks {
		v.Ranks[rank].Health, v.Ranks[rank].Cause = "healthy", ""
	}
	v.Ranks[777].Health, v.Ranks[777].Cause = "sick", "thermal throttling"
	v.Ranks[888].Record, v.Ranks[888].Missing = nil, true
	v.Ranks[500].BusySeconds = 1
	got := Text(v, 80, 30)
	order := regexp.MustCompile(`(?m)^ +(\d+) +[\d-]+ +[\d-]+ `).FindAllStringSubmatch(got, -1)
	if len(order) < 4 || order[0][1] != "777" || order[1][1] != "888" || order[2][1] != "500" || order[3][1] != "0" ||
		strings.Count(got, "\n") > 29 {
		t.Errorf("got the ranks %v of\n%s\nwant 777, 888, 500, 0 and others", order, got)
	}
}

// The first sentence must use the same account as the dashboard's page: that of the newest window, and after the end
// that of the summary.
func TestTheSentenceHasTheAccountOfThePage(t *testing.T) {
	v := viewOf(2)
	v.Verdicts = []runs.Verdict{{BottleneckEvent: runtime.BottleneckEvent{Seconds: 1,
		Parts: map[string]float64{"useful": 0.8, "noise": 0.2}}}}
	summary := &runs.Account{Seconds: 2, Parts: map[string]float64{"useful": 1.2, "data": 0.8}}
	for _, test := range []struct {
		kind    runs.Kind
		account *runs.Account
		want    string // "": no sentence
	}{
		{runs.Running, nil, "The cluster does 80 % of what it could."},
		{runs.Running, summary, "The cluster does 80 % of what it could."},
		{runs.Finished, summary, "The cluster did 60 % of what it could."},
		{runs.Crashed, nil, ""}, // the newest window does not cover the whole run
	} {
		v.State.Kind, v.Account = test.kind, test.account
		got := Text(v, 0, 0)
		if test.want == "" && strings.Contains(got, "of what it could") || !strings.Contains(got, test.want) {
			t.Errorf("%v: got\n%s\nwant %q", test.kind, got, test.want)
		}
	}
}

// The text must contain the figures of the whole run, and not those of its last step.
func TestTextOfARunThatHasEnded(t *testing.T) {
	v := viewOf(2)
	v.State.Kind, v.Totals = runs.Finished, runs.Totals{Seconds: 48.25, StepSeconds: 0.24125, SamplesPerSecond: 265.3,
		Ended: true}
	v.Account = &runs.Account{From: 3, To: 51, Seconds: 0.24, Parts: map[string]float64{"useful": 0.15, "data": 0.09}}
	got := Text(v, 0, 0)
	for _, want := range []string{"\nThe cluster did 63 % of what it could.\n", " | mean step 241.2 ms | training time 48.2 s\n",
		"\nCluster Throughput: 265.3 samples/s (whole run)\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant also %q", got, want)
		}
	}
}

// If records are missing or damaged, the text must name them, because the figures of all ranks are then unknown.
func TestTextNamesMissingAndDamagedRecords(t *testing.T) {
	v := viewOf(2)
	v.Ranks[1].Record, v.Ranks[1].Missing = nil, true
	v.Speed = runs.Speed{SamplesPerSecond: experiment.Number(show.NaN)}
	v.Lacking, v.Notes = "no records of rank 1 of 2", []string{"CPU quotas of the ranks (real): 0.8/0.4 CPUs"}
	v.Damaged = map[string]string{"events.jsonl": "the file lacks its end", "balance.jsonl": "1 damaged line ignored"}
	got := Text(v, 100, 0)
	for _, want := range []string{"\nno records of rank 1 of 2\nbalance.jsonl: 1 damaged line ignored\nevents.jsonl: the file lacks its end\nnote: CPU quotas of the ranks (real): 0.8/0.4 CPUs\n",
		"  no records\n", "Cluster Throughput: - samples/s (step 50)\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant also %q", got, want)
		}
	}
}

// No line may be longer than the window, and no word or number may be lost or divided.
func TestTextFitsAnyWindow(t *testing.T) {
	v := withMemory(viewOf(40))
	tiny := 0.00125
	v.State.Why = "the process ended without a result after step 1234567; the same command resumes from the newest checkpoint; logs/train.log has its last messages"
	v.Notes = []string{"CPU quotas of the ranks (real): 0.8/0.4/0.75/1.5 CPUs"}
	v.Decision.Lost = map[string]*float64{"imbalance": &tiny, "communication": &tiny, "data": &tiny, "noise": &tiny,
		"granularity": &tiny}
	v.Decision.Low, v.Decision.High = &tiny, &tiny
	v.Decision.Shares, v.Decision.Next = nil, nil
	for rank := range 40 {
		v.Decision.Shares, v.Decision.Next = append(v.Decision.Shares, 1000+rank), append(v.Decision.Next, 2000+rank)
	}
	v.Verdicts = []runs.Verdict{
		{
			BottleneckEvent: runtime.BottleneckEvent{
				Bound: "straggler", Text: "step 1234.5 ms, of these 234.5 ms (19.0 %) waiting for rank 1",
				Advice: "see the verdict of rank 1, and raise balance.interval from 20 to 40"}}}
	joined := func(text string) string { return strings.ReplaceAll(strings.Join(strings.Fields(text), ""), "/", "") }
	all := Text(v, 0, 0)
	for _, width := range []int{60, 80, 100, 120} {
		text := Text(v, width, 0)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d columns: got a line of %d characters: %q", width, n, line)
			}
		}
		if joined(text) != joined(all) {
			t.Errorf("%d columns: got\n%s\nwant the words of\n%s", width, text, all)
		}
		for _, number := range regexp.MustCompile(`\d+(\.\d+)? %|\d+\.\d+|\d+`).FindAllString(all, -1) {
			if !strings.Contains(text, number) {
				t.Errorf("%d columns: %q is divided in\n%s", width, number, text)
			}
		}
		for _, height := range []int{50, 40} {
			if lines := strings.Count(Text(v, width, height), "\n"); lines > height-1 {
				t.Errorf("%d columns and %d lines: got %d lines", width, height, lines)
			}
		}
	}
}

func TestWatchEndsWhenTheRunIsGone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := errors.Join(os.MkdirAll(filepath.Join(path, "configs"), 0o755),
		os.WriteFile(filepath.Join(path, "configs", "resolved.toml"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", path} {
		folder, run, err := open(t.Context(), dir, name)
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
		if exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), "folder of run a no longer exists") ||
			out.Len() > 0 {
			t.Errorf("%s: got error %v and output %q, want exit code %d and no output", name, err, out.String(),
				exit.Usage)
		}
		if err := os.Rename(path+"-1", path); err != nil {
			t.Fatal(err)
		}
	}
}
