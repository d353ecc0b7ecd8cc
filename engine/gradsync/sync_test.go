package gradsync

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/local"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Buckets, overlap and the choice of communicators must affect only times. Every sum must add the same values in the
// same order.
func TestOverlapAndBucketsDoNotChangeABit(t *testing.T) {
	j := job{dtype: tensor.F32, micro: 7, count: 2, mode: "sync", dropout: 0.3}
	var want []byte
	for _, c := range []struct {
		name    string
		options Options
		one     bool // one communicator performs all operations
	}{
		{"one bucket", Options{}, false},
		{"many buckets", Options{FirstBytes: 64, CapBytes: 64}, false},
		{"no overlap", Options{FirstBytes: 64, CapBytes: 512, Sequential: true}, false},
		{"exchanges and buckets on one communicator", Options{FirstBytes: 64, CapBytes: 512}, true},
	} {
		j.options = c.options
		ranks := j.ranks(t, 3)
		if c.one {
			for _, r := range ranks {
				r.sync.group.Stats = r.sync.group.Grads
			}
		}
		for step := range 2 {
			run(t, ranks, step, []int{4, 0, 3})
			for _, r := range ranks {
				r.update(0.1)
			}
		}
		got := ranks[1].bits()
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: other bits than with one bucket", c.name)
		}
	}
}

// bf16 has 8 significant bits. Rounding a summand or a sum to bf16 causes a relative error of at most 2^-9.
func TestBF16OnTheWireCostsItsRounding(t *testing.T) {
	j := job{dtype: tensor.F32, micro: 8, count: 2, mode: "ghost", group: 2,
		options: Options{CapBytes: 1024, FirstBytes: 64}}
	exact := j.ranks(t, 2)
	run(t, exact, 0, []int{6, 2})
	j.options.Wire = tensor.BF16
	got := j.ranks(t, 2)
	run(t, got, 0, []int{6, 2})
	if !bytes.Equal(got[0].bits(), got[1].bits()) {
		t.Error("ranks hold other bits")
	}
	if full, half := exact[0].times.Bytes, got[0].times.Bytes; half >= full {
		t.Errorf("got %d bytes on the wire, want less than the %d of f32", half, full)
	}
	want, err := exact[0].tensors()
	if err != nil {
		t.Fatal(err)
	}
	have, err := got[0].tensors()
	if err != nil {
		t.Fatal(err)
	}
	for name, w := range want {
		if strings.Contains(name, "running") {
			if distance(have[name], w) != 0 {
				t.Errorf("%s: statistics travel as they are, but differ", name)
			}
			continue
		}
		parts := 3 * distance(w, nil) // norm of the summands of two ranks, which may cancel in the sum
		if err := distance(have[name], w); err > math.Ldexp(parts, -8)+1e-6 || err == 0 {
			t.Errorf("%s: error %.3g of norm %.3g, want that of rounding to bf16", name, err, distance(w, nil))
		}
	}
}

func TestTimesAndBucketsAreReported(t *testing.T) {
	j := job{dtype: tensor.F32, micro: 4, count: 1, mode: "sync", options: Options{CapBytes: 1024, FirstBytes: 256}}
	ranks := j.ranks(t, 2)
	run(t, ranks, 0, []int{2, 2})
	for _, r := range ranks {
		got, sum := r.times, int64(0)
		for _, b := range r.sync.Buckets() {
			sum += b.Bytes
		}
		if got.Buckets != len(r.sync.Buckets()) || got.Bytes != sum || got.Busy <= 0 || got.Exchanges <= 0 ||
			got.Hidden != max(0, got.Busy-got.Exposed) {
			t.Errorf("rank %d: got %+v, want %d buckets of %d bytes and the time they took", r.number, got,
				len(r.sync.Buckets()), sum)
		}
		checkReductions(t, r.sync, got)
	}
}

// checkReductions compares the times of the all-reduces with the times of the step.
func checkReductions(t *testing.T, s *Sync, got Times) {
	t.Helper()
	var busy, exposed time.Duration
	bytes := int64(0)
	for i, r := range s.Reductions() {
		if r.Name == "" || r.Busy <= 0 || r.Exposed < 0 || r.Exposed > r.Busy || i < len(s.Buckets()) &&
			r.Bytes != s.Buckets()[i].Bytes*s.opts.Wire.Size()/s.state.Params.DType.Size() {
			t.Errorf("all-reduce %d: got %+v", i, r)
		}
		busy, exposed, bytes = busy+r.Busy, exposed+r.Exposed, bytes+r.Bytes
	}
	if busy != got.Busy || bytes != got.Bytes || exposed > got.Exposed+time.Microsecond {
		t.Errorf("all-reduces took %v, %v of them exposed, for %d bytes; want those of the step, %+v", busy, exposed,
			bytes, got)
	}
}

// An exchange takes at least the latency of the link, which gives a lower bound for a step. The exchanges of only one
// micro-batch would take half of this bound.
func TestExchangesOfAllMicroBatchesAreCounted(t *testing.T) {
	const latency = time.Millisecond
	slow := job{}
	j := job{dtype: tensor.F32, micro: 4, count: 2, mode: "sync",
		connect: func(t testing.TB, size int) []collective.Communicator {
			return slow.communicators(t, size, local.Model{LatencySeconds: latency.Seconds(), RealTime: 1})
		}}
	ranks := j.ranks(t, 2)
	for step := range 2 { // a step must not include the exchanges of the previous step
		begun := time.Now()
		run(t, ranks, step, []int{2, 2})
		took := time.Since(begun)
		for _, r := range ranks {
			least := time.Duration(j.count*len(r.sync.points)) * latency
			if got := r.times.Exchanges; got < least || got > took {
				t.Errorf("step %d: rank %d: got %v in %d exchanges of each micro-batch, want at least %v and at most the step's %v",
					step, r.number, got, len(r.sync.points), least, took)
			}
		}
	}
}

