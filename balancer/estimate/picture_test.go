package estimate

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

var update = flag.Bool("update", false, "rewrite docs/images/fit.svg")

// fitPicture simulates windows of a rank whose kernels process tiles of 16 samples, with one share in each window. It
// draws the true curve, the measured shares, the expected times with two standard deviations, and the share in use.
func fitPicture(played ...int) string {
	tiled := func(fixed, perSample float64) func(float64) float64 {
		return func(samples float64) float64 {
			t := fixed + perSample*samples
			if math.Mod(samples, 16) != 0 {
				t *= 1.35
			}
			return t
		}
	}
	truly, shares := tiled(0.01, 0.001), []int{0}
	m := New(Options{Limits: []int{192}, Active: []bool{true}, Interval: 10})
	random := rand.New(rand.NewPCG(5, 99))
	for i, n := range played {
		steps := 10
		if i < 2 {
			steps = 1 + i
		}
		w := &Window{Shares: []int{n}, Seconds: make([][]float64, 1), Opening: i < 2, Blind: true}
		for range steps {
			w.Seconds[0] = append(w.Seconds[0], truly(float64(n))*math.Exp(0.05*random.NormFloat64()))
		}
		m.Learn(w)
		shares = w.Shares
		m.Fit(shares, true)
	}
	const width, height, left, top, most, slowest = 720, 380, 60, 20, 144, 0.24
	x := func(samples float64) float64 { return left + (width-left-20)*samples/most }
	y := func(seconds float64) float64 { return height - 50 - (height-50-top)*min(seconds, slowest)/slowest }
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`, width,
		height)
	line(`<rect width="%d" height="%d" fill="white"/>`, width, height)
	e := m.ranks[0]
	var upper, lower, mean, truth []string
	for n := 1.0; n <= most; n++ {
		seconds, v := e.shape.at(n)
		s := 2 * math.Sqrt(v)
		upper = append(upper, fmt.Sprintf("%.1f,%.1f", x(n), y(seconds+s)))
		lower = append([]string{fmt.Sprintf("%.1f,%.1f", x(n), y(max(seconds-s, 0)))}, lower...)
		mean = append(mean, fmt.Sprintf("%.1f,%.1f", x(n), y(m.Mean()[0].At(n))))
		truth = append(truth, fmt.Sprintf("%.1f,%.1f", x(n), y(truly(n))))
	}
	line(`<polygon points="%s %s" fill="#9ecae1" fill-opacity="0.5"/>`, strings.Join(upper, " "),
		strings.Join(lower, " "))
	line(`<polyline points="%s" fill="none" stroke="#999" stroke-dasharray="3 3"/>`, strings.Join(truth, " "))
	line(`<polyline points="%s" fill="none" stroke="#08519c" stroke-width="1.5"/>`, strings.Join(mean, " "))
	now := float64(shares[0])
	line(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#d94801"/>`, x(now), top, x(now), height-50)
	line(`<text x="%.1f" y="%d" fill="#d94801">share in use: %d</text>`, x(now)+5, top+12, shares[0])
	for i, m := range e.cells {
		s := 2 * math.Sqrt(e.cov[i][i])
		line(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#000"/>`, x(m.samples), y(stat.Exp(m.log-s)),
			x(m.samples), y(stat.Exp(m.log+s)))
		line(`<circle cx="%.1f" cy="%.1f" r="4" fill="#000"/>`, x(m.samples), y(stat.Exp(m.log)))
	}
	line(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#000"/>`, left, height-50, width-20, height-50)
	line(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#000"/>`, left, top, left, height-50)
	for n := 0; n <= most; n += 16 {
		line(`<text x="%.1f" y="%d" text-anchor="middle">%d</text>`, x(float64(n)), height-32, n)
	}
	for ms := 0; ms <= 1000*slowest; ms += 40 {
		line(`<text x="%d" y="%.1f" text-anchor="end">%d ms</text>`, left-6, y(float64(ms)/1000)+4, ms)
	}
	line(`<text x="%d" y="%d" text-anchor="middle">share of the rank, samples</text>`, (left+width)/2, height-10)
	line(`</svg>`)
	return b.String()
}

// The picture of docs/balancing.md must contain all its parts, and its fit must have found the tiles.
func TestPictureOfAFit(t *testing.T) {
	const file = "../../docs/images/fit.svg"
	got := fitPicture(64, 104, 96, 96, 99, 96, 112, 97, 96)
	for _, part := range []string{"<polygon", "share in use: ", "<circle", "</svg>"} {
		if !strings.Contains(got, part) {
			t.Errorf("want %s in the picture", part)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	drawn, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; -update writes it", err)
	}
	if where := differs(got, string(drawn)); where != "" {
		t.Errorf("%s is stale: %s; -update rewrites it", file, where)
	}
}

// number matches computed coordinates: only they have decimals.
var number = regexp.MustCompile(`\d+\.\d+`)

// differs returns the first difference of two pictures, or "". Computed coordinates may differ by their last digit,
// because another architecture may round differently. All other texts are equal.
func differs(got, want string) string {
	if text := number.ReplaceAllString(got, ""); text != number.ReplaceAllString(want, "") {
		return "it has other elements or texts"
	}
	numbers := number.FindAllString(want, -1)
	for i, n := range number.FindAllString(got, -1) {
		a, err := strconv.ParseFloat(n, 64)
		b, err2 := strconv.ParseFloat(numbers[i], 64)
		if errors.Join(err, err2) != nil || math.Abs(a-b) > 0.15 {
			return fmt.Sprintf("number %d is %s, drawn %s", i, numbers[i], n)
		}
	}
	return ""
}
