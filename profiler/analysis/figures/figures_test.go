package figures

import (
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/drawing"
)

var none = analysis.Estimate{Value: math.NaN(), Low: math.NaN(), High: math.NaN()}

// comparison returns a comparison of two policies with two ranks. Only the fraction of the oracle is unknown.
func comparison(id string) *analysis.Comparison {
	c := &analysis.Comparison{ID: id, Model: "simple_cnn", Scenario: id, Ranks: 2, BatchSize: 32,
		Devices: []string{"RTX 3060", "GTX 1650"}}
	for i, name := range []string{"none", "hybrid"} {
		v := float64(i + 1)
		e := analysis.Estimate{Value: v, Low: 0.9 * v, High: 1.2 * v}
		p := &analysis.PolicyResult{Policy: name, Throughput: e, Speedup: e, Utilization: e, Efficiency: e,
			Imbalance: e, Oracle: none}
		run := &analysis.Run{Name: name, Seed: "1", Ranks: 2}
		for step := range int64(50) {
			run.Steps = append(run.Steps, analysis.Step{Iteration: step + 1, Ranks: []analysis.RankStep{
				{Samples: 16 + int64(i)*min(step, 8)}, {Samples: 16 - int64(i)*min(step, 8)}}})
			p.Curve = append(p.Curve, analysis.CurvePoint{Step: step + 1, Seconds: float64(step) / v,
				Loss: math.Exp(-float64(step) / 10)})
		}
		p.Runs = []*analysis.Run{run}
		c.Policies = append(c.Policies, p)
	}
	return c
}