func TestWrongOptionsAndSharesAreRefused(t *testing.T) {
	j := job{dtype: tensor.F32, micro: 4, count: 1, mode: "sync"}
	r := j.ranks(t, 2)[0]
	for _, c := range []struct {
		samples []int
		want    string
	}{
		{[]int{4}, "shares: got 1, want one for each of 2 ranks"},
		{[]int{5, -1}, "share of rank 1: got -1 samples"},
		{[]int{0, 0}, "got [0 0], want samples on some rank"},
	} {
		if err := r.sync.SetShares(c.samples); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.samples, err, c.want)
		}
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Wire: tensor.F16}, "element type in transit: got f16, want bf16 or the gradients' f32"},
		{Options{Ends: []int64{4}}, "bucket 0: got its end at byte 4"},
	} {
		c.o.Group = &Group{Grads: r.grads}
		if _, err := New(r.cache, r.state, r.sum, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.o, err, c.want)
		}
	}
}

func TestPlansThatDoNotBelongAreRefused(t *testing.T) {
	j := job{dtype: tensor.F32, micro: 4, count: 1, mode: "sync"}
	r := j.ranks(t, 2)[0]
	if _, err := r.pass(2); err != nil {
		t.Fatal(err)
	}
	bind := func(s *Sync, j job, ranks int) error {
		g, err := j.graph(2, 0, ranks)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Compile(r.cache, g, r.state.Params)
		if err != nil {
			t.Fatal(err)
		}
		arena, err := r.dev.Alloc(p.ArenaBytes())
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Bind(p, device.Whole(arena))
		for _, e := range []error{p.Close(), arena.Free()} {
			if e != nil {
				t.Error(e)
			}
		}
		return err
	}
	silent, err := New(r.cache, r.state, r.sum, Options{Group: &Group{Grads: r.grads}})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	fresh, err := New(r.cache, r.state, r.sum, Options{Group: &Group{Grads: r.grads, Stats: r.stats}})
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	local := j
	local.mode = "local"
	for _, c := range []struct {
		name string
		got  error
		want string
	}{
		{"no exchanges where others have some", bind(r.sync, local, 2),
			"got a plan with 0 exchanges, want the 8 of the first"},
		{"exchanges without a communicator", bind(silent, j, 2), "got no communicator for statistics"},
		{"a graph for other ranks", bind(fresh, j, 3), "bn1 gather: the graph is built for 3 ranks, want 2"},
	} {
		if c.got == nil || !strings.Contains(c.got.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, c.got, c.want)
		}
	}
}

// The ranks must average running statistics over all samples, so the weight of a rank is its number of samples. The
// averages must be equal on all ranks.
func TestRunningStatisticsOfLocalNormsAreAveraged(t *testing.T) {
	j := job{dtype: tensor.F64, micro: 6, count: 1, mode: "local"}
	shares := []int{1, 0, 5}
	ranks := j.ranks(t, len(shares))
	run(t, ranks, 0, shares)
	name := "bn1.running_mean"
	want := make([]float64, 6)
	first := 0
	for _, n := range shares { // compute the statistics of each rank before averaging
		if n == 0 {
			continue
		}
		alone := j.ranks(t, 1)[0]
		p, err := alone.pass(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := alone.sync.SetShares([]int{n}); err != nil {
			t.Fatal(err)
		}
		if err := alone.load(p, first, n); err != nil {
			t.Fatal(err)
		}
		if err := p.Forward(alone.stream); err != nil {
			t.Fatal(err)
		}
		own, err := alone.tensors()
		if err != nil {
			t.Fatal(err)
		}
		for c, v := range own[name] {
			want[c] += v * float64(n) / float64(j.micro)
		}
		first += n
	}
	for _, r := range ranks {
		got, err := r.tensors()
		if err != nil {
			t.Fatal(err)
		}
		if distance(got[name], want) > 1e-12 {
			t.Errorf("rank %d: got %v, want %v", r.number, got[name], want)
		}
	}
}

// If the device of a rank fails, the other ranks must get the error of this device. Their own errors must not replace
// it.
func TestOwnFailureIsToldToTheOthers(t *testing.T) {
	j := job{dtype: tensor.F32, micro: 4, count: 1, mode: "sync"}
	ranks := j.ranks(t, 2)
	run(t, ranks, 0, []int{2, 2})
	errs := each(ranks, func(r *rank) error {
		if r.number == 0 {
			closed, err := reference.New().NewStream()
			if err != nil {
				return err
			}
			if err := closed.Close(); err != nil {
				return err
			}
			return r.passes[2].Forward(closed)
		}
		_, err := r.step(1, []int{2, 2})
		return err
	})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "stream is closed") {
		t.Errorf("rank 0: got %v, want its own failure", errs[0])
	}
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "rank 0:") ||
		!strings.Contains(errs[1].Error(), "stream is closed") {
		t.Errorf("rank 1: got %v, want the failure of rank 0", errs[1])
	}
}

func ExampleByCap() {
	p := &plan.Params{Trained: 3, Bytes: 1024, Params: []plan.ParamInfo{
		{Name: "fc.weight"}, {Name: "conv2.weight", Offset: 128}, {Name: "conv1.weight", Offset: 896}}}
	fmt.Println(ByCap(p, 128, 1024))
	// Output: [128 1024]
}
