package gpumodel

import (
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// GPU is the data sheet of a GPU model. Rates are those of dense products that are summed in f32, in FLOP/s. 0 means
// that the GPU has no such products.
type GPU struct {
	Name            string  `json:"name"`  // name in flags
	Model           string  `json:"model"` // name of the manufacturer
	ISA             string  `json:"isa"`   // compute capability
	F32             float64 `json:"f32_flops_per_second"`
	BF16            float64 `json:"bf16_flops_per_second"`
	F16             float64 `json:"f16_flops_per_second"`
	BytesPerSecond  float64 `json:"memory_bytes_per_second"`
	Multiprocessors int     `json:"multiprocessors"`
	L2Bytes         int64   `json:"l2_bytes"`
	// about the memory that CUDA reports; firmware and error correction take the rest of the data sheet's memory
	MemoryBytes int64  `json:"memory_bytes"`
	Source      string `json:"source"` // of the other figures
	// a figure that the source does not contain, and its reason
	Assumption string `json:"assumption,omitempty"`
}

const mib, gib = 1 << 20, 1 << 30

// GPUs lists the known GPUs. Products of GeForce GPUs with f32 sums have half the rate of those with f16 sums, which
// some lists show.
var GPUs = []GPU{
	{"h100", "NVIDIA H100 80GB (SXM)", "sm_90", 66.9e12, 989.4e12, 989.4e12, 3.35e12, 132, 50 * mib, gib * 7915 / 100,
		"NVIDIA H100 Tensor Core GPU data sheet and architecture paper", ""},
	{"h200", "NVIDIA H200 141GB (SXM)", "sm_90", 66.9e12, 989.4e12, 989.4e12, 4.8e12, 132, 50 * mib, gib * 13980 / 100,
		"NVIDIA H200 Tensor Core GPU data sheet", ""},
	{"a100", "NVIDIA A100 80GB (SXM)", "sm_80", 19.5e12, 312e12, 312e12, 2.039e12, 108, 40 * mib, gib * 7915 / 100,
		"NVIDIA A100 Tensor Core GPU data sheet and architecture paper", ""},
	{"rtx4090", "NVIDIA GeForce RTX 4090", "sm_89", 82.6e12, 165.2e12, 165.2e12, 1.008e12, 128, 72 * mib,
		gib * 2365 / 100, "NVIDIA Ada GPU architecture paper", ""},
	{"rtx3060", "NVIDIA GeForce RTX 3060 12GB", "sm_86", 12.7e12, 25.5e12, 25.5e12, 360e9, 28, 3 * mib,
		gib * 1176 / 100,
		"NVIDIA's product page (3,584 cores, 1.78 GHz, 360 GB/s) and GA102 architecture paper (rates per multiprocessor)",
		""},
	{"rtx3050", "NVIDIA GeForce RTX 3050 8GB", "sm_86", 9.1e12, 18.2e12, 18.2e12, 224e9, 20, 2 * mib, gib * 779 / 100,
		"NVIDIA's product page (2,560 cores, 1.78 GHz, 224 GB/s) and GA102 architecture paper (rates per multiprocessor)",
		""},
	{"t4", "NVIDIA T4", "sm_75", 8.1e12, 0, 65e12, 320e9, 40, 4 * mib, gib * 1475 / 100, "NVIDIA T4 data sheet", ""},
	{"gtx1650", "NVIDIA GeForce GTX 1650 4GB (GDDR5)", "sm_75", 2.98e12, 0, 2.98e12, 128e9, 14, 1 * mib,
		gib * 381 / 100, "NVIDIA's product page (896 cores, 1.67 GHz, 128 GB/s)",
		"the GPU has no tensor cores, so f16 products with f32 sums have the rate of f32"},
}

// Names returns the names of all GPUs.
func Names() []string {
	names := make([]string, len(GPUs))
	for i, g := range GPUs {
		names[i] = g.Name
	}
	return names
}

// Find returns the GPU with the given name, in any case. The error lists the known names.
func Find(name string) (GPU, error) {
	for _, g := range GPUs {
		if strings.EqualFold(g.Name, name) {
			return g, nil
		}
	}
	return GPU{}, fmt.Errorf("got %q, want one of %s", name, strings.Join(Names(), ", "))
}

// rate returns the rate of products of a type, or of f32 arithmetic without products.
func (g GPU) rate(dt tensor.DType, product bool) float64 {
	switch {
	case product && dt == tensor.BF16:
		return g.BF16
	case product && dt == tensor.F16:
		return g.F16
	}
	return g.F32
}
