package models_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/bert"
	"github.com/hetero-train/hetero-train/engine/models/gpt2"
	"github.com/hetero-train/hetero-train/engine/models/modelstest"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// golden contains the results of an f64 run of PyTorch. scripts/text_goldens.py computes them and defines the fields.
type golden struct {
	Config struct {
		Model, Target                       string
		Padded                              bool
		Seed                                uint64
		Spread                              float64
		Steps, Length, Classes              int
		BatchSize                           int `json:"batch_size"`
		Channels, Heads, Layers, Vocabulary int
		Positions, Segments, Inner          int
		KVHeads                             int `json:"kv_heads"`
		Theta                               float64
		Activation                          string  // "": the activation of the published model
		NormEps                             float64 `json:"norm_eps"`
		Rows                                []int
		Optimizer                           struct {
			LR, Beta1, Beta2, Eps float64
			WeightDecay           float64 `json:"weight_decay"`
		}
	}
	Loss     []float64
	Valid    []int
	Logits   [][]float64
	Next     [][]float64        `json:"next_logits"`
	GradNorm map[string]float64 `json:"grad_norm"`
}

// The tolerances for f32 are relative to the f64 run of PyTorch.
const (
	firstLoss  = 1e-5 // loss of the first step
	logitNorm  = 1e-4 // norm of the logits
	gradNorm   = 1e-3 // gradient norm of each parameter
	laterLoss  = 1e-4 // losses of all steps; each update adds rounding errors
	zeroToNorm = 1e-6 // a gradient below this fraction of the largest norm is a rounding error of 0 (biases of keys)
)

// The tolerances for bf16 are larger, because it has 8 significant bits. A single rounding error is at most 0.4 %, and
// many errors average out.
const (
	firstLossBF16 = 5e-3
	laterLossBF16 = 2e-2
	gradNormBF16  = 8e-2
)

