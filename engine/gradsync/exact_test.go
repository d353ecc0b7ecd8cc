package gradsync

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// roundoff is the largest relative error of one rounding to f32.
const roundoff = 1.0 / (1 << 24)

// Each seed is a case with its own network and shares.
func TestGradientsOfAnySplitAreThoseOfOneDevice(t *testing.T) {
	n := 120
	switch {
	case needtest.Large.On():
		n = 300
	case testing.Short():
		n = 40
	}
	for seed := range uint64(n) {
		c := draw(seed)
		t.Run(c.String(), func(t *testing.T) { c.check(t) })
	}
}

// splitCase is a job and the shares of its ranks.
type splitCase struct {
	job
	shares []int
	seed   uint64
}

func (c splitCase) String() string {
	return fmt.Sprintf("%d %s %v x%d cap %d wire %v sequential %t", c.seed, c.mode, c.shares, c.count,
		c.options.CapBytes, c.options.Wire, c.options.Sequential)
}

// draw returns the case of a seed.
func draw(seed uint64) splitCase {
	r := rand.New(rand.NewPCG(seed, 1))
	size := []int{1, 2, 3, 4, 7}[r.IntN(5)]
	c := splitCase{seed: seed}
	c.mode = []string{"sync", "sync", "ghost", "none"}[r.IntN(4)]
	c.dtype, c.count = tensor.F32, 1+r.IntN(3)
	c.smoothing, c.dropout = float64(r.IntN(2))*0.1, float64(r.IntN(2))*0.3
	c.options = Options{FirstBytes: int64(64 << r.IntN(8)), CapBytes: int64(256 << r.IntN(8)),
		Sequential: r.IntN(4) == 0}
	unit := 1
	if c.mode == "ghost" {
		c.group = 2 + r.IntN(2)
		unit = c.group
	}
	c.shares = make([]int, size)
	for range 2 + r.IntN(8) {
		c.shares[r.IntN(size)] += unit // some ranks get no samples
	}
	for _, n := range c.shares {
		c.micro += n
	}
	c.plain = r.IntN(2) == 0
	return c
}

// check compares the ranks with one device in f64. The limit depends on the error of one device in f32.
func (c splitCase) check(t *testing.T) {
	got := c.ranks(t, len(c.shares))
	loss := run(t, got, 0, c.shares)
	alone := c.job
	alone.options, alone.open, alone.connect = Options{}, nil, nil // the reference device
	if alone.mode == "sync" {
		alone.mode = "local" // on one device, the statistics of its own samples are those of all samples
	}
	plain := alone.ranks(t, 1)
	run(t, plain, 0, []int{c.micro})
	alone.dtype = tensor.F64
	truth := alone.ranks(t, 1)
	want := run(t, truth, 0, []int{c.micro})
	if math.Abs(loss-want) > 1e-5*math.Abs(want) {
		t.Errorf("loss: got %g, want %g", loss, want)
	}
	compare(t, got, plain[0], truth[0])
}

// compare requires bit-equal results on all ranks. Their errors may be at most a small multiple of one device's error.
func compare(t *testing.T, got []*rank, plain, truth *rank) {
	t.Helper()
	for _, r := range got[1:] {
		if !bytes.Equal(r.bits(), got[0].bits()) {
			t.Errorf("rank %d holds other bits than rank 0", r.number)
		}
	}
	all := [3]map[string][]float64{}
	for i, r := range []*rank{got[0], plain, truth} {
		var err error
		if all[i], err = r.tensors(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range all[2] {
		size := distance(want, nil)
		limit := 3*distance(all[1][name], want) + 8*roundoff*size + 1e-7 // 1e-7 is for gradients of 0
		if err := distance(all[0][name], want); !(err <= limit) {
			t.Errorf("%s: error %.3g, want at most %.3g (norm %.3g, error of the plain run %.3g)", name, err, limit,
				size, distance(all[1][name], want))
		}
	}
}

// distance returns ‖a - b‖. If b is nil, it counts as 0.
func distance(a, b []float64) float64 {
	sum := 0.0
	for i, v := range a {
		if b != nil {
			v -= b[i]
		}
		sum += v * v
	}
	return math.Sqrt(sum)
}

func TestLossFollowsOneDeviceWhileSharesChangeEveryStep(t *testing.T) {
	const steps, rate = 30, 0.1
	for _, mode := range []string{"sync", "ghost"} {
		t.Run(mode, func(t *testing.T) {
			j := job{dtype: tensor.F32, micro: 12, count: 1, mode: mode, smoothing: 0.1, dropout: 0.2,
				options: Options{CapBytes: 1024, FirstBytes: 256}}
			unit := 1
			if mode == "ghost" {
				j.group, unit = 2, 2
			}
			alone := j
			alone.options, alone.open, alone.connect = Options{}, nil, nil // the reference device
			if mode == "sync" {
				alone.mode = "local"
			}
			got, plain := j.ranks(t, 3), alone.ranks(t, 1)
			alone.dtype = tensor.F64
			truth := alone.ranks(t, 1)
			r := rand.New(rand.NewPCG(5, 6))
			for step := range steps {
				shares := []int{0, 0, 0}
				for range j.micro / unit {
					shares[r.IntN(3)] += unit
				}
				loss := run(t, got, step, shares)
				near := run(t, plain, step, []int{j.micro})
				want := run(t, truth, step, []int{j.micro})
				// The errors of steps add up, so the limit grows with the number of steps.
				limit := 3*math.Abs(near-want) + 1e-5*float64(step+1)*want
				if math.Abs(loss-want) > limit {
					t.Fatalf("step %d, shares %v: loss: got %g, want %g within %.2g", step, shares, loss, want, limit)
				}
				for _, r := range slices.Concat(got, plain, truth) {
					r.update(rate)
				}
			}
			compare(t, got, plain[0], truth[0])
		})
	}
}

func TestTwoRunsAreBitEqual(t *testing.T) {
	for _, wire := range []tensor.DType{tensor.F32, tensor.BF16} {
		j := job{dtype: tensor.F32, micro: 9, count: 2, mode: "sync", dropout: 0.3,
			options: Options{CapBytes: 512, FirstBytes: 128, Wire: wire}}
		var want []byte
		for range 3 {
			ranks := j.ranks(t, 3)
			for step := range 3 {
				run(t, ranks, step, []int{4, 0, 5})
				for _, r := range ranks {
					r.update(0.1)
				}
			}
			if want == nil {
				want = ranks[0].bits()
			}
			for _, r := range ranks {
				if !bytes.Equal(r.bits(), want) {
					t.Errorf("wire %v: rank %d holds other bits than rank 0 of the first run", wire, r.number)
				}
			}
		}
	}
}
