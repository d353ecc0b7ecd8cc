package program

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// The test shows a real run of two ranks with different speeds in a real browser. The ranks are slowed down, so the
// browser has enough CPU time.
func TestDashboardShowsTheRecords(t *testing.T) {
	t.Parallel()
	const compared = 40 // number of steps whose figures are compared with the records
	ctx, p, dir := browser(t), buildProgram(t), t.TempDir()
	port := porttest.Free(t)
	set := []string{"device.kind=cpu", "data.batch_size=32", "train.precision=f32", "model.batch_norm=ghost",
		"model.ghost_group=2",
		"train.steps=100000", "balance.policy=hybrid"}
	slow, lead := asRank(p.command(dir, set...), 1, 2, port), asRank(p.command(dir, set...), 0, 2, port)
	slow.Env, lead.Env = append(slow.Env, "HETERO_LAB_SLOWDOWN=30"), append(lead.Env, "HETERO_LAB_SLOWDOWN=10")
	var messages strings.Builder
	lead.Stderr = &messages
	for _, cmd := range []*exec.Cmd{slow, lead} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
	}
	ended := make(chan error, 1)
	go func() { ended <- lead.Wait() }()
	for started := false; !started; { // waits until the folder of the run exists
		select {
		case err := <-ended:
			if exitOf(t, err) == exit.Usage && strings.Contains(messages.String(), "libhetero_cpu.so") {
				needtest.Missing(t, "cpu", "no CPU device was built")
			}
			t.Fatalf("the run did not start: %s", &messages)
		case <-time.After(50 * time.Millisecond):
			_, err := os.Stat(filepath.Join(dir, "run", "logs", runtime.FileName(1)))
			started = err == nil
		}
	}
	_, address, _ := startDashboard(t, p, "--input-dir", dir)

	visit(t, ctx, address)
	await(t, ctx, `document.querySelector('tbody a')?.textContent === 'run' && document.querySelector('.badge').textContent === 'running'`)
	evaluate[bool](t, ctx, `setTimeout(() => document.querySelector('tbody a').click(), 100), true`)
	await(t, ctx, `Number(document.querySelector('main.run')?.dataset.step) > 5`)
	// The page must show the conditions of the run from its start.
	await(t, ctx, `document.querySelector('.badge').textContent === 'running' && document.querySelector('.facts').textContent.includes('f32') && [...document.querySelectorAll('.problem')].some(p => p.textContent.includes("SIMULATED slowdown of the ranks' devices: x10/x30"))`)
	// The page must show new steps without a reload. A busy machine may complete few steps in this time, so the test
	// waits for all steps that it compares below.
	step := evaluate[string](t, ctx, `window.same = true, document.querySelector('main.run').dataset.step`)
	await(t, ctx, fmt.Sprintf(`window.same && Number(document.querySelector('main.run').dataset.step) > %s + 20 && Number(document.querySelector('main.run').dataset.step) > %d`,
		step, compared))
	await(t, ctx, `document.querySelectorAll('#changes tbody tr').length > 0 && document.querySelectorAll('#curves canvas').length > 0`)
	// The page must show the values of all ranks at the step below the pointer, and the reason of a decision. The test
	// moves the pointer again while it waits, because a step may still lack the record of a rank.
	await(t, ctx, `(() => { const over = document.querySelector('#shares .u-over'), box = over.getBoundingClientRect(), event = name => over.dispatchEvent(new MouseEvent(name, { clientX: box.left + box.width / 2, clientY: box.top + 9, bubbles: true })); event('mouseenter'); event('mousemove'); return true })() && !document.querySelector('#shares .u-legend').textContent.includes('–') && !document.querySelector('#throughput .u-legend').textContent.includes('–')`)
	screenshot(t, ctx, "run-light")
	accessible(t, ctx)
	// A link to a view must show this view.
	visit(t, ctx, address+"?run=run#stack")
	await(t, ctx, `document.querySelectorAll('#loss canvas').length > 0 && (top => top >= 0 && top < innerHeight)(document.querySelector('#stack').getBoundingClientRect().top)`)

	lead.Process.Signal(syscall.SIGINT)
	if code := exitOf(t, <-ended); code != exit.Interrupted {
		t.Errorf("got exit code %d, want %d", code, exit.Interrupted)
	}
	slow.Wait()
	await(t, ctx, `document.querySelector('.badge').textContent === 'stopped'`)
	var records [2][]runtime.Record
	for rank := range records {
		var err error
		if records[rank], _, err = runtime.ReadMetrics(
			filepath.Join(dir, "run", "logs", runtime.FileName(rank))); err != nil {
			t.Fatal(err)
		}
	}
	last := records[0][len(records[0])-1]
	await(t, ctx, fmt.Sprintf(`document.querySelector('main.run').dataset.step === '%d'`, last.Iteration))

	// Charts of the first steps must contain the exact values of each record.
	visit(t, ctx, address+fmt.Sprintf("?run=run&from=2&to=%d", compared))
	await(t, ctx, `document.querySelectorAll('#own canvas').length > 0`)
	for _, c := range []struct {
		chart, column string
		rank          int
		of            func(*runtime.Record) float64
	}{
		{"loss", "training", 0, func(r *runtime.Record) float64 { return r.Values[telemetry.Loss] }},
		{"shares", "rank 0", 0, func(r *runtime.Record) float64 { return float64(r.BatchSize) }},
		{"shares", "rank 1", 1, func(r *runtime.Record) float64 { return float64(r.BatchSize) }},
		{"own", "rank 1", 1, func(r *runtime.Record) float64 {
			return 1000 * (r.DataLoading + r.Forward + r.Backward - r.Exchanges).Seconds()
		}},
		{"throughput", "rank 1", 1, (*runtime.Record).Throughput},
		{"communication", "rank 0 exposed", 0, func(r *runtime.Record) float64 {
			return 1000 * r.Communication.Seconds()
		}},
		{"communication", "rank 1 hidden", 1, func(r *runtime.Record) float64 {
			return 1000 * r.CommunicationHidden.Seconds()
		}},
	} {
		got := valuesOf(t, ctx, c.chart)
		if len(got[c.column]) != compared-1 {
			t.Fatalf("chart %s: got %d values of %q, want %d steps; columns %v", c.chart, len(got[c.column]), c.column,
				compared-1, len(got))
		}
		for i, step := range got["step"] {
			r := &records[c.rank][int(step)-1]
			if want := c.of(r); r.Iteration != int64(step) || math.Abs(got[c.column][i]-want) > 1e-9*math.Abs(want) {
				// The tolerance allows for the page's multiplication by 1000 in another order.
				t.Errorf("chart %s, %s, step %v: got %v, want %v", c.chart, c.column, step, got[c.column][i], want)
			}
		}
	}
	checkFirstScreen(t, ctx, filepath.Join(dir, "run", "logs", "balance.jsonl"), compared)
	checkCommunication(t, ctx, filepath.Join(dir, "run", "logs", runtime.CommunicationFile))
	share := evaluate[string](t, ctx,
		`document.querySelector('#now tbody tr:nth-child(2) td:nth-child(3)').textContent`)
	if want := lastShares(t, filepath.Join(dir, "run", "logs", "balance.jsonl"))[1]; share != fmt.Sprint(want) {
		t.Errorf("table of ranks: got share %s of rank 1, want %d, that of the window of the newest decision", share,
			want)
	}
	// The page's security policy must block no part of the page, and no element may be wider than the window.
	if wide := evaluate[bool](t, ctx,
		`document.documentElement.scrollWidth > document.documentElement.clientWidth`); wide {
		t.Error("the page is wider than the window")
	}
	setTheme(t, ctx, "dark")
	screenshot(t, ctx, "run-dark")
	accessible(t, ctx)
	in(t, ctx, chromedp.EmulateViewport(390, 844))
	visit(t, ctx, address+"?run=run")
	await(t, ctx, `document.querySelectorAll('#own canvas').length > 0`)
	if wide := evaluate[int](t, ctx, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("the page is %d pixels wide on a phone, want at most 390", wide)
	}
	pictures(t, ctx, "run-phone")
	visit(t, ctx, address)
	await(t, ctx, `document.querySelectorAll('tbody tr').length > 0`)
	pictures(t, ctx, "list-phone")
	accessible(t, ctx)
}

