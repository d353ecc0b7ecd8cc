package train

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/dry"
	"github.com/hetero-train/hetero-train/engine/models/gpt2"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/task/language"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// The footprint of a dry device must equal the memory that the real device allocates, to the byte.
func TestFootprintIsWhatTrainingTakes(t *testing.T) {
	for _, open := range []func(*testing.T) device.Device{openReference, openCPU} {
		dev := open(t)
		t.Run(dev.Info().Kind, func(t *testing.T) {
			for _, c := range []struct {
				name   string
				change func(*replica.Options)
			}{
				{"sgd", func(*replica.Options) {}},
				{"adamw in two micro-batches", func(o *replica.Options) {
					o.Optimizer, o.Accumulation = optim.Options{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}, 2
				}},
				{"averages and norms", func(o *replica.Options) {
					o.Average, o.Norms = averagedOptions(1).Average, true
				}},
				{"groups of batch normalisation", func(o *replica.Options) { o.GhostGroup = 2 }},
			} {
				o := testOptions()
				c.change(&o)
				planner := dry.New(dev, 0)
				planned, err := replica.New(planner, o)
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				f, err := planned.Footprint(o.MicroBatch())
				if err != nil {
					t.Fatal(err)
				}
				before, _ := dev.Memory()
				actual, err := replica.New(dev, o)
				if err != nil {
					t.Fatal(err)
				}
				after, _ := dev.Memory()
				if got := planned.PredictedBytes(); got != after-before || f.Bytes() != got ||
					actual.PredictedBytes() != got {
					t.Errorf("%s: planned %d bytes, footprint %d, the device gave out %d", c.name, got, f.Bytes(),
						after-before)
				}
				u := f.Usage
				if sum := u.Activations + u.Copies + u.Inputs + u.Workspace + u.Gaps; u.Gaps < 0 ||
					u.Activations <= 0 || u.Inputs <= 0 || sum != f.Arena || u.At == "" {
					t.Errorf("%s: usage %+v of %d bytes", c.name, u, f.Arena)
				}
				if extra := c.name == "averages and norms"; (f.Averages >= f.Weights) != extra ||
					(f.Norms >= f.Weights) != extra || f.Other < 0 || f.Other > f.Weights {
					t.Errorf("%s: weights of %d bytes, averages %d, norms %d, other %d", c.name, f.Weights, f.Averages,
						f.Norms, f.Other)
				}
				if f.ForwardFLOPs <= 0 || f.BackwardFLOPs < f.ForwardFLOPs {
					t.Errorf("%s: forward %d, backward %d operations", c.name, f.ForwardFLOPs, f.BackwardFLOPs)
				}
				if err := errors.Join(planned.Close(), planner.Close(), actual.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// If a device chooses kernels by timing, it chooses while the plan is compiled. The plan then has the same layouts and
// workspaces as in a run.
func TestFootprintContainsTheChosenKernels(t *testing.T) {
	dev := openCPU(t)
	if dev.Info().ISA != "avx512_bf16" {
		needtest.Missing(t, "bf16", dev.Info().ISA+": each op has one kernel")
	}
	t.Setenv("HETERO_CPU_KERNELS", "")
	size := gpt2.Size{Vocabulary: 512, Positions: 64, Layers: 1, Heads: 4, Channels: 128}
	o := languageOptions(0)
	o.Task, o.Compute, o.BatchSize = language.Predict{Model: gpt2.Build(size, gpt2.Options{}), Length: size.Positions},
		tensor.BF16, 8
	var predicted []int64
	for _, times := range []string{"tiles=10,onednn=20,rows=20", "tiles=20,onednn=10,rows=10"} {
		cache := t.TempDir()
		t.Setenv("XDG_CACHE_HOME", cache)
		t.Setenv("HETERO_CPU_TIMES", times)
		planner := dry.New(dev, 0)
		planned, err := replica.New(planner, o)
		if err != nil {
			t.Fatal(err)
		}
		if files, err := filepath.Glob(filepath.Join(cache, "hetero-train", "choices", "*.tsv")); err != nil ||
			len(files) != 1 {
			t.Errorf("%s: the plan stored %q, %v, want one file of choices", times, files, err)
		}
		before, _ := dev.Memory()
		actual, err := replica.New(dev, o)
		if err != nil {
			t.Fatal(err)
		}
		after, _ := dev.Memory()
		predicted = append(predicted, planned.PredictedBytes())
		if got := planned.PredictedBytes(); got != after-before {
			t.Errorf("%s: planned %d bytes, the device gave out %d", times, got, after-before)
		}
		if err := errors.Join(planned.Close(), planner.Close(), actual.Close()); err != nil {
			t.Error(err)
		}
	}
	if predicted[0] == predicted[1] {
		t.Errorf("both plans need %d bytes, want different ones: the kernels have other layouts and workspaces",
			predicted[0])
	}
}

func TestLargestFitIsTheMostThatFits(t *testing.T) {
	dev := openReference(t)
	for _, group := range []int{0, 4} {
		o := testOptions()
		o.GhostGroup = group
		planner := dry.New(dev, 0)
		r, err := replica.New(planner, o)
		if err != nil {
			t.Fatal(err)
		}
		unit := max(group, 1)
		f, err := r.Footprint(11 * unit)
		if err != nil {
			t.Fatal(err)
		}
		limit := f.Bytes() + 1
		n, err := r.LargestFit(limit, 1<<20)
		if err != nil || n != 11*unit {
			t.Errorf("groups of %d: got %d samples, %v; want %d", group, n, err, 11*unit)
		}
		if n, err := r.LargestFit(limit, 5*unit+unit/2); err != nil || n != 5*unit {
			t.Errorf("groups of %d: got %d samples, %v; want the most that is asked about, %d", group, n, err, 5*unit)
		}
		if n, err := r.LargestFit(f.Fixed(), 1<<20); err != nil || n != 0 {
			t.Errorf("groups of %d: got %d samples, %v; want none in the memory of the weights", group, n, err)
		}
		// With this memory limit, a device must hold n samples, but not more.
		o.BatchSize = n
		if group == 0 {
			large := dry.New(dev, limit+f.Other)
			holds, err := replica.New(large, o)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(holds.Close(), large.Close()); err != nil {
				t.Error(err)
			}
			o.BatchSize = 2 * n
			small := dry.New(dev, limit)
			var tooLarge *replica.MemoryError
			if _, err := replica.New(small, o); !errors.As(err, &tooLarge) {
				t.Errorf("got %v, want too large", err)
			}
			if err := small.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(r.Close(), planner.Close()); err != nil {
			t.Error(err)
		}
	}
}
