package program

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	cdplog "github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// chromium starts the browser that all tests share, because a start takes seconds of CPU time. It returns nil if no
// browser is installed.
var chromium = sync.OnceValues(func() (context.Context, error) {
	var path string
	// The headless shell is Chromium without the windows of a desktop, which take most of its CPU time. The script of
	// that name in /usr/bin would leave the browser behind if this process was killed.
	for _, name := range []string{"/usr/lib/chromium/chromium-headless-shell", "chromium", "chromium-browser",
		"google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, nil
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.WSURLReadTimeout(3*time.Minute)) // the browser starts slowly on a busy machine
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses its sandbox to root
	}
	allocated, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocated)
	closeChromium = func() {
		if chromedp.Cancel(ctx) != nil { // closes the browser normally
			cancel()
		}
		cancelAllocator()
	}
	_, err := chromedp.Run(ctx, chromedp.Navigate("about:blank"))
	return ctx, err
})

// closeChromium ends the browser. TestMain calls it.
var closeChromium = func() {}

// browser opens a page in Chromium, without cookies and files of other tests. Without Chromium, the test skips.
func browser(t *testing.T) context.Context {
	t.Helper()
	shared, err := chromium()
	if err != nil {
		t.Fatal(err)
	}
	if shared == nil {
		needtest.Missing(t, "chromium", "no Chromium is in PATH")
	}
	ctx, cancel := chromedp.NewContext(shared, chromedp.WithNewBrowserContext())
	ctx, stop := context.WithTimeout(ctx, 10*time.Minute)
	t.Cleanup(func() {
		stop()
		cancel()
	})
	visit(t, ctx, "about:blank")
	in(t, ctx, chromedp.EmulateViewport(1400, 1000))
	err = chromedp.Listen(ctx, func(event any) {
		if t.Context().Err() != nil {
			return // the test has ended, and its cleanup stops the server before the page
		}
		switch e := event.(type) {
		case *cdpruntime.EventExceptionThrown:
			t.Errorf("the page failed: %+v", e.ExceptionDetails)
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.EntryLevelError {
				t.Errorf("the browser refused a part of the page: %s", e.Entry.Text)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// in runs an action in the browser.
func in[T any](t *testing.T, ctx context.Context, action chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// visit loads a page.
func visit(t *testing.T, ctx context.Context, address string) {
	t.Helper()
	in(t, ctx, chromedp.Navigate(address))
}

// evaluate returns the value of a JavaScript expression, or of its promise.
func evaluate[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	return in(t, ctx, chromedp.Evaluate[T](expression, chromedp.EvalAsValue, chromedp.EvalAwaitPromise))
}

// await waits until a JavaScript expression is true. If the browser loads another page during the evaluation, await
// evaluates the expression again. The time limit allows for a very busy machine: the browser, the server and the ranks
// of a test share its CPUs.
func await(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	action := chromedp.Evaluate[bool]("!!("+expression+")", chromedp.EvalAsValue, chromedp.EvalAwaitPromise)
	for limit := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		switch done, err := chromedp.Run(ctx, action); {
		case err != nil && !strings.Contains(err.Error(), "Inspected target navigated"):
			t.Fatalf("%s: %v", expression, err)
		case err == nil && done:
			return
		case time.Now().After(limit):
			t.Fatalf("never true: %s; the page shows\n%s", expression,
				evaluate[string](t, ctx, `document.body.innerText`))
		}
	}
}

// screenshot stores a picture of the page in the folder HETERO_SCREENSHOTS, for inspection by people.
func screenshot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	dir := os.Getenv("HETERO_SCREENSHOTS")
	if dir == "" {
		return
	}
	in(t, ctx, chromedp.Sleep(300*time.Millisecond))
	image := in(t, ctx, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), image, 0o644); err != nil {
		t.Fatal(err)
	}
}

// pictures stores pictures of the page in both themes. The theme is dark afterwards if the pictures are stored.
func pictures(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	if os.Getenv("HETERO_SCREENSHOTS") == "" {
		return
	}
	for _, theme := range []string{"light", "dark"} {
		setTheme(t, ctx, theme)
		screenshot(t, ctx, name+"-"+theme)
	}
}

// setTheme chooses the colours of the page.
func setTheme(t *testing.T, ctx context.Context, theme string) {
	t.Helper()
	evaluate[bool](t, ctx, fmt.Sprintf(`document.querySelector('#theme').value = '%s', document.querySelector('#theme').dispatchEvent(new Event('change'))`,
		theme))
}

// valuesOf returns the values that a chart saves as CSV, by the heads of the columns.
func valuesOf(t *testing.T, ctx context.Context, chart string) map[string][]float64 {
	t.Helper()
	text := evaluate[string](t, ctx, fmt.Sprintf(`URL.createObjectURL = b => { window.saved = b; return '#' }, document.querySelector('#%s .tools button').click(), window.saved.text()`,
		chart))
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("chart %s: got %d rows and error %v", chart, len(rows), err)
	}
	values := map[string][]float64{}
	for column, head := range rows[0] {
		for _, row := range rows[1:] {
			v, err := strconv.ParseFloat(row[column], 64)
			if err != nil {
				v = math.NaN()
			}
			values[head] = append(values[head], v)
		}
	}
	return values
}

// accessible fails for serious findings of axe, a program that checks pages for people who use a keyboard or a screen
// reader. scripts/dashboard_ui.sh installs axe. Without axe, only this subtest skips.
func accessible(t *testing.T, ctx context.Context) {
	t.Helper()
	t.Run("accessible", func(t *testing.T) {
		axe, err := os.ReadFile(filepath.Join("..", "..", "..", "profiler", "dashboard", "ui", "node_modules",
			"axe-core", "axe.min.js"))
		if err != nil {
			needtest.Missing(t, "axe", err)
		}
		evaluate[int](t, ctx, string(axe)+";0")
		found := evaluate[string](t, ctx, `axe.run().then(r => r.violations.filter(v => v.impact === 'serious' || v.impact === 'critical').map(v => v.id + ': ' + v.help + ' ' + v.nodes.map(n => n.html).join(' ')).join('\n'))`)
		if found != "" {
			t.Errorf("serious findings of axe: %s", found)
		}
	})
}

// The test shows a real run of two ranks with different speeds in a real browser. The ranks are slowed down, so that
// the browser has enough CPU time.
func TestDashboardShowsTheRecords(t *testing.T) {
	t.Parallel()
	const compared = 40 // steps whose figures are compared with the records
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
	for started := false; !started; { // until the folder of the run exists
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
	// The page shows the conditions of the run from the start of the run.
	await(t, ctx, `document.querySelector('.badge').textContent === 'running' && document.querySelector('.facts').textContent.includes('f32') && [...document.querySelectorAll('.problem')].some(p => p.textContent.includes("SIMULATED slowdown of the ranks' devices: x10/x30"))`)
	// The page shows new steps without a reload. A busy machine may complete few steps in this time, so the test waits
	// for all steps that it compares below.
	step := evaluate[string](t, ctx, `window.same = true, document.querySelector('main.run').dataset.step`)
	await(t, ctx, fmt.Sprintf(`window.same && Number(document.querySelector('main.run').dataset.step) > %s + 20 && Number(document.querySelector('main.run').dataset.step) > %d`,
		step, compared))
	await(t, ctx, `document.querySelectorAll('#changes tbody tr').length > 0 && document.querySelectorAll('#curves canvas').length > 0`)
	// The values of all ranks at one step, and the reason of a decision.
	// The pointer moves again while the test waits, because the step below the pointer may lack the record of a rank.
	await(t, ctx, `(() => { const over = document.querySelector('#shares .u-over'), box = over.getBoundingClientRect(), event = name => over.dispatchEvent(new MouseEvent(name, { clientX: box.left + box.width / 2, clientY: box.top + 9, bubbles: true })); event('mouseenter'); event('mousemove'); return true })() && !document.querySelector('#shares .u-legend').textContent.includes('–') && !document.querySelector('#throughput .u-legend').textContent.includes('–')`)
	screenshot(t, ctx, "run-light")
	accessible(t, ctx)
	// A link to a view shows this view.
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

	// Charts of the first steps contain the exact values of each record.
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
				// the page multiplies by 1000 in another order
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
	// The security policy of the page blocks no part of the page, and no element is wider than the window.
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

// checkCommunication compares the view of communication with the newest line of its file: ranks, buckets and links. The
// run has two ranks on this machine, so rank 0 has the records of the interfaces, and both ranks have records of
// all-reduces.
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
	steps := "Values of step" // the last window has one step
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

// checkFirstScreen compares the first screen of a run with its decisions up to a step.
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
			// the server uses single precision
			t.Errorf("equal shares at step %d: got %v samples/s, want %v", d.Step, got, want)
		}
		// This is the difference of two times in single precision. Its relative error grows as the time of the best
		// shares decreases.
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

// TestDashboardShowsTrafficOfLinks: a run of GPU ranks that consists only of records, because few machines have such
// links.
func TestDashboardShowsTrafficOfLinks(t *testing.T) {
	t.Parallel()
	ctx, p, dir := browser(t), buildProgram(t), t.TempDir()
	logs := filepath.Join(dir, "run", "logs")
	if err := errors.Join(os.MkdirAll(logs, 0o755), os.MkdirAll(filepath.Join(dir, "run", "configs"), 0o755),
		os.WriteFile(filepath.Join(dir, "run", "configs", "resolved.toml"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	sent := func(rank int, step int64, s telemetry.Sensor) float64 {
		return 1e6 * float64(100*int64(s)+10*step+int64(rank))
	}
	for rank := range 2 {
		w, _, err := runtime.Open(filepath.Join(logs, runtime.FileName(rank)), runtime.Options{Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		for step := int64(1); step <= 30; step++ {
			r := runtime.Record{Iteration: step, Rank: rank, BatchSize: 4, Values: telemetry.Values{telemetry.Loss: 1},
				Forward: time.Millisecond, Backward: time.Millisecond, Telemetry: telemetry.Unknown()}
			for s := telemetry.NVLinkSent; s <= telemetry.RDMAReceived; s++ {
				if rank == 0 || s < telemetry.NetworkSent { // only the first rank of a machine records the networks
					r.Telemetry[s] = sent(rank, step, s)
				}
			}
			w.Append(&r)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	known := func(v float64) *float64 { return &v }
	line := runtime.Communication{Step: 30, Steps: 30, Seconds: 0.01, Buckets: []runtime.BucketTimes{
		{Name: "bucket 0", Bytes: 26214400, Exposed: known(0), Hidden: known(0.004), Bandwidth: known(9.8e9)},
		{Name: "bucket 1", Bytes: 1 << 20}}}
	for rank := range 2 {
		links := []runtime.LinkTraffic{
			{Link: telemetry.Link{Kind: telemetry.LinkNVLink, Name: "nvlink", Limit: 450e9,
				Basis: telemetry.BasisCounter}, Sent: known(45e9), Received: known(40e9)},
			{Link: telemetry.Link{Kind: telemetry.LinkPCIe, Name: "pcie", Limit: 63e9, Basis: telemetry.BasisSample}}}
		if rank == 0 {
			links = append(links, runtime.LinkTraffic{Link: telemetry.Link{Kind: telemetry.LinkRDMA, Name: "mlx5_0/1",
				Limit: 50e9, Basis: telemetry.BasisCounter}, Sent: known(0), Received: known(40e9)})
		}
		line.Ranks = append(line.Ranks, runtime.RankCommunication{Compute: 0.008, Exposed: 0.002, Hidden: 0.004,
			Bytes: 27e6, Links: links})
	}
	text, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(logs, runtime.CommunicationFile), append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	_, address, _ := startDashboard(t, p, "--input-dir", dir)
	visit(t, ctx, address+"?run=run")
	await(t, ctx, `document.querySelectorAll('#links table').length === 3 && document.querySelectorAll('#traffic-rdma canvas').length > 0`)
	for chart, sensor := range map[string]telemetry.Sensor{"traffic-nvlink": telemetry.NVLinkSent,
		"traffic-pcie": telemetry.PCIeSent, "traffic-network": telemetry.NetworkSent,
		"traffic-rdma": telemetry.RDMASent} {
		got := valuesOf(t, ctx, chart)
		for rank := range 2 {
			for i, direction := range []string{"sent", "received"} {
				values, has := got[fmt.Sprintf("rank %d %s", rank, direction)]
				if want := rank == 0 || sensor < telemetry.NetworkSent; has != want ||
					has && (len(values) != 30 || values[29] != sent(rank, 30, sensor+telemetry.Sensor(i))/1e6) {
					t.Errorf("chart %s: rank %d %s: got %v (%v), want them: %v", chart, rank, direction, values, has,
						want)
				}
			}
		}
	}
	links := evaluate[[]string](t, ctx, `[...document.querySelectorAll('#links table')[2].querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.textContent).join('|').replaceAll('\u00a0', ' '))`)
	want := []string{"mlx5_0/1|0|rdma|0 B/s|40.0 GB/s|50.0 GB/s|80 %|byte counter",
		"nvlink|0|nvlink|45.0 GB/s|40.0 GB/s|450 GB/s|10 %|byte counter",
		"nvlink|1|nvlink|45.0 GB/s|40.0 GB/s|450 GB/s|10 %|byte counter",
		"pcie|0|pcie|–|–|63.0 GB/s|–|means over 20 ms", "pcie|1|pcie|–|–|63.0 GB/s|–|means over 20 ms"}
	if !slices.Equal(links, want) {
		t.Errorf("got links %q, want %q", links, want)
	}
	if got := evaluate[string](t, ctx,
		`document.querySelector('#links .finding').textContent.replaceAll('\u00a0', ' ')`); !strings.Contains(got,
		"mlx5_0/1 of rank 0, carries 80 % of its limit") {
		t.Errorf("got the finding %q", got)
	}
	screenshot(t, ctx, "links-light")
	accessible(t, ctx)
	setTheme(t, ctx, "dark")
	screenshot(t, ctx, "links-dark")
	accessible(t, ctx)
	in(t, ctx, chromedp.EmulateViewport(390, 844))
	visit(t, ctx, address+"?run=run")
	await(t, ctx, `document.querySelectorAll('#links table').length === 3`)
	if wide := evaluate[int](t, ctx, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("the page is %d pixels wide on a phone, want at most 390", wide)
	}
	pictures(t, ctx, "links-phone")
	visit(t, ctx, "about:blank") // before the server ends
}

// TestDashboardShowsForeignTextAsText: each text in the files of a run is markup that would run a script.
func TestDashboardShowsForeignTextAsText(t *testing.T) {
	t.Parallel()
	ctx, p, dir := browser(t), buildProgram(t), t.TempDir()
	markup := func(field string) string {
		return `<img src=x onerror=window.hacked='` + field + `'><script>window.hacked='` + field + `'</script>`
	}
	quoted := func(field string) string { return strconv.Quote(markup(field)) }
	record := func(rank int) string {
		r := runtime.Record{Iteration: 10, Rank: rank, BatchSize: 4, Values: telemetry.Values{telemetry.Loss: 1},
			Forward: time.Millisecond, Backward: time.Millisecond}
		text, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return "[\n" + string(text) + "\n]\n"
	}
	files := map[string]string{
		"configs/resolved.toml": fmt.Sprintf("[model]\nname = %s\n[data]\ndataset = %s\n[balance]\npolicy = %s\n",
			quoted("model"), quoted("dataset"), quoted("policy")),
		"configs/gpu_profiles.json": fmt.Sprintf(`{"ranks":[{"rank":0,"host":%s,"device":{"name":%s,"model":%s,"isa":%s},"measured":{"dtype":%s},"compute_score":1}]}`,
			quoted("host"), quoted("device"), quoted("device model"), quoted("isa"), quoted("dtype")),
		"logs/rank_0_metrics.json": record(0), "logs/rank_1_metrics.json": record(1),
		"logs/balance.jsonl": fmt.Sprintf(`{"step":10,"policy":%s,"shares":[4,4],"next":[5,3],"changed":true,"reason":%s,"share_of_oracle":0.9,"lost_seconds":{%s:1},"ranks":[{"health":%s,"cause":%s},{"health":"sick","cause":%s,"evidence":%s}]}`+
			"\n",
			quoted("balancer"), quoted("reason"), quoted("lost"), quoted("health"), quoted("cause"), quoted("alert"),
			quoted("evidence")),
		"logs/events.jsonl": fmt.Sprintf(`{"step":0,"start":{"model":%s,"dataset":%s,"policy":%s,"unit":%s,"units_per_sample":2,"metrics":[{"key":%s,"title":%s}]}}
{"step":10,"evaluation":{"loss":1,"metrics":{%s:1}}}
{"step":50,"bottleneck":{"bound":%s,"rank":0,"text":%s,"advice":%s}}
`, quoted("start model"), quoted("start dataset"), quoted("start policy"), quoted("unit"), quoted("key"), quoted("title"), quoted("key"), quoted("bound"), quoted("verdict"), quoted("advice")),
		"logs/communication.jsonl": fmt.Sprintf(`{"step":10,"steps":5,"ranks":[{"links":[{"kind":%s,"name":%s,"basis":%s}]},{}],"buckets":[{"name":%s,"bytes":1}]}`+
			"\n", quoted("kind"), quoted("link"), quoted("basis"), quoted("bucket")),
		"results/result.json": fmt.Sprintf(
			`{"steps":10,"exit":1,"error":%s,"model":%s,"dataset":%s,"notes":[%s],"ended":"2026-01-01T00:00:00Z"}`,
			quoted("error"), quoted("result model"), quoted("result dataset"), quoted("note")),
	}
	for name, text := range files {
		path := filepath.Join(dir, "run", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	_, address, _ := startDashboard(t, p, "--input-dir", dir)
	for path, fields := range map[string][]string{
		"":                  {"result model", "result dataset", "policy"},
		"?#compare=run,run": nil,
		"?run=run": {"model", "start dataset", "policy", "host", "device model", "isa", "dtype", "reason", "health",
			"cause", "alert", "evidence", "title", "unit", "bound", "verdict", "advice",
			"error", "note", "kind", "link", "basis", "bucket"},
	} {
		visit(t, ctx, address+path)
		await(t, ctx, `document.querySelectorAll('td, canvas').length > 0`)
		if path == "?run=run" {
			await(t, ctx, `document.querySelectorAll('#hardware td').length > 0`)
		}
		in(t, ctx, chromedp.Sleep(300*time.Millisecond)) // time in which a script could run
		if hacked := evaluate[string](t, ctx, `String(window.hacked)`); hacked != "undefined" {
			t.Errorf("%q: the text of field %s ran as a script", path, hacked)
		}
		if n := evaluate[int](t, ctx, `document.querySelectorAll('img, #app script').length`); n != 0 {
			t.Errorf("%q: the page has %d elements from texts", path, n)
		}
		shown := evaluate[string](t, ctx, `document.body.textContent`)
		for _, field := range fields {
			if !strings.Contains(shown, markup(field)) {
				t.Errorf("%q: the text of field %s is not shown", path, field)
			}
		}
	}
	visit(t, ctx, "about:blank") // before the server ends
}

// TestDashboardLogin: a wrong token leads back to the form, and the right token to the page.
func TestDashboardLogin(t *testing.T) {
	t.Parallel()
	ctx, p, dir := browser(t), buildProgram(t), t.TempDir()
	const token = "0123456789abcdef0123"
	file, list := filepath.Join(t.TempDir(), "token"), filepath.Join(dir, "run", "configs", "resolved.toml")
	if err := errors.Join(os.WriteFile(file, []byte(token), 0o600), os.MkdirAll(filepath.Dir(list), 0o755),
		os.WriteFile(list, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	_, address, _ := startDashboard(t, p, "--input-dir", dir, "--token-file", file)
	visit(t, ctx, address)
	// the colours of the browser
	await(t, ctx, `location.pathname === '/login.html' && document.documentElement.dataset.theme === 'auto'`)
	for _, sent := range []string{"wrong", token} {
		await(t, ctx, `location.pathname === '/login.html' && document.querySelector('#token')`)
		screenshot(t, ctx, "login-"+sent[:5])
		// The form is sent after the expression has its value, because a new page ends the evaluation of an expression.
		evaluate[bool](t, ctx, fmt.Sprintf(`window.sent = true, document.querySelector('#token').value = '%s', setTimeout(() => document.querySelector('form').requestSubmit(), 100), true`,
			sent))
		await(t, ctx, `!window.sent`)
	}
	await(t, ctx, `location.pathname === '/' && document.querySelector('tbody a')?.textContent === 'run'`)
	visit(t, ctx, "about:blank") // before the server ends
}

// recordsOf opens the records of two ranks of a run. add appends records up to step to; done closes the files. Losses
// and times of forward passes are multiplied by factor.
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

// TestPageLoadsOnceAndAfterARestartOfTheServer: a page loads an unchanged run only once. After a restart, the server
// counts versions from the beginning, and the page shows the records that were added in the meantime.
func TestPageLoadsOnceAndAfterARestartOfTheServer(t *testing.T) {
	t.Parallel()
	ctx, p, dir := browser(t), buildProgram(t), t.TempDir()
	add, done := recordsOf(t, filepath.Join(dir, "run"), 1)
	defer done()
	add(10)
	server, address, _ := startDashboard(t, p, "--input-dir", dir)
	visit(t, ctx, address+"?run=run")
	await(t, ctx, `document.querySelector('main.run')?.dataset.step === '10'`)
	const requests = `performance.getEntriesByType('resource').map(e => e.name).filter(n => n.includes('/api/runs/'))`
	await(t, ctx, requests+`.length > 1`)
	in(t, ctx, chromedp.Sleep(1500*time.Millisecond)) // the page waits 1 s between two loads
	if got := evaluate[[]string](t, ctx, requests); len(got) != 2 {
		t.Errorf("got the requests %q, want one for the run and one for its charts", got)
	}
	server.Process.Kill()
	await(t, ctx, `document.body.classList.contains('disconnected')`)
	add(20)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	startDashboard(t, p, "--input-dir", dir, "--port", at.Port())
	await(t, ctx,
		`document.querySelector('main.run').dataset.step === '20' && !document.body.classList.contains('disconnected')`)
	visit(t, ctx, "about:blank") // before the server ends
}

// TestNinePagesOfOneBrowser: a browser opens at most six connections to a server, and the server follows eight runs.
// Eight pages show and follow their runs. The ninth page shows its run after another page has been closed.
func TestNinePagesOfOneBrowser(t *testing.T) {
	t.Parallel()
	ctx, p, dir := browser(t), buildProgram(t), t.TempDir()
	var add []func(int64)
	for i := range 9 {
		more, done := recordsOf(t, filepath.Join(dir, fmt.Sprint("run", i)), 1+0.2*float64(i))
		defer done()
		more(10)
		add = append(add, more)
	}
	_, address, _ := startDashboard(t, p, "--input-dir", dir)
	var tabs []context.Context
	shows := func(i int, step int) {
		t.Helper()
		await(t, tabs[i], fmt.Sprintf(`document.querySelector('main.run')?.dataset.step === '%d'`, step))
	}
	for i := range add {
		tab, cancel := chromedp.NewContext(ctx)
		defer cancel()
		tabs = append(tabs, tab)
		visit(t, tab, fmt.Sprintf("%s?run=run%d", address, i))
		if i < 8 {
			shows(i, 10)
		}
	}
	await(t, tabs[8], `document.querySelector('.problem')?.textContent.includes('8 runs are being watched, and more are not allowed: close the page of another run; this page shows its run some seconds later')`)
	for i, more := range add[:8] {
		more(20)
		shows(i, 20)
	}
	visit(t, tabs[0], "about:blank")
	shows(8, 10)
	// Tab 3 leaves the page of run 3 and opens the page of run 4, which tab 4 also shows.
	visit(t, tabs[3], address+"?run=run4")
	shows(3, 20)
	add[4](30)
	for _, i := range []int{3, 4} {
		shows(i, 30)
	}
	for page, path := range map[string]string{"list": "", "compare": "?#compare=run1,run2,run4"} {
		for _, theme := range []string{"light", "dark"} {
			visit(t, ctx, address+path)
			await(t, ctx, `document.querySelectorAll('tbody tr, canvas').length >= 2`)
			setTheme(t, ctx, theme)
			screenshot(t, ctx, page+"-"+theme)
			accessible(t, ctx)
		}
	}
	in(t, ctx, chromedp.EmulateViewport(390, 844))
	visit(t, ctx, address+"?#compare=run1,run2,run4")
	await(t, ctx, `document.querySelectorAll('canvas').length >= 2`)
	if wide := evaluate[int](t, ctx, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("the comparison is %d pixels wide on a phone, want at most 390", wide)
	}
	pictures(t, ctx, "compare-phone")
	for _, tab := range tabs {
		visit(t, tab, "about:blank")
	}
	// A comparison may have any number of runs: no request has all their names in its address, whose length servers
	// limit. The page loads four of the runs at a time.
	const most = 90
	var names []string
	for i := range most {
		names = append(names, fmt.Sprint(strings.Repeat("sweep-", 9), i))
		more, done := recordsOf(t, filepath.Join(dir, names[i]), 1)
		more(2)
		done()
	}
	visit(t, ctx, address+"?#compare="+strings.Join(names, ","))
	await(t, ctx, fmt.Sprintf(`document.querySelectorAll('main.run li').length === %d && document.querySelectorAll('canvas').length > 0 && !document.querySelector('.problem:not([hidden])')`, most))
	sent := evaluate[[]int](t, ctx, `performance.getEntriesByType('resource').map(r => r.name.length)`)
	if len(sent) < most || slices.Max(sent) > 2000 {
		t.Errorf("the lengths of the addresses of %d requests are %v, want at least %d requests and at most 2,000 bytes",
			len(sent), sent, most)
	}
	visit(t, ctx, "about:blank") // before the server ends
}

// TestDashboardPaintsALongRun opens the page of a run with a million steps. It logs the time until the page shows the
// run, and the memory of the server.
func TestDashboardPaintsALongRun(t *testing.T) {
	needtest.Hostile.Need(t, "writes 1 GB")
	const steps = 1_000_000
	ctx, p, dir := browser(t), buildProgram(t), t.TempDir()
	add, done := recordsOf(t, filepath.Join(dir, "run"), 1)
	add(steps)
	done()
	for range 3 {
		server, address, _ := startDashboard(t, p, "--input-dir", dir)
		memory := func() (bytes int) { // other than the pages of files
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", server.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(text), "RssAnon:")
			if bytes, err = strconv.Atoi(strings.Fields(rest)[0]); err != nil {
				t.Fatal(err)
			}
			return bytes << 10
		}
		visit(t, ctx, address+"?run=run")
		await(t, ctx, `performance.getEntriesByName('charts').length > 0`)
		painted := evaluate[float64](t, ctx, `performance.getEntriesByName('charts')[0].startTime`)
		first := evaluate[string](t, ctx, `document.querySelector('main.run').dataset.step`)
		most := memory()
		for evaluate[string](t, ctx, `document.querySelector('main.run').dataset.step`) != fmt.Sprint(steps) {
			most = max(most, memory())
			time.Sleep(50 * time.Millisecond)
		}
		most = max(most, memory())
		all := evaluate[float64](t, ctx, `performance.now()`)
		t.Logf("%d steps: the page shows the run after %.0f ms (up to step %s) and all steps after %.0f ms; memory of the server: at most %d MB",
			steps, painted, first, all, most>>20)
		if most > 50<<20 {
			t.Errorf("memory of the server: got %d bytes, want at most 50 MB", most)
		}
		visit(t, ctx, "about:blank") // before the server ends
		server.Process.Kill()
	}
}

// TestDashboardTellsOfMissingRuns: a run does not exist, appears, is deleted, and appears again without the records of
// a rank.
func TestDashboardTellsOfMissingRuns(t *testing.T) {
	t.Parallel()
	root, p, dir := browser(t), buildProgram(t), t.TempDir()
	ctx, cancel := chromedp.NewContext(root) // without the check for refused requests
	defer cancel()
	_, address, _ := startDashboard(t, p, "--input-dir", dir)
	problem := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('.problem')].some(p => p.textContent.includes(%q))`, text)
	}
	const hidden = `[...document.querySelectorAll('.panel, .facts, .controls')].every(e => e.offsetParent === null)`
	for _, name := range []string{"..", "run/", "%00", "b%231", "run%3Fx", "../runs/run", strings.Repeat("a", 3000)} {
		visit(t, ctx, address+"?run="+name)
		await(t, ctx, problem("is not a name of a run")+` && !document.body.classList.contains('disconnected') && `+
			hidden)
		if got := evaluate[[]string](t, ctx,
			`performance.getEntriesByType('resource').map(e => e.name).filter(n => /\/api\/(runs\/|stream)/.test(n))`); len(got) > 0 {
			t.Errorf("name %q: got the requests %q, want none", name, got)
		}
	}
	visit(t, ctx, address+"?run=run")
	await(t, ctx, problem("There is no run “run”.")+` && document.querySelector('.problem a').href === new URL('.', location).href && !document.body.classList.contains('disconnected') && `+
		hidden)
	pictures(t, ctx, "missing")
	accessible(t, ctx)

	write := func() {
		add, done := recordsOf(t, filepath.Join(dir, "run"), 1)
		add(10)
		done()
	}
	write()
	await(t, ctx, `document.querySelector('main.run')?.dataset.step === '10' && document.querySelector('#loss canvas')?.offsetParent && !`+
		problem("There is no run"))
	if err := os.RemoveAll(filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	await(t, ctx, problem("The folder of the run no longer exists.")+
		` && document.querySelector('#loss canvas')?.offsetParent`)

	write()
	await(t, ctx, `document.querySelector('main.run')?.dataset.step === '10' && !`+problem("no longer exists"))
	add, done := recordsOf(t, filepath.Join(dir, "other"), 2)
	add(20)
	done()
	moved := filepath.Join(t.TempDir(), "old")
	if err := os.Rename(filepath.Join(dir, "run"), moved); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "run"), os.DirFS(filepath.Join(dir, "other"))); err != nil {
		t.Fatal(err)
	}
	await(t, ctx, `document.querySelector('main.run').dataset.step === '20' && !`+problem("no longer exists"))
	if err := os.RemoveAll(filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	await(t, ctx, problem("The folder of the run no longer exists."))

	write()
	if err := os.Remove(filepath.Join(dir, "run", "logs", runtime.FileName(1))); err != nil {
		t.Fatal(err)
	}
	start :=
		`{"step":0,"start":{"ranks":2,"precision":"bf16","notes":["CPU quotas of the ranks (real): 0.8/0.4 CPUs"]}}` +
			"\n"
	if err := os.WriteFile(filepath.Join(dir, "run", "logs", runtime.EventsFile), []byte(start), 0o644); err != nil {
		t.Fatal(err)
	}
	await(t, ctx, problem("no records of rank 1 of 2")+` && `+problem("CPU quotas of the ranks (real): 0.8/0.4 CPUs")+
		` && !`+problem("no longer exists")+` && document.querySelector('.facts').textContent.includes('bf16') && document.querySelector('.facts dd').textContent.startsWith('–')`)
	if got := evaluate[string](t, ctx,
		`document.querySelector('#now tbody tr:nth-child(2) td:last-child').textContent`); got != "no records" {
		t.Errorf("rank 1: got the verdict %q, want that it has no records", got)
	}
	pictures(t, ctx, "incomplete")
	visit(t, ctx, address)
	await(t, ctx, `document.querySelector('tbody .badge.unknown')?.textContent === 'incomplete' && document.querySelector('.notes').textContent.includes('run: no records of rank 1 of 2')`)
	screenshot(t, ctx, "incomplete-list")
	// a server that does not answer yet
	slow := cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: `window.fetch = () => new Promise(() => {})`}
	if _, err := chromedp.Call(ctx, cdppage.AddScriptToEvaluateOnNewDocument, slow); err != nil {
		t.Fatal(err)
	}
	visit(t, ctx, address+"?run=run")
	await(t, ctx,
		`[...document.querySelectorAll('.explain')].some(p => p.offsetParent && p.textContent === 'Loading the run…')`)
	visit(t, ctx, "about:blank") // before the server ends
}