// checkCommunication compares the page's view of communication with the newest line of its file: ranks, buckets and
// links. Both ranks are on this machine, so only rank 0 has records of its network interfaces. Both ranks have records
// of all-reduces.
func checkCommunication(t *testing.T, ctx context.Context, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var want runtime.Communication
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &want); err != nil {
		t.Fatal(err)
	}
	if len(want.Ranks) != 2 || len(want.Buckets) == 0 || len(want.Ranks[1].Links) != 1 {
		t.Fatalf("got %+v, want two ranks, buckets, and only the all-reduces as a link of rank 1", want)
	}
	steps := "Values of step" // the last window contains a single step
	if want.Steps != 1 {
		steps = fmt.Sprint(want.Steps, " steps up to step")
	}
	await(t, ctx, fmt.Sprintf(`document.querySelector('#links .explain + div .explain')?.textContent.includes('%s')`,
		steps))
	rows := func(table int) [][]string {
		return evaluate[[][]string](t, ctx, fmt.Sprintf(`[...document.querySelectorAll('#links table')[%d].querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.textContent))`,
			table))
	}
	shown := rows(0)
	for i, r := range want.Ranks {
		for column, seconds := range []float64{r.Compute, r.Exposed, r.Hidden} {
			if got, err := strconv.ParseFloat(shown[i][column+1], 64); err != nil ||
				math.Abs(got-1000*seconds) > 0.006*1000*seconds+1e-3 {
				t.Errorf("communication of rank %d, column %d: got %q ms, want %v s", i, column, shown[i][column+1],
					seconds)
			}
		}
	}
	if got := rows(1); len(got) != len(want.Buckets) || got[0][0] != want.Buckets[0].Name || got[0][2] == "–" ||
		got[0][3] == "–" || got[0][4] == "–" {
		t.Errorf("got buckets %q, want %+v with their times and bandwidth", got, want.Buckets)
	}
	computed, counted := 0, 0
	for _, row := range rows(2) {
		switch row[7] {
		case "computed from bytes and time":
			computed++
		case "byte counter":
			counted++
		}
	}
	if computed != 2 || counted != len(want.Ranks[0].Links)-1 {
		t.Errorf("got %d computed and %d counted links, want 2 and %d", computed, counted, len(want.Ranks[0].Links)-1)
	}
}

