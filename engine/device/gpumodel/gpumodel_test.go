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

func TestDataSheetsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range GPUs {
		if seen[g.Name] || g.Model == "" || g.Source == "" || !strings.HasPrefix(g.ISA, "sm_") || g.F32 < 1e12 ||
			g.F16 < g.F32 || g.BF16 != 0 && g.BF16 != g.F16 || g.BytesPerSecond < 1e11 || g.BytesPerSecond > 1e13 ||
			g.Multiprocessors < 1 || g.L2Bytes < mib || g.MemoryBytes < gib {
			t.Errorf("got %+v", g)
		}
		seen[g.Name] = true
		if fast := g.ISA >= "sm_80"; fast != (g.BF16 > 0) || fast != (g.TF32 > 0) {
			t.Errorf("%s: %s with bf16 at %g and tf32 at %g FLOP/s", g.Name, g.ISA, g.BF16, g.TF32)
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

// Kernels of attention are bound by arithmetic even where the limit is the traffic.
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
	for _, c := range []struct {
		in   []device.TensorSpec
		out  []device.TensorSpec
		o    Options
		want string
	}{
		{[]device.TensorSpec{image, gradient}, weights(64), Options{}, "conv2d_diff_weights"},
		{[]device.TensorSpec{first, gradient}, weights(3), Options{}, "conv2d_diff_weights, few channels"},
		{[]device.TensorSpec{image, gradient}, weights(64), Options{NarrowGradients: true}, "conv2d_diff_weights, 16 bits"},
		{[]device.TensorSpec{first, gradient}, weights(3), Options{NarrowGradients: true},
			"conv2d_diff_weights, 16 bits, few channels"},
		{[]device.TensorSpec{f32, f32}, weights(64), Options{NarrowGradients: true}, "conv2d_diff_src"},
	} {
		k, measured := kindOf(device.Conv2DDiffWeights{}, c.in, c.out, c.o)
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
		info.MemoryBytes != 4*gib || info.FreeBytes != 3*gib {
		t.Errorf("got %+v", info)
	}
	// a mask of one bit per element, or of one byte if the channels are no units of 16 bytes
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
