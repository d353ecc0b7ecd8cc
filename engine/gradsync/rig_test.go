package gradsync

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/collective/local"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// job describes the training run of a group. It trains a small residual network. Samples are functions of their number.
type job struct {
	dtype     tensor.DType // element type of all tensors
	micro     int          // samples of a global micro-batch
	count     int          // micro-batches of a step
	mode      string       // batch normalisation: sync, ghost or local; none: a network without it
	group     int          // samples of a group in mode ghost
	smoothing float64
	dropout   float64
	options   Options // without communicators
	open      func(rank int) device.Device
	plain     bool // parameters have the plain layout, even if the device prefers another one
	// connect connects the ranks of a group. If it is nil, the ranks share memory and are goroutines.
	connect func(t testing.TB, size int) []collective.Communicator
}

// communicators connects size ranks. On devices that model time, link is the speed of the links.
func (j job) communicators(t testing.TB, size int, link local.Model) []collective.Communicator {
	t.Helper()
	if j.connect != nil {
		return j.connect(t, size)
	}
	group, err := local.New(size, local.Options{Timeout: time.Minute, Model: link})
	if err != nil {
		t.Fatal(err)
	}
	return collectivetest.GroupOf(group, nil).Comms
}

const imageSize, classes = 6, 5

func (j job) device(rank int) device.Device {
	if j.open != nil {
		return j.open(rank)
	}
	return reference.New()
}

// graph builds the pass over n samples, for one of several ranks.
func (j job) graph(n, rank, ranks int) (*graph.Graph, error) {
	return graph.Build(func(g *graph.Graph) {
		if j.dtype == tensor.F64 {
			g.UseF64()
		}
		x := g.Input("x", j.dtype, n, 3, imageSize, imageSize)
		labels, ids, key := g.Input("labels", tensor.I32, n), g.Input("ids", tensor.I64, n),
			g.Input("key", tensor.U32, 2)
		net := &nn.Net{Graph: g, Training: true, Compute: j.dtype, IDs: ids, Key: key}
		switch j.mode {
		case "sync":
			net.Sync = &graph.Ranks{Rank: rank, Count: ranks, Samples: g.Input(SamplesInput, tensor.I32, ranks),
				Total: j.micro}
		case "ghost":
			net.GhostGroup = j.group
		}
		norm := func(name string, x *graph.Value, o nn.Norm) *graph.Value {
			if j.mode == "none" {
				return g.Unary(name, graph.ReLU, x)
			}
			return net.BatchNorm(name, x, o)
		}
		x = norm("bn1", net.Conv2D("conv1", x, nn.Conv{Out: 6, Kernel: 3, Padding: 1}), nn.Norm{ReLU: true})
		y := norm("bn2", net.Conv2D("conv2", x, nn.Conv{Out: 6, Kernel: 3, Padding: 1}), nn.Norm{ReLU: true})
		x = norm("bn3", net.Conv2D("conv3", y, nn.Conv{Out: 6, Kernel: 1}), nn.Norm{ReLU: true, Residual: x})
		x = net.MaxPool2D("pool", x, 2, 2, 0)
		x = norm("bn4", net.Conv2D("conv4", x, nn.Conv{Out: 9, Kernel: 3, Stride: 2, Padding: 1, Bias: true}),
			nn.Norm{})
		x = net.Dropout("drop", net.GlobalAvgPool("mean", x), j.dropout)
		loss, _ := g.SoftmaxCrossEntropy("loss", net.Logits("fc", x, classes), labels, j.smoothing)
		g.Output("loss", loss)
		g.Differentiate(loss, g.Input("scale", j.dtype, 1))
	})
}

// rank is one rank of a job.
type rank struct {
	job
	number, size int
	dev          device.Device
	cache        *plan.Cache
	state        *plan.State
	sum          device.Buffer // gradients of earlier micro-batches; if a step has one micro-batch, state.Grads
	stream       device.Stream
	sync         *Sync
	passes       map[int]*Pass // passes by number of samples
	arenas       []device.Buffer
	grads, stats collective.Communicator
	times        Times
}

