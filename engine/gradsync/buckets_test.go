package gradsync

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// sized returns trained parameters of the given sizes in bytes, which are multiples of 64. It adds one parameter
// without a gradient.
func sized(bytes ...int64) *plan.Params {
	p := &plan.Params{DType: tensor.F32, Trained: len(bytes)}
	for i, n := range append(bytes, 128) {
		p.Params = append(p.Params, plan.ParamInfo{Name: string(rune('a' + i)), Spec: device.Spec(tensor.F32, int(n/4)),
			Offset: p.Bytes})
		p.Bytes += n
	}
	return p
}

func TestBucketsFillUpToTheirCap(t *testing.T) {
	for _, c := range []struct {
		name       string
		params     []int64
		first, cap int64
		want       []int64
	}{
		{"the first is small", []int64{64, 64, 64, 64, 64}, 64, 192, []int64{64, 256, 320}},
		{"the first is never larger than the others", []int64{64, 64, 64}, 1024, 64, []int64{64, 128, 192}},
		{"exactly full", []int64{64, 64, 128, 128}, 128, 256, []int64{128, 384}},
		{"a parameter larger than the cap is alone", []int64{64, 1024, 64}, 128, 256, []int64{64, 1088, 1152}},
		{"a first parameter larger than the cap", []int64{1024, 64, 64}, 64, 128, []int64{1024, 1152}},
		{"all in one", []int64{64, 64, 64}, 4096, 4096, []int64{192}},
		{"nothing is trained", nil, 64, 64, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := sized(c.params...)
			got := ByCap(p, c.first, c.cap)
			if !slices.Equal(got, c.want) {
				t.Fatalf("got ends %v, want %v", got, c.want)
			}
			if err := checkEnds(p, got); err != nil {
				t.Error(err)
			}
			var names []string
			for _, b := range buckets(p, got) {
				names = append(names, b.Params...)
			}
			if want := "abcdefgh"[:len(c.params)]; strings.Join(names, "") != want {
				t.Errorf("buckets hold %v, want each of %q once", names, want)
			}
		})
	}
}

func TestEndsThatAreNotOfParametersAreRefused(t *testing.T) {
	p := sized(64, 128, 64)
	for _, c := range []struct {
		name string
		ends []int64
		want string
	}{
		{"inside a parameter", []int64{64, 128, 256}, "bucket 1: got its end at byte 128"},
		{"descending", []int64{192, 64, 256}, "bucket 1: got its end at byte 64"},
		{"twice", []int64{64, 64, 256}, "bucket 1: got its end at byte 64"},
		{"gradients left out", []int64{64, 192}, "want the last one at byte 256"},
		{"what has no gradient", []int64{64, 384}, "bucket 1: got its end at byte 384"},
	} {
		if err := checkEnds(p, c.ends); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// finish returns the time at which the last all-reduce ends, if buckets end at the offsets at.
func finish(at []int64, ends []int64, ready []float64, link Link) float64 {
	over, begin := 0.0, int64(0)
	for _, end := range at {
		i := slices.Index(ends, end)
		over = max(over, ready[i]) + link.LatencySeconds + float64(end-begin)/link.BytesPerSecond
		begin = end
	}
	return over
}

func TestChosenBucketsAreTheBestOfAll(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n := 1 + r.IntN(9)
		ends, ready := make([]int64, n), make([]float64, n)
		for i := range n {
			ends[i], ready[i] = 64*int64(1+r.IntN(50)), r.Float64()
			if i > 0 {
				ends[i] += ends[i-1]
				ready[i] += ready[i-1]
			}
		}
		link := Link{LatencySeconds: r.Float64() * 0.3, BytesPerSecond: 100 + 5000*r.Float64()}
		got := Choose(ends, ready, link)
		best := math.Inf(1)
		for set := range 1 << (n - 1) { // each set of ends is a division into buckets
			var at []int64
			for i, end := range ends {
				if i == n-1 || set>>i&1 != 0 {
					at = append(at, end)
				}
			}
			best = min(best, finish(at, ends, ready, link))
		}
		if have := finish(got, ends, ready, link); have > best*(1+1e-12) {
			t.Fatalf("%v, ready %v, %+v: got %v, over at %g, want %g", ends, ready, link, got, have, best)
		}
	}
}

func TestChoiceFollowsTheLink(t *testing.T) {
	ends := []int64{1000, 2000, 3000, 4000}
	ready := []float64{1, 2, 3, 4}
	for _, c := range []struct {
		name string
		link Link
		want []int64
	}{
		{"a fast link with latency wants few", Link{LatencySeconds: 5, BytesPerSecond: 1e9}, []int64{4000}},
		{"a link without latency wants many", Link{BytesPerSecond: 800}, []int64{1000, 2000, 3000, 4000}},
		{"nothing is ready before the end", Link{LatencySeconds: 1, BytesPerSecond: 1e9}, []int64{3000, 4000}},
	} {
		if got := Choose(ends, ready, c.link); finish(got, ends, ready, c.link) > finish(c.want, ends, ready, c.link) ||
			len(got) > len(c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	if got := Choose(nil, nil, Link{BytesPerSecond: 1}); len(got) != 0 {
		t.Errorf("no gradients: got %v", got)
	}
}
