package program

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/hetero-train/hetero-train/engine/golden"
)

// pictured lists the pictures of docs/dashboard.md, by file name.
var pictured = []struct {
	file, address string
	width, height int64
	theme, ready  string
}{
	{"dashboard-run.png", "?run=balanced", 1200, 960, "light", `document.querySelectorAll('#speed canvas').length > 0`},
	{"dashboard-none.png", "?run=text", 1200, 960, "dark", `document.querySelectorAll('#speed canvas').length > 0`},
	{"dashboard-phone.png", "?run=lost", 400, 1100, "light", `document.querySelectorAll('#speed canvas').length > 0`},
	{"dashboard-compare.png", "#compare=equal,balanced", 1200, 1500, "light",
		`document.querySelectorAll('#results td').length > 0 && document.querySelectorAll('#throughput canvas').length > 0`},
}

// mostPictures limits the size of all pictures together, in bytes.
const mostPictures = 600 << 10

// With -update, the test draws the pictures of docs/dashboard.md, which show the page. Without -update, it checks that
// docs/dashboard.md names exactly these pictures, that the page still has their contents, and that their sizes are
// correct.
func TestDashboardPictures(t *testing.T) {
	t.Parallel()
	images := filepath.Join("..", "..", "..", "docs", "images")
	text, err := os.ReadFile(filepath.Join(images, "..", "dashboard.md"))
	if err != nil {
		t.Fatal(err)
	}
	var named, made []string
	for _, match := range regexp.MustCompile(`\(images/([^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
		named = append(named, match[1])
	}
	for _, p := range pictured {
		made = append(made, p.file)
	}
	slices.Sort(named)
	slices.Sort(made)
	if !slices.Equal(named, made) {
		t.Errorf("docs/dashboard.md has the pictures %q, and the test draws %q", named, made)
	}
	ctx, p, dir := browser(t), buildProgram(t), t.TempDir()
	for _, name := range []string{"equal", "balanced", "text", "lost"} {
		madeRuns[name].write(t, filepath.Join(dir, name))
	}
	_, address, _ := startDashboard(t, p, "--input-dir", dir)
	size := 0
	for _, p := range pictured {
		in(t, ctx, chromedp.EmulateViewport(p.width, p.height))
		visit(t, ctx, "about:blank") // addresses that differ only in their fragment do not load a new page
		visit(t, ctx, address+p.address)
		await(t, ctx, p.ready)
		setTheme(t, ctx, p.theme)
		await(t, ctx, p.ready)
		file := filepath.Join(images, p.file)
		if golden.Updating() {
			if err := os.WriteFile(file, pictureOf(t, ctx), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		picture, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		config, err := png.DecodeConfig(bytes.NewReader(picture))
		if err != nil || int64(config.Width) != p.width || int64(config.Height) != p.height {
			t.Errorf("%s: got %d x %d pixels and error %v, want %d x %d: draw the pictures again with -update", p.file,
				config.Width, config.Height, err, p.width, p.height)
		}
		size += len(picture)
	}
	if size > mostPictures {
		t.Errorf("the pictures have %d bytes, want at most %d", size, mostPictures)
	}
	visit(t, ctx, "about:blank") // leaves the page before the server ends
}

// pictureOf returns a PNG of the browser's window, with the 256 most frequent colours.
func pictureOf(t *testing.T, ctx context.Context) []byte {
	t.Helper()
	in(t, ctx, chromedp.Sleep(500e6))
	full, err := png.Decode(bytes.NewReader(in(t, ctx, chromedp.CaptureScreenshot())))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[color.RGBA]int{}
	bounds := full.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(full.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	var colors []color.RGBA
	for c := range counts {
		colors = append(colors, c)
	}
	slices.SortFunc(colors, func(a, b color.RGBA) int { return counts[b] - counts[a] })
	var palette color.Palette
	for _, c := range colors[:min(256, len(colors))] {
		palette = append(palette, c)
	}
	nearest := map[color.RGBA]uint8{}
	small := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := at(x, y)
			index, known := nearest[c]
			if !known {
				index = uint8(palette.Index(c))
				nearest[c] = index
			}
			small.SetColorIndex(x, y, index)
		}
	}
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, small); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The test shows runs of 1 to 64 ranks in each state, on phones and on wide screens. No element may be wider than the
// window. The sentence must be on the first screen, even for a run with a long error.
func TestDashboardAtEachWidth(t *testing.T) {
	t.Parallel()
	ctx, p, dir := browser(t), buildProgram(t), t.TempDir()
	for name, m := range madeRuns {
		m.write(t, filepath.Join(dir, name))
	}
	_, address, _ := startDashboard(t, p, "--input-dir", dir)
	for _, c := range []struct{ run, state, sentence string }{
		{"balanced", "finished", "faster than with equal shares"}, {"text", "running", "Rank 2 is waited for"},
		{"lost", "failed", "The run failed after step 180: rank 2 is lost. Before, the cluster did "},
		{"killed", "crashed", "The run crashed after step 120. Before, the cluster did "},
		{"one", "finished", "The rank did"}, {"many", "finished", "faster than with equal shares"},
		{"empty", "crashed", ""},
	} {
		visit(t, ctx, address+"?run="+c.run)
		await(t, ctx, fmt.Sprintf(
			`document.querySelector('.badge')?.textContent === '%s' && (%v || document.querySelectorAll('#loss canvas').length > 0)`, c.state, c.sentence == ""))
		if got := evaluate[string](t, ctx,
			`document.querySelector('.lead').textContent.replaceAll('\u00a0', ' ')`); !strings.Contains(got,
			c.sentence) {
			t.Errorf("%s: got the sentence %q, want %q", c.run, got, c.sentence)
		}
		for _, width := range []int64{400, 1400, 2560} {
			in(t, ctx, chromedp.EmulateViewport(width, 900))
			await(t, ctx, fmt.Sprintf(`innerWidth === %d`, width))
			if wide := evaluate[int64](t, ctx,
				`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(document.documentElement.scrollWidth))))`); wide > width {
				t.Errorf("%s: the page is %d pixels wide in a window of %d", c.run, wide, width)
			}
			if c.sentence != "" {
				if bottom := evaluate[float64](t, ctx,
					`scrollTo(0, 0), document.querySelector('.lead').getBoundingClientRect().bottom`); bottom > 420 {
					t.Errorf("%s: at a width of %d, the sentence ends %v pixels below the top of the page", c.run,
						width, bottom)
				}
			}
			screenshot(t, ctx, fmt.Sprintf("made-%s-%d", c.run, width))
		}
		setTheme(t, ctx, "dark")
		screenshot(t, ctx, fmt.Sprintf("made-%s-dark", c.run))
		if c.run == "many" || c.run == "lost" { // each check for accessibility takes seconds
			accessible(t, ctx)
		}
		setTheme(t, ctx, "light")
	}
	visit(t, ctx, "about:blank") // leaves the page before the server ends
}
