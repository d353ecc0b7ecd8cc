package cuda_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cuda"
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
		devicetest.Run(t, capturing(lib), devicetest.Caps{Types: []tensor.DType{dt}, Lacks: cuda.Lacks})
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

// The gradient of logits overwrites the logits. No thread of a block may write before the other threads have read,
// whichever thread runs first.
func TestLogitsAreReadBeforeTheyAreOverwritten(t *testing.T) {
	t.Setenv("HETERO_SHIM_REVERSED", "1")
	conform(t, loadShim(t), "/values/transformer/^linear_cross_entropy_both ", tensor.BF16, 10)
}

// The memory for logits is limited (cuda/src/linear_loss.cu): on the host to 256 KiB, and to a sixteenth of the memory.
// Blocks have a multiple of 64 rows. The gradient of the logits needs no further memory.
func TestLogitsHaveLimitedMemory(t *testing.T) {
	const channels, classes, unit, products = 16, 1000, 64, 1 << 16
	for _, c := range []struct {
		kib         string // of the GPU
		rows, block int
	}{{"65536", 100, 100}, {"65536", 1100, 128}, {"2048", 1100, 64}, {"512", 1100, 64}} {
		t.Setenv("HETERO_SHIM_MEMORY_KIB", c.kib)
		dev := open(t, loadShim(t))
		k, err := compiled(dev, device.LinearCrossEntropyBoth{}, device.Spec(tensor.BF16, c.rows, channels),
			device.Spec(tensor.BF16, classes, channels), device.Spec(tensor.I32, c.rows), device.Spec(tensor.F32, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		padded := (classes + unit - 1) / unit * unit
		logits, copies := int64(c.block*padded*2), int64(padded*channels*2+unit*channels*4)
		if got := k.Workspace() - logits - copies; got < 0 || got > products {
			t.Errorf("%d rows, memory of %s KiB: got a workspace of %d bytes, want %d for the logits of %d rows, %d for copies, and at most %d for products",
				c.rows, c.kib, k.Workspace(), logits, c.block, copies, products)
		}
	}
}