// start opens the device of a rank, and sets the initial values of the model.
func (j job) start(number, size int, grads, stats collective.Communicator) (*rank, error) {
	r := &rank{job: j, number: number, size: size, dev: j.device(number), passes: map[int]*Pass{}, grads: grads,
		stats: stats}
	r.cache = plan.NewCache(r.dev)
	g, err := j.graph(1, number, size)
	if err != nil {
		return nil, err
	}
	first, err := plan.Compile(r.cache, g, nil)
	if j.plain {
		first, err = plan.CompilePlain(r.cache, g)
	}
	if err != nil {
		return nil, err
	}
	if r.state, err = plan.NewState(r.cache, first.Params()); err != nil {
		return nil, err
	}
	if r.stream, err = r.dev.NewStream(); err != nil {
		return nil, err
	}
	r.sum = r.state.Grads
	if j.count > 1 {
		if r.sum, err = r.state.NewFlat(first.Params().Bytes); err != nil {
			return nil, err
		}
	}
	o := j.options
	o.Group = &Group{Grads: grads, Stats: stats}
	if j.mode == "ghost" || j.mode == "local" {
		o.AverageStates, o.GhostGroup = true, j.group
	}
	if r.sync, err = New(r.cache, r.state, r.sum, o); err != nil {
		return nil, err
	}
	for _, p := range first.Params().Params {
		if err := r.state.Write(r.state.Values, p, reference.Encode(j.dtype, initial(p))); err != nil {
			return nil, err
		}
	}
	for _, p := range first.Params().States {
		if err := r.state.Write(r.state.States, p, reference.Encode(j.dtype, initial(p))); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// initial returns the initial values of a parameter. They are f32 numbers, so that runs in f32 and in f64 start with
// equal values.
func initial(p plan.ParamInfo) []float64 {
	v := make([]float64, p.Spec.Shape.Elements())
	s := random.New(7, p.Name)
	for i := range v {
		v[i] = p.Init.A + 0.2*(s.Uniform(uint64(i))-0.4)
		if p.Init.Kind != graph.Constant {
			v[i] = 0.5 * s.Normal(uint64(i))
		}
		v[i] = float64(float32(v[i]))
	}
	return v
}

// pass returns the pass for n samples.
func (r *rank) pass(n int) (*Pass, error) {
	if p := r.passes[n]; p != nil {
		return p, nil
	}
	g, err := r.graph(max(n, 1), r.number, r.size)
	if err != nil {
		return nil, err
	}
	var p *plan.Plan
	if n == 0 {
		p, err = plan.CompileIdle(r.cache, g, r.state.Params)
	} else {
		p, err = plan.Compile(r.cache, g, r.state.Params)
	}
	if err != nil {
		return nil, err
	}
	arena, err := r.dev.Alloc(max(p.ArenaBytes(), 64))
	if err != nil {
		return nil, err
	}
	r.arenas = append(r.arenas, arena)
	for i := range arena.Host() {
		arena.Host()[i] = 0xff // values that are read before they are written then change the results
	}
	r.passes[n], err = r.sync.Bind(p, device.Whole(arena))
	return r.passes[n], err
}

// step runs the passes of one optimizer step. shares are the shares of each micro-batch. step returns the sum of this
// rank's losses.
func (r *rank) step(step int, shares []int) (loss float64, err error) {
	first := 0
	for _, n := range shares[:r.number] {
		first += n
	}
	n := shares[r.number]
	p, err := r.pass(n)
	if err != nil {
		return 0, err
	}
	if err := r.sync.SetShares(shares); err != nil {
		return 0, err
	}
	if err := p.plan.Prepare(r.stream); err != nil {
		return 0, err
	}
	for m := range r.count {
		if n > 0 {
			if err := r.load(p, (step*r.count+m)*r.micro+first, n); err != nil {
				return 0, err
			}
		}
		if err := p.Forward(r.stream); err != nil {
			return 0, fmt.Errorf("forward: %w", err)
		}
		if err := p.Backward(r.stream, m == r.count-1); err != nil {
			return 0, fmt.Errorf("backward: %w", err)
		}
		if m < r.count-1 {
			r.accumulate(m)
		}
		if n > 0 {
			at, spec, err := p.plan.Output("loss")
			if err != nil {
				return 0, err
			}
			for _, l := range reference.Decode(spec.DType, at.Host()) {
				loss += l
			}
		}
	}
	r.times, err = r.sync.Finish(context.Background(), r.stream)
	return loss, err
}

// accumulate adds the gradients of a micro-batch that is not the last one. gradsync leaves this to its caller.
func (r *rank) accumulate(m int) {
	have, add := reference.Decode(r.dtype, r.sum.Host()), reference.Decode(r.dtype, r.state.Grads.Host())
	for i := range add {
		if m > 0 {
			add[i] += have[i]
		}
	}
	copy(r.sum.Host(), reference.Encode(r.dtype, add))
}

// load writes the inputs of n samples. first is the number of the first one in the run.
func (r *rank) load(p *Pass, first, n int) error {
	x, labels, ids := []float64{}, []float64{}, []float64{}
	for i := range n {
		s := random.New(3, fmt.Sprint("sample ", first+i))
		for e := range uint64(3 * imageSize * imageSize) {
			x = append(x, float64(float32(s.Normal(e))))
		}
		labels = append(labels, math.Floor(classes*s.Uniform(1<<20)))
		ids = append(ids, float64(first+i))
	}
	scale := float64(float32(1 / float64(r.micro*r.count)))
	for name, v := range map[string][]float64{"x": x, "labels": labels, "ids": ids, "key": {5, 6}, "scale": {scale}} {
		at, spec, err := p.plan.Input(name)
		if err != nil {
			return err
		}
		copy(at.Host(), reference.Encode(spec.DType, v))
	}
	return nil
}

// update sets w = w - rate·g in f64. All ranks compute the same values.
func (r *rank) update(rate float64) {
	w, g := reference.Decode(r.dtype, r.state.Values.Host()), reference.Decode(r.dtype, r.sum.Host())
	for i := range w {
		w[i] -= rate * g[i]
	}
	copy(r.state.Values.Host(), reference.Encode(r.dtype, w))
}

// tensors returns gradients and running statistics by name.
func (r *rank) tensors() (map[string][]float64, error) {
	out := map[string][]float64{}
	read := func(flat device.Buffer, infos []plan.ParamInfo) error {
		for _, p := range infos {
			b := make([]byte, p.Spec.Shape.Elements()*p.Spec.DType.Size())
			if err := r.state.Read(flat, p, b); err != nil {
				return err
			}
			out[p.Name] = reference.Decode(p.Spec.DType, b)
		}
		return nil
	}
	if err := read(r.sum, r.state.Params.Params); err != nil {
		return nil, err
	}
	return out, read(r.state.States, r.state.Params.States)
}

func (r *rank) close(t testing.TB) {
	var errs []error
	for _, p := range r.passes {
		if p != nil {
			errs = append(errs, p.plan.Close())
		}
	}
	errs = append(errs, r.sync.Close())
	for _, a := range r.arenas {
		errs = append(errs, a.Free())
	}
	if r.sum != r.state.Grads {
		errs = append(errs, r.sum.Free())
	}
	errs = append(errs, r.state.Close(), r.stream.Close(), r.cache.Close())
	if have, _ := r.dev.Memory(); have != 0 {
		t.Errorf("rank %d: %d bytes of device memory are left", r.number, have)
	}
	errs = append(errs, r.dev.Close())
	for _, err := range errs {
		if err != nil {
			t.Errorf("rank %d: close: %v", r.number, err)
		}
	}
}

// ranks starts a job on size ranks.
func (j job) ranks(t testing.TB, size int) []*rank { return j.ranksOver(t, size, local.Model{}) }

// ranksOver starts a job on size ranks. On devices that model time, link is the speed of the links for gradients.
func (j job) ranksOver(t testing.TB, size int, link local.Model) []*rank {
	t.Helper()
	grads, stats := j.communicators(t, size, link), j.communicators(t, size, local.Model{})
	var err error
	out := make([]*rank, size)
	for i := range out {
		if out[i], err = j.start(i, size, grads[i], stats[i]); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		each(out, func(r *rank) error {
			_ = r.grads.Close()
			return r.stats.Close()
		})
		for _, r := range out {
			r.close(t)
		}
	})
	return out
}

// each runs f on all ranks concurrently, and returns the errors by rank.
func each(ranks []*rank, f func(r *rank) error) []error {
	errs := make([]error, len(ranks))
	var all sync.WaitGroup
	for i, r := range ranks {
		all.Go(func() { errs[i] = f(r) })
	}
	all.Wait()
	return errs
}

// run runs one step on every rank, and returns the sum of the losses over the ranks. An error ends the test.
func run(t testing.TB, ranks []*rank, step int, shares []int) float64 {
	t.Helper()
	losses := make([]float64, len(ranks))
	for i, err := range each(ranks, func(r *rank) (err error) {
		losses[r.number], err = r.step(step, shares)
		return err
	}) {
		if err != nil {
			t.Fatalf("rank %d: %v", i, err)
		}
	}
	total := 0.0
	for _, l := range losses {
		total += l
	}
	return total
}

// bits returns the bytes that must be equal on all ranks.
func (r *rank) bits() []byte {
	return slices.Concat(r.sum.Host(), r.state.States.Host(), r.state.Values.Host())
}