func TestFiguresHoldTheirBarsAndLines(t *testing.T) {
	dir := t.TempDir()
	drawn, err := Comparison(dir, comparison("four"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range drawn {
		name := strings.TrimSuffix(strings.TrimPrefix(f.Path, "four/"), ".png")
		names = append(names, name)
		wanted := []color.RGBA{colorOf("none"), colorOf("hybrid")}
		if name == "shares" {
			wanted = drawing.Palette[:2]
		}
		counts := colors(t, filepath.Join(dir, name+".png"))
		for _, c := range append(wanted, color.RGBA{0, 0, 0, 0xFF}) { // axes and text are black
			if counts[c] < 50 {
				t.Errorf("%s: %d pixels of %v, want at least 50", name, counts[c], c)
			}
		}
		for _, text := range []string{">none", ">hybrid"} {
			if svg := parsed(t, filepath.Join(dir, name+".svg")); !strings.Contains(svg, text) {
				t.Errorf("%s.svg lacks the text %q", name, text)
			}
		}
		if f.Title == "" || f.Caption == "" {
			t.Errorf("%s has no title or caption", name)
		}
	}
	// The fraction of the oracle is unknown, so no figure shows it.
	want := []string{"throughput", "speedup", "utilization", "scaling_efficiency", "load_imbalance", "loss_by_step",
		"loss_by_time", "shares"}
	if !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

// colors returns the number of pixels of each colour.
func colors(t *testing.T, path string) map[color.RGBA]int {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	picture, err := png.Decode(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if size := picture.Bounds().Size(); size.X < 1000 || size.Y < 600 {
		t.Errorf("%s: got %v pixels, too few for print", path, size)
	}
	counts := map[color.RGBA]int{}
	box := picture.Bounds()
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			counts[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)]++
		}
	}
	return counts
}

// parsed returns the text of an SVG file. It fails the test if the file is not well-formed.
func parsed(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for in := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err := in.Token(); errors.Is(err, io.EOF) {
			return string(text)
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

func TestTheSameComparisonGivesTheSameFiles(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		if _, err := Comparison(dir, comparison("four")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"throughput.png", "shares.svg"} {
		if a, b := contents(t, filepath.Join(one, name)), contents(t, filepath.Join(two, name)); a != b {
			t.Errorf("%s differs", name)
		}
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestOverviewIsDrawnForSeveralComparisons(t *testing.T) {
	dir := t.TempDir()
	if drawn, err := Overview(dir, []*analysis.Comparison{comparison("one")}); err != nil || drawn != nil {
		t.Errorf("one comparison: got %v, %v, want no figure", drawn, err)
	}
	drawn, err := Overview(dir, []*analysis.Comparison{comparison("one"), comparison("two")})
	if err != nil || len(drawn) != 1 {
		t.Fatalf("got %v, %v", drawn, err)
	}
	if n := colors(t, filepath.Join(dir, drawn[0].Path))[colorOf("hybrid")]; n < 1000 {
		t.Errorf("got %d pixels of hybrid's bars", n)
	}
}

func TestFolderThatIsNotThereIsAnError(t *testing.T) {
	if _, err := Comparison(filepath.Join(t.TempDir(), "none"), comparison("four")); err == nil ||
		!strings.Contains(err.Error(), "throughput") {
		t.Errorf("got %v", err)
	}
}

func TestRunsSideBySideHaveOneFigureForEachCurve(t *testing.T) {
	points := func(values ...analysis.Number) (all []analysis.TrialPoint) {
		for i, v := range values {
			all = append(all, analysis.TrialPoint{Step: int64(i + 1), Seconds: analysis.Number(i), Value: v})
		}
		return all
	}
	nan := analysis.Number(math.NaN())
	none, hybrid := "none", "hybrid"
	s := &analysis.SideBySide{Settings: []analysis.Difference{
		{Key: "balance.policy", Values: []*string{&none, &hybrid}}}, Trials: []*analysis.Trial{
		{Name: "a", Curves: []analysis.Curve{{Key: "loss", Title: "training loss", Points: points(3, 2, 1)},
			{Key: "eval_top1", Title: "accuracy", Unit: "%", Points: points(50)}},
			Changes: []analysis.Change{{Step: 10, Predicted: 1.5, Achieved: 1.4, Low: 1.3, High: 1.5},
				{Step: 20, Predicted: nan, Achieved: 0.9}, {Step: 30, Predicted: 1.1, Achieved: 1, Low: 0,
					High: analysis.Number(math.Inf(1))}}},
		{Name: "b", Curves: []analysis.Curve{{Key: "loss", Title: "training loss", Points: points(2, 2, 2)},
			{Key: "share_of_oracle", Title: "share", Points: points(nan, nan)}}},
	}}
	dir := t.TempDir()
	drawn, err := SideBySide(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range drawn {
		names = append(names, f.Path)
		for _, name := range []string{f.Path, strings.TrimSuffix(f.Path, ".png") + ".svg"} {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 1000 {
				t.Errorf("%s: got %v, %v", name, info, err)
			}
		}
	}
	if got, want := strings.Join(names,
		" "), "loss_by_step.png loss_by_time.png eval_top1_by_step.png outcomes.png"; got != want {
		t.Errorf("got %s, want %s: no figure without a known value", got, want)
	}
	for name, labels := range map[string][]string{"loss_by_step.svg": {">policy=none<", ">policy=hybrid<"},
		"outcomes.svg": {">policy=none<"}} {
		svg, err := os.ReadFile(filepath.Join(dir, name))
		for _, label := range labels {
			if err != nil || !strings.Contains(string(svg), label) {
				t.Errorf("%s: the legend lacks %s, %v", name, label, err)
			}
		}
	}
}

// Long labels would cover the curves, so the legend must show the names of the runs instead.
func TestLegendsWithLongLabelsHaveNames(t *testing.T) {
	for value, want := range map[string][]string{
		"warm": {"weather=warm", "b"}, "/a/long/path/to/the/weather.txt": {"a", "b"}} {
		s := &analysis.SideBySide{Trials: []*analysis.Trial{{Name: "a"}, {Name: "b"}},
			Settings: []analysis.Difference{{Key: "lab.weather", Values: []*string{&value, nil}}}}
		if got := legendLabels(s); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", value, got, want)
		}
	}
}
