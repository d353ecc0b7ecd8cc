package cuda_test

import (
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// The tensor cores of GPUs before compute capability 8.0 lack bf16 and mma.m16n8k16. These GPUs compute attention of
// 16-bit types in f32, as TestKernelsConformOnTheHost checks for f32 inputs.
func TestAttentionConformsWithoutTensorCores(t *testing.T) {
	t.Setenv("HETERO_SHIM_ARCH", "75")
	lib := loadShim(t)
	match, err := conformance.ParseMatch("/values/transformer/^attention(_diff)? ")
	if err != nil {
		t.Fatal(err)
	}
	result := conformance.Run("sm_75", func(t conformance.T) {
		devicetest.Run(t, capturing(lib), devicetest.Caps{Types: []tensor.DType{tensor.BF16}})
	}, conformance.Options{Match: match, Done: func(path []string, r *conformance.Result) {
		if r.Status != conformance.Passed && len(r.Output) > 0 {
			t.Errorf("%s: %s", strings.Join(path, "/"), strings.Join(r.Output, "\n"))
		}
	}})
	if passed, failed, skipped := result.Count(); passed < 20 || failed+skipped > 0 {
		t.Errorf("got %d cases that passed, %d that failed, %d skipped, want at least 20, 0, 0", passed, failed, skipped)
	}
}
