package program

import (
	"context"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	cdplog "github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// chromium starts the browser, which all tests share because its start takes seconds of CPU time. It returns nil if no
// browser is installed.
var chromium = sync.OnceValues(func() (context.Context, error) {
	var path string
	// The headless shell is Chromium without the windows of a desktop, which take most of Chromium's CPU time. Debian's
	// script /usr/bin/chromium-headless-shell is not used: if this process were killed, the browser of the script would
	// keep running.
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
		options = append(options, chromedp.NoSandbox) // Chromium refuses to use its sandbox as root
	}
	allocated, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocated)
	closeChromium = func() {
		if chromedp.Cancel(ctx) != nil { // tries to close the browser normally
			cancel()
		}
		cancelAllocator()
	}
	_, err := chromedp.Run(ctx, chromedp.Navigate("about:blank"))
	return ctx, err
})

// closeChromium ends the browser. TestMain calls it.
var closeChromium = func() {}

// browser opens a page in Chromium that shares no cookies or files with other tests. It skips the test if Chromium is
// not installed.
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
			return // the test has ended, and its cleanup stops the server before it closes the page
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

// in runs an action in the browser, and returns its result.
func in[T any](t *testing.T, ctx context.Context, action chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// visit opens an address in the browser.
func visit(t *testing.T, ctx context.Context, address string) {
	t.Helper()
	in(t, ctx, chromedp.Navigate(address))
}

// evaluate returns the value of a JavaScript expression. If the value is a promise, evaluate waits for its result.
func evaluate[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	return in(t, ctx, chromedp.Evaluate[T](expression, chromedp.EvalAsValue, chromedp.EvalAwaitPromise))
}

// await waits until a JavaScript expression is true. If the browser loads another page during the evaluation, await
// evaluates the expression again. The time limit allows for a very busy machine: browser, server and ranks of a test
// share its CPUs.
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

// screenshot stores a picture of the page in the folder HETERO_SCREENSHOTS, so that people can inspect it.
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

// pictures stores pictures of the page in both themes. If it stores them, the theme is dark afterwards.
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

// setTheme sets the colour theme of the page.
func setTheme(t *testing.T, ctx context.Context, theme string) {
	t.Helper()
	evaluate[bool](t, ctx, fmt.Sprintf(`document.querySelector('#theme').value = '%s', document.querySelector('#theme').dispatchEvent(new Event('change'))`,
		theme))
}

// valuesOf returns the values that a chart saves as CSV, by column name.
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

// accessible fails the test if axe reports serious findings. axe checks whether people can use a page with a keyboard
// or a screen reader. scripts/dashboard_ui.sh installs axe. Without axe, only this subtest skips.
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
