package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// The run of GPU ranks consists only of records that the test writes, because few machines have such links.
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
				if rank == 0 || s < telemetry.NetworkSent { // only one rank of a machine records its networks
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
	visit(t, ctx, "about:blank") // leaves the page before the server ends
}

// Each text in the files of the run contains markup that would run a script. The page must show it as text.
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
		in(t, ctx, chromedp.Sleep(300*time.Millisecond)) // gives a script time to run
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
	visit(t, ctx, "about:blank") // leaves the page before the server ends
}

// A wrong token must lead back to the form, and the right token to the page.
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
	// The form must use the colours that the browser prefers.
	await(t, ctx, `location.pathname === '/login.html' && document.documentElement.dataset.theme === 'auto'`)
	for _, sent := range []string{"wrong", token} {
		await(t, ctx, `location.pathname === '/login.html' && document.querySelector('#token')`)
		screenshot(t, ctx, "login-"+sent[:5])
		// The script submits the form only after the expression has its value, because a new page aborts the
		// evaluation.
		evaluate[bool](t, ctx, fmt.Sprintf(`window.sent = true, document.querySelector('#token').value = '%s', setTimeout(() => document.querySelector('form').requestSubmit(), 100), true`,
			sent))
		await(t, ctx, `!window.sent`)
	}
	await(t, ctx, `location.pathname === '/' && document.querySelector('tbody a')?.textContent === 'run'`)
	visit(t, ctx, "about:blank") // leaves the page before the server ends
}

// A page must load an unchanged run only once. After a restart, the server counts versions from the beginning. The page
// must then show the records that were added in the meantime.
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
	in(t, ctx, chromedp.Sleep(1500*time.Millisecond)) // the page waits 1 s between two requests
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
	visit(t, ctx, "about:blank") // leaves the page before the server ends
}

// A browser opens at most six connections to a server, and the server follows at most eight runs. Eight pages must show
// and follow their runs. The ninth page must show its run after another page has been closed.
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
	// Each check for accessibility takes a second of CPU time, so these checks are distributed over tests.
	// TestDashboardShowsTheRecords checks the list in dark colours, and TestDashboardComparesAsAnalyzeDoes a comparison
	// in light ones.
	for _, c := range []struct{ page, path, theme string }{{"list", "", "light"},
		{"compare", "?#compare=run1,run2,run4", "dark"}} {
		visit(t, ctx, address+c.path)
		await(t, ctx, `document.querySelectorAll('tbody tr, canvas').length >= 2`)
		setTheme(t, ctx, c.theme)
		accessible(t, ctx)
		pictures(t, ctx, c.page)
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
	// A comparison may have any number of runs. Servers limit the length of addresses, so no request may name all runs
	// in its address. The page loads four runs at a time.
	const most = 45
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
	visit(t, ctx, "about:blank") // leaves the page before the server ends
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
		memory := func() (bytes int) { // memory without the cached pages of files
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
		visit(t, ctx, "about:blank") // leaves the page before the server ends
		server.Process.Kill()
	}
}

// The run does not exist at first. Then it appears, is deleted, and appears again without the records of a rank.
func TestDashboardTellsOfMissingRuns(t *testing.T) {
	t.Parallel()
	root, p, dir := browser(t), buildProgram(t), t.TempDir()
	ctx, cancel := chromedp.NewContext(root) // unlike browser, this does not fail the test for refused requests
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
	// The script simulates a server that does not answer yet.
	slow := cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: `window.fetch = () => new Promise(() => {})`}
	if _, err := chromedp.Call(ctx, cdppage.AddScriptToEvaluateOnNewDocument, slow); err != nil {
		t.Fatal(err)
	}
	visit(t, ctx, address+"?run=run")
	await(t, ctx,
		`[...document.querySelectorAll('.explain')].some(p => p.offsetParent && p.textContent === 'Loading the run…')`)
	visit(t, ctx, "about:blank") // leaves the page before the server ends
}
