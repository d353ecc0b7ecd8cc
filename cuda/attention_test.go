package cuda_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/native"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// conform runs the cases of the conformance suite that match, for one type. At least `least` cases must run and pass.
func conform(t *testing.T, lib *native.Library, match string, dt tensor.DType, least int) {
	t.Helper()
	cases, err := conformance.ParseMatch(match)
	if err != nil {
		t.Fatal(err)
	}
	result := conformance.Run("shim", func(t conformance.T) {
		devicetest.Run(t, capturing(lib), devicetest.Caps{Types: []tensor.DType{dt}})
	}, conformance.Options{Match: cases, Done: func(path []string, r *conformance.Result) {
		if r.Status != conformance.Passed && len(r.Output) > 0 {
			t.Errorf("%s: %s", strings.Join(path, "/"), strings.Join(r.Output, "\n"))
		}
	}})
	if passed, failed, skipped := result.Count(); passed < least || failed+skipped > 0 {
		t.Errorf("got %d cases that passed, %d that failed, %d skipped, want at least %d, 0, 0", passed, failed,
			skipped, least)
	}
}

// GPUs before compute capability 8.0 have no tensor cores for bf16 and mma.m16n8k16. They compute attention of 16-bit
// types in f32. TestKernelsConformOnTheHost checks the f32 kernels.
func TestAttentionConformsWithoutTensorCores(t *testing.T) {
	t.Setenv("HETERO_SHIM_ARCH", "75")
	conform(t, loadShim(t), "/values/transformer/^attention(_diff)? ", tensor.BF16, 20)
}

// Kernels must not query all properties of a device: CUDA needs milliseconds for such a query, and a model compiles
// many kernels.
func TestKernelsDoNotQueryTheDevice(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	queries := filepath.Join(t.TempDir(), "queries")
	t.Setenv("HETERO_SHIM_QUERIES", queries)
	dev := open(t, freshShim(t, fakeCublasLt))
	opened, err := os.ReadFile(queries)
	if err != nil || len(opened) == 0 {
		t.Fatalf("opening the device: got %q and %v, want at least one query", opened, err)
	}
	const n, tokens, heads, channels = 2, 8, 2, 16
	qkv := device.Spec(tensor.BF16, n, tokens, 3*channels)
	for _, compile := range []func() (device.Kernel, error){
		func() (device.Kernel, error) {
			return compiled(dev, device.Attention{Heads: heads, Packed: true, Causal: true}, qkv)
		},
		func() (device.Kernel, error) { return linear(dev) },
	} {
		k, err := compile()
		if err != nil {
			t.Fatal(err)
		}
		k.Close()
	}
	if after, err := os.ReadFile(queries); err != nil || len(after) != len(opened) {
		t.Errorf("after compiling attention and a linear layer: got queries %q and %v, want %q", after, err, opened)
	}
}

// The kernel overwrites 16-bit logits with their gradient. No lane of a warp may write before all other lanes have
// read. The shim runs the threads in descending order.
func TestLogitsAreReadBeforeTheyAreOverwritten(t *testing.T) {
	t.Setenv("HETERO_SHIM_REVERSED", "1")
	conform(t, loadShim(t), "/values/transformer/^linear_cross_entropy_diff ", tensor.BF16, 10)
}

// The gradient overwrites the logits of a part, so it needs no memory of its own. On the host, a part has 256 rows of
// 1,024 classes.
func TestGradientOfLogitsHasNoMemoryOfItsOwn(t *testing.T) {
	dev := open(t, loadShim(t))
	const rows, channels, classes = 256, 16, 1024
	k, err := compiled(dev, device.LinearCrossEntropyDiff{}, device.Spec(tensor.BF16, rows, channels),
		device.Spec(tensor.BF16, classes, channels),
		device.Spec(tensor.I32, rows), device.Spec(tensor.F32, rows), device.Spec(tensor.F32, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if limit := int64(rows*classes*4 + rows*classes/2); k.Workspace() > limit {
		t.Errorf("workspace: got %d bytes, want at most %d: logits in f32, and sums over parts", k.Workspace(), limit)
	}
}
