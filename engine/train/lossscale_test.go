package train

import (
	"bytes"
	"context"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

func halfOptions() replica.Options {
	o := testOptions()
	o.Compute, o.Norms = tensor.F16, true
	return o
}

// TestHalfPrecisionFollowsF32 checks that no figure of a run contains the loss scale. Losses and norms may differ from
// those of f32 only by f16's rounding, 2^-11 for each layer.
func TestHalfPrecisionFollowsF32(t *testing.T) {
	t.Run("reference", func(t *testing.T) { checkHalf(t, openReference) })
	t.Run("kernels of the GPU", func(t *testing.T) { checkHalf(t, openShim) })
}

func checkHalf(t *testing.T, open func(*testing.T) device.Device) {
	const near = 0.02
	o := halfOptions()
	half := start(context.Background(), t, open(t), t.TempDir(), o, &recorder{}, func(opts *Options) {
		opts.NormsInterval = 4
	})
	o.Compute = tensor.F32
	whole := start(context.Background(), t, open(t), t.TempDir(), o, &recorder{}, func(opts *Options) {
		opts.NormsInterval = 4
	})
	if half.err != nil || whole.err != nil {
		t.Fatal(half.err, whole.err)
	}
	for i := range whole.steps {
		h, w := half.steps[i], whole.steps[i]
		if !h.Updated || h.Scale != 1<<16 || w.Scale != 1 {
			t.Fatalf("step %d: got scales %v, %v, updated %v", i+1, h.Scale, w.Scale, h.Updated)
		}
		if math.Abs(half.losses[i]-whole.losses[i]) > near*whole.losses[i] ||
			math.Abs(h.GradNorm-w.GradNorm) > near*w.GradNorm {
			t.Errorf("step %d: loss %v, norm %v in f16, %v, %v in f32", i+1, half.losses[i], h.GradNorm,
				whole.losses[i], w.GradNorm)
		}
	}
	// norms returns the norms of the last step in which they were measured.
	norms := func(s session) map[string]float64 {
		m := map[string]float64{}
		for _, p := range s.steps[7].Norms {
			m[p.Name] = p.Gradient
		}
		return m
	}
	h, w := norms(half), norms(whole)
	for name, want := range w {
		if got := h[name]; math.Abs(got-want) > 0.1*want {
			t.Errorf("%s: gradient %v in f16, %v in f32", name, got, want)
		}
	}
	if len(w) == 0 {
		t.Error("no parameter was measured")
	}
}

func TestAScaleThatIsTooLargeIsLoweredAndTheStepChangesNothing(t *testing.T) {
	first := int64(1 << 24)
	rec := &recorder{}
	var values [][]byte
	s := start(context.Background(), t, openReference(t), t.TempDir(), halfOptions(), rec, func(opts *Options) {
		if err := opts.Replica.LossScale().Set(float64(first), 0); err != nil {
			t.Fatal(err)
		}
		keep := func() { values = append(values, bytes.Clone(opts.Replica.State().Values.(device.Buffer).Host())) }
		keep()
		rec.after = func(int64) { keep() }
		opts.Schedule = optim.Schedule{Name: "constant", Base: 0.01}
	})
	if s.err != nil || s.result.RollBacks != 0 {
		t.Fatalf("got %v and %d roll-backs, want a run to its end", s.err, s.result.RollBacks)
	}
	skipped := 0
	for i, step := range rec.steps {
		if changed := !bytes.Equal(values[i], values[i+1]); changed != step.Updated || step.Lowered == step.Updated {
			t.Errorf("step %d: parameters changed %v, updated %v, lowered %v", i+1, changed, step.Updated, step.Lowered)
		}
		if want := float64(first >> skipped); step.Scale != want {
			t.Errorf("step %d: got scale %v, want %v", i+1, step.Scale, want)
		}
		if !step.Updated {
			skipped++
		}
	}
	if skipped < 3 || skipped == len(rec.steps) || s.result.Skipped != int64(skipped) { // above NaNPatience
		t.Errorf("skipped %d steps of %d, counted %d; want some", skipped, len(rec.steps), s.result.Skipped)
	}
}

func TestTheLossScaleComesBackWithACheckpoint(t *testing.T) {
	dir := t.TempDir()
	first := start(context.Background(), t, openReference(t), dir, halfOptions(), &recorder{}, func(opts *Options) {
		if err := opts.Replica.LossScale().Set(1<<12, 100); err != nil {
			t.Fatal(err)
		}
		opts.Steps = 5
	})
	if first.err != nil {
		t.Fatal(first.err)
	}
	rec := &recorder{}
	if next := start(context.Background(), t, openReference(t), dir, halfOptions(), rec, nil); next.err != nil ||
		rec.steps[0].Scale != 1<<12 ||
		next.replica.LossScale().GoodSteps != 100+testSteps {
		t.Errorf("got %v, scale %v, then %+v, want to go on at 4096 after 105 good steps", next.err, rec.steps[0].Scale,
			*next.replica.LossScale())
	}
}
