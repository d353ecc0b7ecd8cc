package trace

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"testing"
	"time"
)

// histo has the fields of TensorBoard's HistogramProto.
type histo struct {
	Min        float64   `json:"min"`
	Max        float64   `json:"max"`
	Num        float64   `json:"num"`
	Sum        float64   `json:"sum"`
	SumSquares float64   `json:"sum_squares"`
	Limits     []float64 `json:"limits"`
	Counts     []float64 `json:"counts"`
}

// readHistograms returns the histograms in a folder that contains one file, by step.
func readHistograms(t *testing.T, dir, tag string) map[int64]histo {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*tfevents*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("event files: %v, %v", names, err)
	}
	doubles := func(text string) (list []float64) {
		for b := []byte(text); len(b) >= 8; b = b[8:] {
			list = append(list, math.Float64frombits(binary.LittleEndian.Uint64(b)))
		}
		return list
	}
	out := map[int64]histo{}
	for _, e := range readEvents(t, names[0])[1:] {
		v := parse(t, parse(t, e.texts[5][0]).texts[1][0])
		if v.texts[1][0] != tag {
			t.Errorf("got the tag %q, want %q", v.texts[1], tag)
		}
		h := parse(t, v.texts[5][0])
		double := func(n int) float64 { return math.Float64frombits(h.numbers[n]) }
		out[int64(e.numbers[2])] = histo{double(1), double(2), double(3), double(4), double(5), doubles(h.texts[6][0]),
			doubles(h.texts[7][0])}
	}
	return out
}

// testdata/histograms.py writes histograms with torch.utils.tensorboard. Ours must be equal.
func TestHistogramsAreThoseOfTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/histograms.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name   string
		Values []float32
		Want   histo
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) < 7 {
		t.Fatalf("got %d cases, %v", len(cases), err)
	}
	dir, h := t.TempDir(), NewHistogram()
	b := openBoard(t, dir, BoardOptions{Fresh: true})
	for i, c := range cases {
		h.Reset()
		h.Add(c.Values[:len(c.Values)/2], 1)
		h.Add(c.Values[len(c.Values)/2:], 1)
		b.Histogram(int64(i+1), time.Unix(1_800_000_000, 0), "x", h)
	}
	closeBoard(t, b)
	read := readHistograms(t, dir, "x")
	for i, c := range cases {
		got := read[int64(i+1)]
		// The tolerance allows for sums in another order.
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-12*c.Want.SumSquares+1e-12*math.Abs(b) }
		if got.Min != c.Want.Min || got.Max != c.Want.Max || got.Num != c.Want.Num || !near(got.Sum, c.Want.Sum) ||
			!near(got.SumSquares, c.Want.SumSquares) {
			t.Errorf("%s: got %v, want %v", c.Name, got, c.Want)
		}
		if !slices.Equal(got.Limits, c.Want.Limits) || !slices.Equal(got.Counts, c.Want.Counts) {
			t.Errorf("%s: got the bins %v and counts %v, want %v and %v", c.Name, got.Limits, got.Counts, c.Want.Limits,
				c.Want.Counts)
		}
	}
}

// Add must choose the same bins as a linear search, even with a factor.
func TestBinsAreThoseOfASearch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	values := []float32{0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32,
		math.MaxFloat32, -math.MaxFloat32}
	for _, l := range limits {
		v := float32(l)
		values = append(values, v, math.Nextafter32(v, 1e30), math.Nextafter32(v, -1e30))
	}
	for range 10_000 {
		values = append(values, math.Float32frombits(r.Uint32()))
	}
	for _, factor := range []float64{1, 1.0 / 1024, 1.0 / 3, 1e-30, 1e25} {
		h := NewHistogram()
		want := make([]float64, len(limits)-1)
		n := int64(0)
		for _, value := range values {
			v := float64(value) * factor
			if math.IsNaN(v) || math.IsInf(v, 0) {
				continue
			}
			n++
			if at := sort.Search(len(limits), func(k int) bool { return limits[k] > v }) - 1; at >= 0 &&
				at < len(want) {
				want[at]++
			} else if v == limits[len(want)] {
				want[len(want)-1]++
			}
		}
		if h.Add(values, factor); !slices.Equal(h.counts, want) || h.n != n {
			t.Errorf("factor %v: the counts of %d values differ from those of a search", factor, n)
		}
	}
}

func TestAHistogramWithoutFiniteValuesIsNotWritten(t *testing.T) {
	dir, h := t.TempDir(), NewHistogram()
	b := openBoard(t, dir, BoardOptions{Fresh: true})
	h.Add([]float32{float32(math.NaN()), float32(math.Inf(1)), 1e30}, 1)
	b.Histogram(1, time.Unix(1_800_000_000, 0), "x", h)
	closeBoard(t, b)
	if got := readHistograms(t, dir, "x"); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func BenchmarkHistogram(b *testing.B) {
	r, h := rand.New(rand.NewPCG(1, 2)), NewHistogram()
	values := make([]float32, 1<<20)
	for i := range values {
		values[i] = float32(0.05 * r.NormFloat64())
	}
	b.SetBytes(4 << 20)
	for b.Loop() {
		h.Reset()
		h.Add(values, 1)
	}
}
