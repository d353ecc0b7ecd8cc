package train

import (
	"errors"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/dry"
	"github.com/hetero-train/hetero-train/engine/optim"
)

// The footprint of a dry device must equal the memory that the real device allocates, to the byte.
func TestFootprintIsWhatTrainingTakes(t *testing.T) {
	for _, open := range []func(*testing.T) device.Device{openReference, openCPU} {
		dev := open(t)
		t.Run(dev.Info().Kind, func(t *testing.T) {
			for _, c := range []struct {
				name   string
				change func(*ReplicaOptions)
			}{
				{"sgd", func(*ReplicaOptions) {}},
				{"adamw in two micro-batches", func(o *ReplicaOptions) {
					o.Optimizer, o.Accumulation = optim.Options{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}, 2
				}},
				{"averages and norms", func(o *ReplicaOptions) { o.Average, o.Norms = averagedOptions(1).Average, true }},
				{"groups of batch normalisation", func(o *ReplicaOptions) { o.GhostGroup = 2 }},
			} {
				o := testOptions()
				c.change(&o)
				planned, err := NewReplica(dry.New(dev, 0), o)
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				f, err := planned.Footprint(o.microBatch())
				if err != nil {
					t.Fatal(err)
				}
				before, _ := dev.Memory()
				real, err := NewReplica(dev, o)
				if err != nil {
					t.Fatal(err)
				}
				after, _ := dev.Memory()
				if got := planned.PredictedBytes(); got != after-before || f.Bytes() != got || real.PredictedBytes() != got {
					t.Errorf("%s: planned %d bytes, footprint %d, the device gave out %d", c.name, got, f.Bytes(), after-before)
				}
				u := f.Usage
				if sum := u.Activations + u.Copies + u.Inputs + u.Workspace + u.Gaps; u.Gaps < 0 || u.Activations <= 0 || u.Inputs <= 0 || sum != f.Arena || u.At == "" {
					t.Errorf("%s: usage %+v of %d bytes", c.name, u, f.Arena)
				}
				if extra := c.name == "averages and norms"; (f.Averages >= f.Weights) != extra || (f.Norms >= f.Weights) != extra || f.Other < 0 || f.Other > f.Weights {
					t.Errorf("%s: weights of %d bytes, averages %d, norms %d, other %d", c.name, f.Weights, f.Averages, f.Norms, f.Other)
				}
				if f.ForwardFLOPs <= 0 || f.BackwardFLOPs < f.ForwardFLOPs {
					t.Errorf("%s: forward %d, backward %d operations", c.name, f.ForwardFLOPs, f.BackwardFLOPs)
				}
				if err := errors.Join(planned.Close(), real.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestLargestFitIsTheMostThatFits(t *testing.T) {
	dev := openReference(t)
	for _, group := range []int{0, 4} {
		o := testOptions()
		o.GhostGroup = group
		r, err := NewReplica(dry.New(dev, 0), o)
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
		// A device with this much memory holds n samples, but no more.
		o.BatchSize = n
		if group == 0 {
			holds, err := NewReplica(dry.New(dev, limit+f.Other), o)
			if err != nil {
				t.Fatal(err)
			}
			if err := holds.Close(); err != nil {
				t.Error(err)
			}
			o.BatchSize = 2 * n
			var tooLarge *MemoryError
			if _, err := NewReplica(dry.New(dev, limit), o); !errors.As(err, &tooLarge) {
				t.Errorf("got %v, want too large", err)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
