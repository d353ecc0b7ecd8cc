package train

import (
	"bytes"
	"context"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// typesTolerance limits the relative difference between the losses of a run with bf16 and a run with f32. bf16 rounds
// activations to a relative error of 2^-9. These networks have 5 to 9 successive roundings, about 1 % in the worst
// case, and 11 steps accumulate them. If a gradient is scaled twice or not at all, the error is a factor of 65536.
const typesTolerance = 0.03

// After every step, the ranks compare hashes of parameters and statistics. If the run completes, the replicas are
// therefore bit-equal.
func TestRanksMayComputeInUnlikeTypes(t *testing.T) {
	wide := testOptions()
	use(&wide, simplecnn.Build(simplecnn.Options{Channels: []int{16, 32}, Dropout: 0.2}))
	accumulated := testOptions()
	accumulated.Accumulation = 2
	// At a rate of 0.05, the loss jumps, which amplifies differences.
	slow := func(_ int, _ context.CancelFunc, o *Options, _ *recorder) { o.Schedule.Base = 0.005 }
	three := []tensor.DType{tensor.BF16, tensor.F16, tensor.F32}
	for _, c := range []struct {
		name  string
		open  func(*testing.T) device.Device
		types []tensor.DType
		crew  crew
	}{
		{"bf16, f16, f32", openReference, three, crew{options: testOptions(), shares: []int{1, 3, 2}, sync: true,
			cap: 200}},
		{"f32 leads", openReference, []tensor.DType{tensor.F32, tensor.F16},
			crew{options: testOptions(), shares: []int{4, 2}, sync: true}},
		{"each its own statistics", openReference, three,
			crew{options: testOptions(), shares: []int{2, 3, 1}, cap: 200}},
		{"micro-batches", openReference, three, crew{options: accumulated, shares: []int{1, 1, 1}, sync: true}},
		{"gradients in bf16", openReference, three, crew{options: testOptions(), shares: []int{2, 2, 2}, sync: true,
			peers: func(_ int, p *replica.Peers) { p.Wire = tensor.BF16 }}},
		{"shares that change", openReference, three, crew{options: testOptions(), shares: []int{2, 2, 2}, sync: true,
			splitter: rotating{[][]int{{1, 0, 5}, {3, 3, 0}, {0, 5, 1}}}}},
		{"a device with layouts of its own", openCPU, []tensor.DType{tensor.BF16, tensor.F32},
			crew{options: wide, shares: []int{2, 4}, sync: true, change: slow}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.open(t).Close() // may skip the test, which the goroutine of a rank must not do
			crew := c.crew
			crew.open, crew.dir = c.open, t.TempDir()
			want := pure(t, crew, tensor.F32)
			crew.dir, crew.types = t.TempDir(), c.types
			ranks := crew.start(t)
			for rank, s := range ranks {
				if s.err != nil {
					t.Fatalf("rank %d: %v", rank, s.err)
				}
				for i, loss := range s.losses {
					if !(math.Abs(loss-want.losses[i]) <= typesTolerance*want.losses[i]) {
						t.Errorf("rank %d, step %d: loss %.6g, the run in f32 has %.6g", rank, i+1, loss,
							want.losses[i])
					}
					if record := s.steps[i]; !record.Updated || record.Scale != ranks[0].steps[i].Scale {
						t.Errorf("rank %d, step %d: updated %v with scale %v, rank 0 has %v", rank, i+1, record.Updated,
							record.Scale, ranks[0].steps[i].Scale)
					}
				}
			}
		})
	}
}

// pure returns rank 0 of a crew whose ranks all compute in the type dt.
func pure(t *testing.T, c crew, dt tensor.DType) session {
	t.Helper()
	c.types = make([]tensor.DType, len(c.shares))
	for rank := range c.types {
		c.types[rank] = dt
	}
	s := c.start(t)[0]
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s
}

// A loss scale is a power of two. Scaling and unscaling must therefore not change any bit of f32 or bf16.
func TestALossScaleChangesNoBitWhereItIsNotNeeded(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16} {
		var want session
		for i, scaled := range []bool{false, true} {
			o := testOptions()
			o.Compute, o.LossScale, o.Optimizer.ClipNorm = dt, scaled, 0.5
			s := start(context.Background(), t, openReference(t), t.TempDir(), o, &recorder{}, nil)
			if s.err != nil {
				t.Fatal(s.err)
			}
			if i == 0 {
				want = s
				continue
			}
			if got := s.steps[0].Scale; got != 1<<16 {
				t.Errorf("%v: got scale %v, want 65536", dt, got)
			}
			if !bytes.Equal(s.replica.State().Values.Host(), want.replica.State().Values.Host()) {
				t.Errorf("%v: other parameters than without a scale", dt)
			}
			for step, norm := range s.norms {
				if norm != want.norms[step] {
					t.Errorf("%v, step %d: norm %v, without a scale %v", dt, step+1, norm, want.norms[step])
				}
			}
		}
	}
}

func TestAnOverflowOfOneRankSkipsTheStepOfAll(t *testing.T) {
	c := crew{open: openReference, options: testOptions(), shares: []int{3, 2, 1}, sync: true, dir: t.TempDir(),
		types: []tensor.DType{tensor.F32, tensor.F16, tensor.BF16},
		change: func(_ int, _ context.CancelFunc, o *Options, _ *recorder) {
			if err := o.Replica.LossScale().Set(1<<24, 0); err != nil {
				t.Error(err)
			}
		}}
	ranks := c.start(t)
	for rank, s := range ranks {
		if s.err != nil || s.result.Skipped < 1 || s.result.Skipped >= testSteps || s.result.RollBacks != 0 {
			t.Fatalf("rank %d: got %v and %+v, want some steps skipped", rank, s.err, s.result)
		}
		for i, record := range s.steps {
			if lead := ranks[0].steps[i]; record.Updated != lead.Updated || record.Scale != lead.Scale ||
				record.Lowered == record.Updated {
				t.Errorf("rank %d, step %d: updated %v, lowered %v, scale %v, rank 0 has %v, %v, %v", rank, i+1,
					record.Updated, record.Lowered, record.Scale, lead.Updated, lead.Lowered, lead.Scale)
			}
		}
	}
}
