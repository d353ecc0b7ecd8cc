package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device/gpumodel"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// gpuOf returns the GPU of --device-model, nil without this flag. It refuses settings that contradict the flag.
func (f *planFlags) gpuOf(c *config.Config) (*gpumodel.GPU, error) {
	if !f.modelled {
		return nil, nil
	}
	gpu, err := gpumodel.Find(f.gpu)
	switch {
	case err != nil:
		return nil, exit.Usagef("--device-model: %w", err)
	case c.Device.Kind != "auto" && c.Device.Kind != "cuda":
		return nil, exit.Usagef("--device-model plans for a GPU: device.kind: got %q, want \"auto\" or \"cuda\"",
			c.Device.Kind)
	case c.Device.ShareGPU:
		return nil, exit.Usagef("--device-model plans for ranks with a GPU each: device.share_gpu: got true, want false")
	case c.Parallel.CPURanks > 0:
		return nil, exit.Usagef("--device-model plans for ranks with a GPU each: parallel.cpu_ranks: got %d, want 0",
			c.Parallel.CPURanks)
	case c.Train.Precision == "bf16" && gpu.BF16 == 0:
		return nil, exit.Usagef("--device-model: %s has no bf16 products, so their time is unknown: train.precision: got \"bf16\", want \"auto\", \"fp16\" or \"f32\"",
			gpu.Model)
	}
	return &gpu, nil
}

// predict predicts the step of the rank with the largest share.
func (p *planning) predict(model *replica.Replica, r Report) (*prediction, error) {
	first := slices.Index(p.shares, slices.Max(p.shares))
	rank := r.Ranks[first]
	out := &prediction{GPU: *p.gpu, Samples: rank.Share, Bytes: rank.Bytes, MemoryBytes: p.memory, Fits: rank.Fits,
		Works: gpumodel.Works, CrossChecks: gpumodel.CrossChecks, Coefficients: gpumodel.Present()}
	narrow, _ := p.run.Process.Opts.Env.Lookup(gpumodel.NarrowVariable)
	out.NarrowGradients = narrow == "1"
	launches, err := model.Launches(rank.Share)
	if err != nil {
		return nil, err
	}
	at, narrowed := map[string]int{}, false
	for _, l := range launches {
		t, err := p.gpu.Predict(l.Op, l.In, l.Out, gpumodel.Options{NarrowGradients: out.NarrowGradients})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Name, err)
		}
		i, ok := at[l.Op.Kind()]
		if !ok {
			i = len(out.Ops)
			at[l.Op.Kind()] = i
			out.Ops = append(out.Ops, opPrediction{Op: l.Op.Kind(), Measured: true})
		}
		narrowed = narrowed || t.Narrow()
		o := &out.Ops[i]
		o.Launches += l.PerStep
		o.FLOPs += l.PerStep * float64(t.FLOPs)
		o.Bytes += l.PerStep * float64(t.Bytes)
		o.Seconds += l.PerStep * t.Seconds
		o.LimitSeconds += l.PerStep * t.LimitSeconds
		if assumed := t.Kind + " like " + t.Like; !t.Measured && !slices.Contains(o.Assumed, assumed) {
			o.Measured, o.Assumed = false, append(o.Assumed, assumed)
		}
	}
	slices.SortFunc(out.Ops, func(a, b opPrediction) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Op, b.Op))
	})
	flops, bytes, measured := 0.0, 0.0, true
	for _, o := range out.Ops {
		out.StepSeconds += o.Seconds
		out.LimitSeconds += o.LimitSeconds
		flops, bytes, measured = flops+o.FLOPs, bytes+o.Bytes, measured && o.Measured
	}
	out.Measured = measured && p.gpu.Name == gpumodel.MeasuredGPU && r.Precision == gpumodel.MeasuredType &&
		slices.ContainsFunc(gpumodel.Works, func(w gpumodel.Work) bool { return w.Is(flops, bytes, narrowed) })
	for i := range out.Ops {
		out.Ops[i].Share = out.Ops[i].Seconds / out.StepSeconds
	}
	out.SamplesPerSecond = float64(r.BatchSize) / out.StepSeconds
	out.TokensPerSecond = out.SamplesPerSecond * float64(r.Tokens)
	return out, nil
}