// graph builds the training graph. Its outputs are the logits, and the losses of the targets.
func (g *golden) graph(t *testing.T, compute tensor.DType) *graph.Graph {
	c := g.Config
	built, err := graph.Build(func(b *graph.Graph) {
		net := &nn.Net{Graph: b, Training: true, Compute: compute}
		in := models.Tokens{Tokens: b.Input("tokens", tensor.I32, c.BatchSize, c.Length)}
		if c.Padded {
			in.Lengths = b.Input("lengths", tensor.I32, c.BatchSize)
		}
		if c.Model == "bert" {
			in.Segments = b.Input("segments", tensor.I32, c.BatchSize, c.Length)
		}
		size := bert.Size{Vocabulary: c.Vocabulary, Positions: c.Positions, Segments: c.Segments, Layers: c.Layers,
			Heads: c.Heads, Channels: c.Channels,
			Inner: c.Inner, Activation: c.Activation, Eps: c.NormEps}
		var loss, logits *graph.Value
		var terms []graph.Term
		if c.Target == "classes" {
			logits = bert.BuildClassifier(size, bert.Options{})(net, in, c.Classes)
			loss, _ = b.SoftmaxCrossEntropy("loss", logits, b.Input("labels", tensor.I32, c.BatchSize), 0)
		} else {
			model := bert.Build(size, bert.Options{NextSentence: c.Target == "pairs"})
			if c.Model == "gpt2" {
				model = gpt2.Build(gpt2.Size{Vocabulary: c.Vocabulary, Positions: c.Positions, Layers: c.Layers,
					Heads: c.Heads, Channels: c.Channels,
					Inner: c.Inner, Activation: c.Activation, Eps: c.NormEps}, gpt2.Options{})
			}
			if c.Model == "llama" {
				model = modelstest.Llama{Vocabulary: c.Vocabulary, Positions: c.Positions, Layers: c.Layers,
					Heads: c.Heads, KVHeads: c.KVHeads, Channels: c.Channels,
					Inner: c.Inner, Theta: c.Theta, Eps: c.NormEps}.Build
			}
			p := model(net, in)
			logits = b.Linear("logits", p.Rows, p.Weight, p.Bias, tensor.F32)
			loss, _ = b.LinearCrossEntropy("loss", p.Rows, p.Weight,
				b.Input("labels", tensor.I32, c.BatchSize*c.Length), p.Bias)
			if p.Next != nil {
				of, _ := b.SoftmaxCrossEntropy("loss of pairs", p.Next, b.Input("next", tensor.I32, c.BatchSize), 0)
				b.Output("next loss", of)
				b.Output("next logits", p.Next)
				terms = append(terms, graph.Term{Loss: of, Scale: b.Input("next scale", tensor.F32, 1)})
			}
		}
		b.Output("loss", loss)
		b.Output("logits", logits)
		b.DifferentiateTerms(append(terms, graph.Term{Loss: loss, Scale: b.Input("scale", tensor.F32, 1)})...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// batch returns the inputs of a step.
func (g *golden) batch(step int) map[string][]float64 {
	c := g.Config
	n, t := c.BatchSize, c.Length
	draw := func(name string, i, below int) int {
		return int(random.New(c.Seed, fmt.Sprintf("golden.%s.%d", name, step)).Bits(uint64(i)) % uint64(below))
	}
	in := map[string][]float64{"tokens": nil, "segments": nil, "lengths": nil, "labels": nil}
	for s := range n {
		length := t
		if c.Padded && s > 0 {
			length = 1 + draw("lengths", s, t)
		}
		in["lengths"] = append(in["lengths"], float64(length))
		in["next"] = append(in["next"], float64(draw("next", s, 2)))
		if c.Target == "classes" {
			in["labels"] = append(in["labels"], float64(draw("labels", s, c.Classes)))
		}
		for p := range t {
			i := s*t + p
			in["tokens"] = append(in["tokens"], float64(draw("tokens", i, c.Vocabulary)))
			segment, label := 0, -1
			if 2*p >= length {
				segment = 1
			}
			switch {
			case p >= length-1:
			case c.Target == "causal":
				label = draw("tokens", i+1, c.Vocabulary)
			case draw("masked", i, 5) == 0:
				label = draw("labels", i, c.Vocabulary)
			}
			in["segments"] = append(in["segments"], float64(segment))
			if c.Target != "classes" {
				in["labels"] = append(in["labels"], float64(label))
			}
		}
	}
	return in
}

// run is a golden run on a device, with its state.
type run struct {
	t      *testing.T
	g      *golden
	dev    device.Device
	plan   *plan.Plan
	state  *plan.State
	stream device.Stream
	opt    *optim.Optimizer
}

func (g *golden) open(t *testing.T, dev device.Device, compute tensor.DType) *run {
	t.Helper()
	r := &run{t: t, g: g, dev: dev}
	cache := plan.NewCache(dev)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	r.plan, err = plan.Compile(cache, g.graph(t, compute), nil)
	check(err)
	r.state, err = plan.NewState(cache, r.plan.Params())
	check(err)
	r.stream, err = dev.NewStream()
	check(err)
	arena, err := dev.Alloc(r.plan.ArenaBytes())
	check(err)
	check(r.plan.Bind(device.Whole(arena), r.state))
	o := g.Config.Optimizer
	r.opt, err = optim.New(cache, r.state, r.state.Grads, optim.Options{Name: "adamw", Beta1: o.Beta1, Beta2: o.Beta2,
		Eps: o.Eps, WeightDecay: o.WeightDecay})
	check(err)
	t.Cleanup(func() { // closes the plan before it frees the memory of the plan
		if err := errors.Join(r.opt.Close(), r.stream.Close(), r.plan.Close(), arena.Free(), r.state.Close(),
			cache.Close()); err != nil {
			t.Error(err)
		}
	})
	for _, p := range r.state.Params.Params {
		values, s := make([]float64, p.Spec.Shape.Elements()), random.New(g.Config.Seed, p.Name)
		for i := range values {
			mean := 0.0
			if p.Init.Kind == graph.Constant { // weights of LayerNorm start at 1
				mean = p.Init.A
			}
			values[i] = s.Gaussian(uint64(i), mean, g.Config.Spread)
		}
		check(r.state.Write(r.state.Values, p, reference.Encode(tensor.F32, values)))
	}
	for _, constant := range r.state.Params.States {
		check(r.state.Write(r.state.States, constant, reference.Encode(tensor.F32, *constant.Init.Values)))
	}
	return r
}

func (r *run) output(name string) []float64 {
	at, spec, err := r.plan.Output(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return reference.Decode(spec.DType, r.transfer(at, nil))
}

// transfer writes bytes to device memory. If bytes is nil, it returns the contents of the memory.
func (r *run) transfer(at device.Region, bytes []byte) []byte {
	r.t.Helper()
	memory, err := r.dev.AllocHost(at.Bytes)
	if err != nil {
		r.t.Fatal(err)
	}
	defer memory.Free()
	host := device.Whole(memory)
	from, to := at, host
	if bytes != nil {
		copy(host.Host(), bytes)
		from, to = host, at
	}
	if err := errors.Join(r.stream.Copy(to, from), r.stream.Sync()); err != nil {
		r.t.Fatal(err)
	}
	return slices.Clone(host.Host())
}

// step computes one step without the optimizer's update. It returns the loss.
func (r *run) step(step int) float64 {
	r.t.Helper()
	in, valid := r.g.batch(step), 0
	for _, l := range in["labels"] {
		if l >= 0 {
			valid++
		}
	}
	if valid != r.g.Valid[step] {
		r.t.Fatalf("step %d has %d labels, want %d", step, valid, r.g.Valid[step])
	}
	in["scale"], in["next scale"] = []float64{1 / float64(valid)}, []float64{1 / float64(r.g.Config.BatchSize)}
	for name, v := range in {
		if at, spec, err := r.plan.Input(name); err == nil { // a graph may lack some of these inputs
			r.transfer(at, reference.Encode(spec.DType, v))
		}
	}
	if err := errors.Join(r.plan.Prepare(r.stream), r.plan.Forward(r.stream), r.plan.Backward(r.stream),
		r.stream.Sync()); err != nil {
		r.t.Fatal(err)
	}
	sum := 0.0
	for _, l := range r.output("loss") {
		sum += l
	}
	if r.g.Next == nil {
		return sum / float64(valid)
	}
	pairs := 0.0
	for _, l := range r.output("next loss") {
		pairs += l
	}
	return sum/float64(valid) + pairs/float64(r.g.Config.BatchSize)
}

func (r *run) update() {
	r.t.Helper()
	if err := errors.Join(r.opt.Step(r.stream, r.g.Config.Optimizer.LR, 1), r.stream.Sync()); err != nil {
		r.t.Fatal(err)
	}
	if _, ok := r.opt.Result(); !ok {
		r.t.Fatal("the gradient is not finite")
	}
}

func norm(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}

func (r *run) compareLogits() {
	r.t.Helper()
	got, classes := r.output("logits"), max(r.g.Config.Classes, 0)
	if classes == 0 {
		classes = r.g.Config.Vocabulary
	}
	var diff, want []float64
	for i, row := range r.g.Config.Rows {
		for k, w := range r.g.Logits[i] {
			diff, want = append(diff, got[row*classes+k]-w), append(want, w)
		}
	}
	if len(r.g.Next) > 0 {
		got := r.output("next logits")
		for i, w := range slices.Concat(r.g.Next...) {
			diff, want = append(diff, got[i]-w), append(want, w)
		}
	}
	if d := norm(diff) / norm(want); !(d <= logitNorm) {
		r.t.Errorf("logits differ by %.2g of their norm, want at most %g", d, logitNorm)
	}
}

func (r *run) compareGradients(tolerance float64) {
	r.t.Helper()
	largest := 0.0
	for _, n := range r.g.GradNorm {
		largest = max(largest, n)
	}
	if len(r.state.Params.Params) != len(r.g.GradNorm) {
		r.t.Errorf("got %d parameters, want %d", len(r.state.Params.Params), len(r.g.GradNorm))
	}
	for _, p := range r.state.Params.Params {
		want, ok := r.g.GradNorm[p.Name]
		if !ok {
			r.t.Errorf("transformers has no parameter %s", p.Name)
			continue
		}
		raw := make([]byte, p.Spec.Shape.Elements()*4)
		if err := r.state.Read(r.state.Grads, p, raw); err != nil {
			r.t.Fatal(err)
		}
		got := norm(reference.Decode(tensor.F32, raw))
		if want <= zeroToNorm*largest {
			if tolerance == gradNorm && !(got <= 10*zeroToNorm*largest) {
				r.t.Errorf("gradient norm of %s: got %g, want about 0", p.Name, got)
			}
			continue
		}
		if !(math.Abs(got-want) <= tolerance*want) {
			r.t.Errorf("gradient norm of %s: got %g, want %g within %g", p.Name, got, want, tolerance)
		}
	}
}

// follow repeats the first steps of a golden run on a device, and compares them.
func (g *golden) follow(t *testing.T, dev device.Device, compute tensor.DType, steps int) {
	r := g.open(t, dev, compute)
	first, later, grads := firstLoss, laterLoss, gradNorm
	if compute == tensor.BF16 {
		first, later, grads = firstLossBF16, laterLossBF16, gradNormBF16
	}
	for step := range steps {
		got, want, tolerance := r.step(step), g.Loss[step], later
		if step == 0 {
			tolerance = first
			if compute == tensor.F32 {
				r.compareLogits()
			}
			r.compareGradients(grads)
		}
		if !(math.Abs(got-want) <= tolerance*want) {
			t.Errorf("step %d: got loss %.9g, want %.9g within %g", step, got, want, tolerance)
		}
		r.update()
	}
}

func goldens(t *testing.T) map[string]*golden {
	t.Helper()
	files, err := filepath.Glob("testdata/text/*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("got %d golden files (%v), want at least 4", len(files), err)
	}
	all := map[string]*golden{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		g := new(golden)
		if err := json.Unmarshal(text, g); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = g
	}
	return all
}

// openCPU opens the CPU device. If the library was not built, it skips the test, unless HETERO_REQUIRE names it.
func openCPU(t *testing.T) device.Device {
	t.Helper()
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	dev, err := cpu.Driver{}.Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// TestTransformersFollowPyTorch trains the published sizes only if HETERO_LARGE=1. They need 4 GB of memory and several
// minutes.
func TestTransformersFollowPyTorch(t *testing.T) {
	needtest.NotShort(t, "trains networks")
	for name, g := range goldens(t) {
		large := g.Config.Channels > 100
		if !large {
			t.Run(name+"/reference", func(t *testing.T) {
				g.follow(t, reference.New(), tensor.F32, min(3, g.Config.Steps))
			})
		}
		for _, compute := range []tensor.DType{tensor.F32, tensor.BF16} {
			t.Run(fmt.Sprintf("%s/cpu %v", name, compute), func(t *testing.T) {
				if large {
					needtest.Large.Need(t, "a network of the published size")
				}
				g.follow(t, openCPU(t), compute, g.Config.Steps)
			})
			if kind := os.Getenv("HETERO_TEST_DEVICE"); kind != "" && !large {
				t.Run(fmt.Sprintf("%s/%s %v", name, kind, compute), func(t *testing.T) {
					g.follow(t, nativetest.Open(t, "", "libhetero_"+kind+".so"), compute, g.Config.Steps)
				})
			}
		}
	}
}
