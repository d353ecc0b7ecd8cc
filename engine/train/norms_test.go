package train

import (
	"context"
	"math"
	"slices"
	"testing"
)

func TestNormsOfParametersMakeUpTheGlobalOne(t *testing.T) {
	o := frozenOptions()
	o.Accumulation, o.Norms = 2, true
	o.Optimizer.ClipNorm = 1e-2
	rec := &recorder{}
	var measured []int64
	off := 0.0
	rec.after = func(step int64) {
		s := rec.steps[len(rec.steps)-1]
		if s.Norms == nil {
			return
		}
		measured = append(measured, step)
		sum := 0.0
		for _, p := range s.Norms {
			sum += p.Gradient * p.Gradient
			if !(p.Weight >= 0) || !(p.Update > 0) {
				t.Errorf("step %d, %s: got weight %g, update %g", step, p.Name, p.Weight, p.Update)
			}
		}
		off = max(off, math.Abs(math.Sqrt(sum)-s.GradNorm)/s.GradNorm)
	}
	s := start(context.Background(), t, openReference(t), t.TempDir(), o, rec, func(opts *Options) {
		opts.NormsInterval = 4
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	if !slices.Equal(measured, []int64{4, 8}) || off > 1e-6 { // GradNorm is rounded to f32
		t.Errorf("measured after steps %v, off by %g, want after 4 and 8 within 1e-6", measured, off)
	}
	o.Norms = false
	if plain := start(context.Background(), t, openReference(t), t.TempDir(), o, &recorder{}, nil); !slices.Equal(
		plain.losses, s.losses) {
		t.Error("measuring changes what is trained")
	}
}