// lastShares returns the shares of the newest decision.
func lastShares(t *testing.T, decisions string) []int {
	t.Helper()
	text, err := os.ReadFile(decisions)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var d struct{ Shares []int }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &d); err != nil || len(d.Shares) != 2 {
		t.Fatalf("last decision: got %+v, %v, want two shares", d, err)
	}
	return d.Shares
}

// checkFirstScreen compares the first screen of a run with the decisions up to step last.
func checkFirstScreen(t *testing.T, ctx context.Context, decisions string, last int64) {
	t.Helper()
	text, err := os.ReadFile(decisions)
	if err != nil {
		t.Fatal(err)
	}
	shown, found := valuesOf(t, ctx, "speed"), 0
	for line := range strings.Lines(string(text)) {
		var d struct {
			Step    int64
			Seconds *float64            `json:"step_seconds"`
			Equal   *float64            `json:"equal_step_seconds"`
			Useful  *float64            `json:"useful_seconds"`
			Lost    map[string]*float64 `json:"lost_seconds"`
		}
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatal(err)
		}
		if d.Seconds == nil || d.Lost["imbalance"] == nil || d.Step < 2 || d.Step > last {
			continue
		}
		sum := *d.Useful
		for _, seconds := range d.Lost {
			sum += *seconds
		}
		if math.Abs(sum-*d.Seconds) > 0.01**d.Seconds {
			t.Errorf("step %d: the parts sum to %v s, want %v s", d.Step, sum, *d.Seconds)
		}
		i := slices.Index(shown["step"], float64(d.Step))
		if i < 0 {
			continue
		}
		found++
		if d.Equal == nil { // no rank was measured near its equal share
			if values := shown["equal shares"]; values != nil && !math.IsNaN(values[i]) {
				t.Errorf("equal shares at step %d: got %v samples/s, want none", d.Step, values[i])
			}
		} else if got, want := shown["equal shares"][i], 32 / *d.Equal; math.Abs(got-want) > 1e-6*want {
			// The server computes this figure in single precision.
			t.Errorf("equal shares at step %d: got %v samples/s, want %v", d.Step, got, want)
		}
		// The time of the best shares is a difference of two times in single precision. Its relative error grows as
		// this time becomes shorter.
		best := *d.Seconds - *d.Lost["imbalance"]
		tolerance := 1e-6 * (*d.Seconds + *d.Lost["imbalance"]) / best
		if got, want := shown["best shares (oracle)"][i], 32/best; math.Abs(got-want) > tolerance*want {
			t.Errorf("best shares at step %d: got %v samples/s, want %v", d.Step, got, want)
		}
	}
	if found == 0 {
		t.Error("no decision is in the chart")
	}
	if wide := evaluate[float64](t, ctx,
		`[...document.querySelectorAll('#account .part')].reduce((sum, p) => sum + parseFloat(p.style.width), 0)`); math.Abs(wide-100) > 1 {
		t.Errorf("the parts of the bar are %v %% wide, want 100", wide)
	}
	if got := evaluate[string](t, ctx, `document.querySelector('.lead').textContent`); !strings.HasPrefix(got,
		"The cluster did ") {
		t.Errorf("got the sentence %q", got)
	}
	if top := evaluate[bool](t, ctx,
		`(ids => ids.every((e, i) => i === 0 || e.getBoundingClientRect().top >= ids[i - 1].getBoundingClientRect().top))(['.lead', '#account', '#speed', '#who', '#decision', '#next', '.settings'].map(s => document.querySelector(s)))`); !top {
		t.Error("the parts of the first screen are in another order")
	}
}

