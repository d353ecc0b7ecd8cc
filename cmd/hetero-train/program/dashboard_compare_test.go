package program

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// The page of a comparison must contain the tables of `analyze --compare`. It must also contain all charts of the page
// of a run, with one line for each run. The address must contain the whole state of the page.
func TestDashboardComparesAsAnalyzeDoes(t *testing.T) {
	t.Parallel()
	ctx, p, dir := browser(t), buildProgram(t), t.TempDir()
	for _, name := range []string{"equal", "balanced", "text"} {
		madeRuns[name].write(t, filepath.Join(dir, name))
	}
	o := execute([]string{"analyze", "--compare", filepath.Join(dir, "equal"), filepath.Join(dir, "balanced"),
		"--output-dir", t.TempDir()})
	if o.code != exit.Done {
		t.Fatalf("analyze --compare: got exit code %d, %s", o.code, o.stderr)
	}
	var want []string
	gap := regexp.MustCompile(`  +`)
	for line := range strings.Lines(o.stdout) {
		if cells := gap.Split(strings.TrimSpace(line), -1); len(cells) == 3 && cells[1] != "equal" {
			want = append(want, strings.Join(cells, "|"))
		}
	}
	_, address, _ := startDashboard(t, p, "--input-dir", dir)
	const rows = `[...document.querySelectorAll('%s tbody tr')].map(r => [...r.cells].map(c => c.textContent).join('|'))`
	visit(t, ctx, address+"#compare=equal,balanced")
	await(t, ctx, `document.querySelectorAll('#results td').length > 0 && document.querySelectorAll('#own canvas').length > 0`)
	got := evaluate[[]string](t, ctx, fmt.Sprintf(rows, "#results"))
	if got = append(got, evaluate[[]string](t, ctx, fmt.Sprintf(rows, "#differences"))...); !slices.Equal(got, want) {
		t.Errorf("the page has\n%s\nand analyze --compare\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, figure := range []string{"throughput", "time to training loss", "cost: energy",
		"speed relative to equal shares"} {
		if !slices.ContainsFunc(got, func(row string) bool { return strings.HasPrefix(row, figure) }) {
			t.Errorf("the table lacks the %s:\n%s", figure, strings.Join(got, "\n"))
		}
	}
	// Legends must contain the settings that differ, and each chart must have lines of both runs.
	legends := evaluate[[]string](t, ctx,
		`[...document.querySelectorAll('.grid .panel:not([hidden])')].map(p => p.id + ': ' + p.querySelector('.u-legend').textContent)`)
	if len(legends) < 12 {
		t.Errorf("got %d charts, want those of a run: %q", len(legends), legends)
	}
	for _, legend := range legends {
		if !strings.Contains(legend, "none") || !strings.Contains(legend, "hybrid") ||
			strings.Contains(legend, "balanced") {
			t.Errorf("got the legend %q, want the policies alone", legend)
		}
	}
	accessible(t, ctx)

	// The address contains the reader's choices, so another browser shows the same page.
	choose := func(id, value string) {
		evaluate[bool](t, ctx,
			fmt.Sprintf(`document.querySelector('#%s').value = '%s', document.querySelector('#%[1]s').dispatchEvent(new Event('change'))`, id, value))
	}
	for _, page := range []struct{ address, state, axis string }{{"#compare=equal,balanced",
		"#compare=equal,balanced&", "training time"},
		{"?run=balanced", "?run=balanced&", "step"}} {
		visit(t, ctx, "about:blank")
		visit(t, ctx, address+page.address)
		await(t, ctx, `document.querySelectorAll('#loss canvas').length > 0`)
		for _, field := range [][2]string{{"smooth", "50"}, {"axis", "time"}, {"scale", "log"}, {"from", "20"},
			{"to", "300"}, {"ranks", "0,2"}} {
			choose(field[0], field[1])
		}
		link := evaluate[string](t, ctx, `location.href`)
		if want := address + page.state + "from=20&to=300&ranks=0%2C2&smooth=50&axis=time&scale=log"; link != want {
			t.Errorf("got the address %s, want %s", link, want)
		}
		visit(t, ctx, "about:blank")
		visit(t, ctx, link)
		await(t, ctx, `document.querySelectorAll('#own canvas').length > 0`)
		if got, want := evaluate[string](t, ctx,
			`['smooth', 'axis', 'scale', 'from', 'to', 'ranks'].map(id => document.getElementById(id).value).join(' ')`), "50 time log 20 300 0,2"; got != want {
			t.Errorf("%s: got the fields %q, want %q", link, got, want)
		}
		legend := evaluate[string](t, ctx, `document.querySelector('#own .u-legend').textContent`)
		if !strings.HasPrefix(legend, page.axis) || strings.Contains(legend, "rank 1") ||
			!strings.Contains(legend, "rank 2") {
			t.Errorf("%s: got the legend %q, want one of %s and of ranks 0 and 2", link, legend, page.axis)
		}
	}

	// A comparison of a run on images with a run on text must have charts. The page must state why the tables are
	// missing.
	quiet, cancel := chromedp.NewContext(ctx) // unlike browser, this does not fail the test for refused requests
	defer cancel()
	visit(t, quiet, address+"#compare=equal,text,none")
	says := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('.problem')].some(p => p.textContent.includes('%s'))`, text)
	}
	await(t, quiet, says("have different meanings")+` && `+says("none: there is no such run")+
		` && document.querySelectorAll('#loss canvas').length > 0`)
	visit(t, quiet, "about:blank")
	visit(t, ctx, "about:blank") // leaves the page before the server ends
}
