package gpumodel

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func named(t *testing.T, name string) GPU {
	t.Helper()
	g, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestUnknownGPUsListTheKnownOnes(t *testing.T) {
	if g := named(t, "H100"); g.ISA != "sm_90" {
		t.Errorf("got %+v", g)
	}
	_, err := Find("h1000")
	if err == nil || !strings.Contains(err.Error(), `got "h1000", want one of h100, `) {
		t.Errorf("got %v", err)
	}
}

// A rate is multiprocessors × clock × FLOPs per clock of a multiprocessor. The architecture determines the last factor.
func TestRatesFollowFromTheArchitecture(t *testing.T) {
	type chip struct {
		f32Clock, tensorClock      float64 // Hz
		f32, tensor                float64 // FLOPs per clock of a multiprocessor; tensor: bf16 and f16 with sums in f32
		most                       float64 // memory on the data sheet, bytes
		bus, bitsPerSecond, caches float64 // width of the memory bus, bits; rate per bit, 1/s; L2 cache, MiB
	}
	chips := map[string]chip{
		"h100":    {1.98e9, 1.83e9, 256, 4096, 80 * gib, 5120, 5.23e9, 50},
		"h200":    {1.98e9, 1.83e9, 256, 4096, 141e9, 6144, 6.25e9, 50},
		"a100":    {1.41e9, 1.41e9, 128, 2048, 80 * gib, 5120, 3.186e9, 40},
		"rtx4090": {2.52e9, 2.52e9, 256, 512, 24 * gib, 384, 21e9, 72},
		"rtx3060": {1.777e9, 1.777e9, 256, 512, 12 * gib, 192, 15e9, 3},
		"rtx3050": {1.777e9, 1.777e9, 256, 512, 8 * gib, 128, 14e9, 2},
		"t4":      {1.59e9, 1.59e9, 128, 1024, 16 * gib, 256, 10e9, 4},
		"gtx1650": {1.665e9, 1.665e9, 128, 128, 4 * gib, 128, 8e9, 1},
	}
	if len(chips) != len(GPUs) {
		t.Errorf("got %d chips for %d GPUs", len(chips), len(GPUs))
	}
	for _, g := range GPUs {
		c := chips[g.Name]
		near := func(what string, got, want float64) {
			if math.Abs(got/want-1) > 0.01 {
				t.Errorf("%s: %s: got %g, want %g", g.Name, what, got, want)
			}
		}
		processors := float64(g.Multiprocessors)
		near("f32", g.F32, processors*c.f32Clock*c.f32)
		near("f16", g.F16, processors*c.tensorClock*c.tensor)
		if g.ISA >= "sm_80" {
			near("bf16", g.BF16, g.F16)
		} else if g.BF16 != 0 {
			t.Errorf("%s: %s with bf16 at %g FLOP/s", g.Name, g.ISA, g.BF16)
		}
		near("bandwidth", g.BytesPerSecond, c.bus*c.bitsPerSecond/8)
		near("L2 cache", float64(g.L2Bytes), c.caches*mib)
		if part := float64(g.MemoryBytes) / c.most; part < 0.9 || part > 1.07 || g.Model == "" || g.Source == "" {
			t.Errorf("got %+v with memory of %g bytes", g, c.most)
		}
	}
}

// Package cuda computes attention without tensor cores for f32, and on GPUs below sm_80 (cuda/src/attention_tensor.cu).
func TestAttentionWithoutTensorCoresIsNoMeasuredKind(t *testing.T) {
	attention := func(gpu string, dt tensor.DType, p float64) (forward, backward Time) {
		t.Helper()
		g, op := named(t, gpu), device.Attention{Heads: 12, Packed: true, P: p}
		in := []device.TensorSpec{device.Spec(dt, 8, 1024, 3*768)}
		if p > 0 {
			in = append(in, device.Spec(tensor.I64, 8), device.Spec(tensor.U32, 2))
		}
		out, err := op.Infer(in)
		if err != nil {
			t.Fatal(err)
		}
		if forward, err = g.Predict(op, in, out, Options{}); err != nil {
			t.Fatal(err)
		}
		in = append([]device.TensorSpec{out[0], out[0], out[1]}, in...)
		diff := device.AttentionDiff{Attention: op}
		if out, err = diff.Infer(in); err != nil {
			t.Fatal(err)
		}
		if backward, err = g.Predict(diff, in, out, Options{}); err != nil {
			t.Fatal(err)
		}
		return forward, backward
	}
	for _, c := range []struct {
		gpu   string
		dt    tensor.DType
		p     float64
		kind  string
		whole bool // with tensor cores
	}{
		{"h100", tensor.BF16, 0, "", true}, {"h100", tensor.BF16, 0.1, ", dropout", true},
		{"h100", tensor.F32, 0, ", scalar", false}, {"h100", tensor.F32, 0.1, ", scalar", false},
		{"rtx3060", tensor.F16, 0, "", true}, {"t4", tensor.F16, 0, ", scalar", false},
		{"gtx1650", tensor.F16, 0.1, ", scalar", false},
	} {
		forward, backward := attention(c.gpu, c.dt, c.p)
		for _, x := range []struct {
			name string
			Time
		}{{"attention", forward}, {"attention_diff", backward}} {
			if x.Kind != x.name+c.kind || x.Like != x.name || x.Measured != (c.kind == "") {
				t.Errorf("%+v: got %+v", c, x)
			}
			if speed := float64(x.FLOPs) / x.Seconds; !c.whole && speed > named(t, c.gpu).F32 {
				t.Errorf("%+v: %s: got %g FLOP/s, want less than the rate of f32", c, x.name, speed)
			}
		}
	}
}

// Only if its operands are in the L2 cache, an op may have an efficiency above 1.
func TestOperandsBeyondTheCacheTakeTheirLimit(t *testing.T) {
	for _, c := range []struct {
		gpu    string
		tokens int
		whole  bool
	}{{"h100", 8192, true}, {"h100", 16 * 8192, false}, {"rtx3060", 8192, false}} {
		op := device.LayerNorm{}
		in := []device.TensorSpec{device.Spec(tensor.BF16, c.tokens, 768), device.Spec(tensor.F32, 768),
			device.Spec(tensor.F32, 768)}
		out, err := op.Infer(in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := named(t, c.gpu).Predict(op, in, out, Options{})
		if err != nil || (got.Seconds-launchTime < 0.99*got.LimitSeconds) != c.whole {
			t.Errorf("%+v: got %+v, %v", c, got, err)
		}
	}
}

func TestPredictionsFollowTheSlowerOfArithmeticAndTraffic(t *testing.T) {
	h100, turing := named(t, "h100"), named(t, "gtx1650")
	square := func(dt tensor.DType, n int) []device.TensorSpec {
		return []device.TensorSpec{device.Spec(dt, n, n), device.Spec(dt, n, n)}
	}
	for _, c := range []struct {
		name  string
		gpu   GPU
		op    device.Op
		in    []device.TensorSpec
		limit float64
		kind  string
	}{
		{"products of bf16", h100, device.Linear{}, square(tensor.BF16, 8192), 2 * math.Pow(8192, 3) / 989.4e12, "linear"},
		{"products of f32", h100, device.Linear{}, square(tensor.F32, 8192), 2 * math.Pow(8192, 3) / 66.9e12, "linear"},
		{"products of f16", turing, device.Linear{}, square(tensor.F16, 8192), 2 * math.Pow(8192, 3) / 2.98e12, "linear"},
		{"traffic", h100, device.Binary{}, square(tensor.BF16, 8192), 3 * 2 * 8192 * 8192 / 3.35e12, "binary"},
		{"a similar op", h100, device.Unary{Func: device.ReLU}, square(tensor.BF16, 8192)[:1],
			2 * 2 * 8192 * 8192 / 3.35e12, "binary"},
	} {
		out, err := c.op.Infer(c.in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.gpu.Predict(c.op, c.in, out, Options{})
		k, _ := find(c.kind)
		if want := k.Fixed + c.limit/k.Efficiency; err != nil || math.Abs(got.LimitSeconds/c.limit-1) > 1e-9 ||
			math.Abs(got.Seconds/want-1) > 1e-9 || got.Measured != (c.op.Kind() == c.kind) {
			t.Errorf("%s: got %+v, %v, want %g s at a limit of %g s", c.name, got, err, want, c.limit)
		}
	}
	in := square(tensor.BF16, 16)
	if _, err := turing.Predict(device.Linear{}, in, in[:1], Options{}); err == nil {
		t.Error("bf16 products on a GPU without them: no error")
	}
}

// Arithmetic determines the time of attention kernels, even if the limit comes from the traffic.
func TestShortAttentionHasLessArithmetic(t *testing.T) {
	seconds := func(n, tokens int) float64 {
		op := device.Attention{Heads: 12, Packed: true}
		in := []device.TensorSpec{device.Spec(tensor.BF16, n, tokens, 3*768)}
		out, err := op.Infer(in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := named(t, "h100").Predict(op, in, out, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Seconds
	}
	if long, short := seconds(8, 1024), seconds(64, 128); short > long/4 {
		t.Errorf("attention over 8 x 1024 tokens: %g s, over 64 x 128 tokens: %g s; want at most a quarter", long,
			short)
	}
}

func TestNarrowGradientsAndFewChannelsAreKindsOfTheirOwn(t *testing.T) {
	image, gradient := device.Spec(tensor.BF16, 8, 64, 56, 56), device.Spec(tensor.BF16, 8, 64, 56, 56)
	first, f32 := device.Spec(tensor.BF16, 8, 3, 56, 56), device.Spec(tensor.F32, 8, 64, 56, 56)
	weights := func(channels int) []device.TensorSpec {
		return []device.TensorSpec{device.Spec(tensor.F32, 64, channels, 3, 3)}
	}
	h100 := named(t, "h100")
	for _, c := range []struct {
		in     []device.TensorSpec
		out    []device.TensorSpec
		groups int
		o      Options
		want   string
	}{
		{[]device.TensorSpec{image, gradient}, weights(64), 1, Options{}, "conv2d_diff_weights"},
		{[]device.TensorSpec{image, gradient}, weights(1), 64, Options{}, "conv2d_diff_weights"}, // depthwise
		{[]device.TensorSpec{first, gradient}, weights(3), 1, Options{}, "conv2d_diff_weights, few channels"},
		{[]device.TensorSpec{image, gradient}, weights(64), 1, Options{NarrowGradients: true},
			"conv2d_diff_weights, 16 bits"},
		{[]device.TensorSpec{first, gradient}, weights(3), 1, Options{NarrowGradients: true},
			"conv2d_diff_weights, 16 bits, few channels"},
		{[]device.TensorSpec{f32, f32}, weights(64), 1, Options{NarrowGradients: true}, "conv2d_diff_src"},
	} {
		op := device.Conv2DDiffWeights{Conv2D: device.Conv2D{Groups: c.groups}}
		k, _, measured := h100.kindOf(op, c.in, c.out, c.o)
		if k.Name != c.want || measured != (c.want != "conv2d_diff_src") {
			t.Errorf("%v, %+v: got %s, want %s", c.in, c.o, k.Name, c.want)
		}
	}
}

func TestTheDeviceCompilesLikeTheGPU(t *testing.T) {
	dev, err := Open(named(t, "gtx1650"))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if info := dev.Info(); info.Kind != "cuda" || info.FastBF16 || !info.Modelled || !info.Behind ||
		info.MemoryBytes != gib*381/100 || info.FreeBytes != info.MemoryBytes-gib {
		t.Errorf("got %+v", info)
	}
	// The mask has one bit per element. If the channels do not fill units of 16 bytes, it has one byte per element.
	for channels, want := range map[int]int64{64: 2 * 64 * 9 / 8, 63: 2 * 63 * 9} {
		image, perChannel := device.Spec(tensor.BF16, 2, channels, 3, 3), device.Spec(tensor.F32, channels)
		statistics := device.Spec(tensor.F32, 1, channels)
		op := device.BatchNormApply{ReLU: true, Add: true}
		in := []device.TensorSpec{image, statistics, statistics, perChannel, perChannel, image}
		out, err := op.Infer(in)
		if err != nil {
			t.Fatal(err)
		}
		k, err := dev.Compile(op, in, out)
		if err != nil {
			t.Fatal(err)
		}
		if got := k.Out()[1].Size(); got != want {
			t.Errorf("mask of %d channels: got %d bytes, want %d", channels, got, want)
		}
	}
	op := device.Attention{Heads: 2, Packed: true}
	for channels, want := range map[int]error{256: nil, 258: device.ErrUnsupported} {
		in := []device.TensorSpec{device.Spec(tensor.F16, 1, 8, 3*channels)}
		out, err := op.Infer(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dev.Compile(op, in, out); !errors.Is(err, want) {
			t.Errorf("two heads with %d channels: got %v, want %v", channels, err, want)
		}
	}
}

// The memory of the loss over a vocabulary: logits of blocks of rows, padded copies (cuda/src/linear_loss.cu).
func TestLogitsHaveLimitedMemory(t *testing.T) {
	const padded, channels = 50304, 768
	for _, c := range []struct {
		gpu    string
		op     device.Op
		rows   int
		logits int64 // of a block
		copies int64
	}{
		{"h100", device.LinearCrossEntropyBoth{}, 8192, 8192 * 2, 64 * channels * 4},
		{"h100", device.LinearCrossEntropyBoth{}, 16384, 8192 * 2, 64 * channels * 4}, // at most 1 GiB
		{"gtx1650", device.LinearCrossEntropyBoth{}, 8192, 2048 * 2, 64 * channels * 4},
		{"h100", device.LinearCrossEntropy{}, 8192, 4096 * 4, 0},
	} {
		dev, err := Open(named(t, c.gpu))
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		in := []device.TensorSpec{device.Spec(tensor.BF16, c.rows, channels), device.Spec(tensor.BF16, 50257, channels),
			device.Spec(tensor.I32, c.rows)}
		if _, both := c.op.(device.LinearCrossEntropyBoth); both {
			in = append(in, device.Spec(tensor.F32, 1))
		}
		out, err := c.op.Infer(in)
		if err != nil {
			t.Fatal(err)
		}
		k, err := dev.Compile(c.op, in, out)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := k.Workspace(), c.logits*padded+padded*channels*2+c.copies; got != want {
			t.Errorf("%s: %s of %d rows: got a workspace of %d bytes, want %d", c.gpu, c.op.Kind(), c.rows, got, want)
		}
	}
}