// recordsOf opens the records of two ranks of a run. add appends records up to step to, and done closes the files.
// factor multiplies losses and times of forward passes.
func recordsOf(t *testing.T, dir string, factor float64) (add func(to int64), done func()) {
	t.Helper()
	var files []*runtime.Writer
	for rank := range 2 {
		logs := filepath.Join(dir, "logs")
		if err := os.MkdirAll(logs, 0o755); err != nil {
			t.Fatal(err)
		}
		w, _, err := runtime.Open(filepath.Join(logs, runtime.FileName(rank)), runtime.Options{Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, w)
	}
	step := int64(0)
	add = func(to int64) {
		for step < to {
			step++
			for rank, w := range files {
				w.Append(&runtime.Record{Iteration: step, Rank: rank, BatchSize: 48,
					Values: telemetry.Values{telemetry.Loss: factor * 2.123456789012 / float64(step),
						telemetry.LearningRate: 0.1, telemetry.GradNorm: 1.23456789, telemetry.LossScale: 1,
						telemetry.Accuracy: math.NaN()}, Timestamp: time.Unix(1700000000, step*1e6),
					Forward:  time.Duration(factor * float64(10e6+step%977*1000)),
					Backward: time.Duration(20e6 + step%877*1000), Telemetry: telemetry.Unknown()})
				if step%4000 == 0 || step == to {
					w.Flush()
				}
			}
		}
	}
	return add, func() {
		for _, w := range files {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
