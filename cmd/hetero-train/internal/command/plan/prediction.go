package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/device/gpumodel"
)

// prediction is the predicted time of an optimizer step on a GPU, without data loading and exchanges between ranks.
type prediction struct {
	GPU      gpumodel.GPU `json:"gpu"`
	Samples  int          `json:"samples"`  // share of a micro-batch of the rank with the largest share
	Measured bool         `json:"measured"` // this step was measured on this GPU: it is one of Works
	// weight gradients of convolutions are computed in 16 bits
	NarrowGradients bool           `json:"narrow_gradients"`
	Ops             []opPrediction `json:"ops"` // in descending order of time
	StepSeconds     float64        `json:"step_seconds"`
	LimitSeconds    float64        `json:"limit_seconds"`
	// of all ranks together, if all take as long as the rank with the largest share
	SamplesPerSecond float64         `json:"samples_per_second"`
	TokensPerSecond  float64         `json:"tokens_per_second,omitempty"`
	Bytes            int64           `json:"bytes"` // of the device, without unknown workspaces
	MemoryBytes      int64           `json:"memory_bytes"`
	Fits             bool            `json:"fits"`
	Works            []gpumodel.Work `json:"accuracy"` // measured steps and their predictions, always on the H100
	// errors for a model whose ops were not measured
	CrossChecks  []gpumodel.CrossCheck `json:"cross_checks"`
	Coefficients gpumodel.Coefficients `json:"coefficients"`
}

// opPrediction is the predicted time of all launches of a kind of op in one step.
type opPrediction struct {
	Op           string  `json:"op"`
	Launches     float64 `json:"launches"` // mean number per step
	FLOPs        float64 `json:"flops"`
	Bytes        float64 `json:"bytes"` // size of the operands, each counted once
	Seconds      float64 `json:"seconds"`
	LimitSeconds float64 `json:"limit_seconds"`
	Share        float64 `json:"share"`    // fraction of the step
	Measured     bool    `json:"measured"` // all launches are of kinds that were measured on the H100
	// kinds that were not measured, each with the kind whose efficiency it has
	Assumed []string `json:"assumed,omitempty"`
}

// write prints the prediction.
func (p *prediction) write(w io.Writer) error {
	narrow := ""
	if p.NarrowGradients {
		narrow = ", " + gpumodel.NarrowVariable + "=1"
	}
	fmt.Fprintf(w, "\npredicted step on %s, %d samples of a micro-batch, without data loading and exchanges between ranks%s:\n",
		p.GPU.Model, p.Samples, narrow)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "op\tlaunches\tGB\tGFLOP\tpredicted, ms\tlimit, ms\tshare\t")
	var assumed []string
	for _, o := range p.Ops {
		mark := ""
		if !o.Measured {
			mark, assumed = " *", append(assumed, o.Assumed...)
		}
		fmt.Fprintf(t, "%s%s\t%.5g\t%.3f\t%.1f\t%.3f\t%.3f\t%.1f %%\t\n", o.Op, mark, o.Launches, o.Bytes/1e9,
			o.FLOPs/1e9, 1e3*o.Seconds, 1e3*o.LimitSeconds, 100*o.Share)
	}
	fmt.Fprintf(t, "step\t\t\t\t%.3f\t%.3f\t\t\n", 1e3*p.StepSeconds, 1e3*p.LimitSeconds)
	if err := t.Flush(); err != nil {
		return err
	}
	if len(assumed) > 0 {
		fmt.Fprintf(w, "* not measured on any GPU; the efficiency is assumed: %s\n", strings.Join(assumed, "; "))
	}
	fmt.Fprintln(w, sheet(p.GPU))
	speed := fmt.Sprintf("%.0f samples/s", p.SamplesPerSecond)
	if p.TokensPerSecond > 0 {
		speed += fmt.Sprintf(", %.0f tokens/s", p.TokensPerSecond)
	}
	fits := "fits"
	if !p.Fits {
		fits = "does NOT fit"
	}
	fmt.Fprintf(w, "predicted speed: %s; memory: %.2f of %.2f GiB, %s\n", speed, show.GiB(p.Bytes),
		show.GiB(p.MemoryBytes), fits)
	if !p.Measured {
		p.writeRange(w)
	}
	return p.writeAccuracy(w)
}

// sheet returns the data sheet of a GPU on one line.
func sheet(g gpumodel.GPU) string {
	rate := func(name string, perSecond float64) string {
		if perSecond == 0 {
			return name + " none"
		}
		return fmt.Sprintf("%s %.4g", name, perSecond/1e12)
	}
	text := fmt.Sprintf("data sheet: products: %s, %s, %s TFLOP/s; memory: %.4g GB/s, %.2f GiB; L2 cache: %d MiB; multiprocessors: %d; source: %s",
		rate("f32", g.F32), rate("bf16", g.BF16), rate("f16", g.F16), g.BytesPerSecond/1e9, show.GiB(g.MemoryBytes),
		g.L2Bytes>>20, g.Multiprocessors, g.Source)
	if g.Assumption != "" {
		text += "; assumed: " + g.Assumption
	}
	return text
}

// writeRange says what is extrapolated, and which ops cause most of the time above the limit.
func (p *prediction) writeRange(w io.Writer) {
	if p.GPU.Name == gpumodel.MeasuredGPU {
		fmt.Fprintf(w, "EXTRAPOLATED: no step with this model, batch, optimizer, element type and the present kernels was measured on an H100; the measurements are in %s\n",
			gpumodel.MeasuredType)
	} else {
		fmt.Fprintf(w, "EXTRAPOLATED: nothing was measured on this GPU; the efficiencies are those of an H100 in %s\n",
			gpumodel.MeasuredType)
	}
	above := slices.SortedStableFunc(slices.Values(p.Ops), func(a, b opPrediction) int {
		return cmp.Compare(b.Seconds-b.LimitSeconds, a.Seconds-a.LimitSeconds)
	})
	var most []string
	for _, o := range above[:min(3, len(above))] {
		most = append(most, fmt.Sprintf("%s %.3f ms", o.Op, 1e3*(o.Seconds-o.LimitSeconds)))
	}
	fmt.Fprintf(w, "range of the step: from %.3f ms (limit) to %.3f ms (efficiencies of the H100, no bound); most of the difference: %s\n",
		1e3*p.LimitSeconds, 1e3*p.StepSeconds, strings.Join(most, ", "))
}

// writeAccuracy compares the predictions for the H100 with measurements.
func (p *prediction) writeAccuracy(w io.Writer) error {
	fmt.Fprintln(w, "predicted and measured steps on the H100, with the kernels of that time:")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, k := range p.Works {
		use := "the efficiencies were derived from it, so this error proves little"
		if k.FirstError != 0 {
			use = fmt.Sprintf("the form of the model was corrected after this step (before: %+.1f %%)",
				100*k.FirstError)
		}
		if k.Present != 0 {
			use += fmt.Sprintf("; predicted for the present kernels, which no GPU has run: %.2f ms", 1e3*k.Present)
		}
		fmt.Fprintf(t, "  %s\t%.2f ms\tmeasured %.2f ms\t%+.1f %%\t%s\n", k.Name, 1e3*k.Predicted, 1e3*k.Measured,
			100*k.Error(), use)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var errs []string
	for _, c := range p.CrossChecks {
		errs = append(errs, fmt.Sprintf("%+.0f %% (%s from %s alone)", 100*c.Error, c.Work, c.From))
	}
	_, err := fmt.Fprintf(w, "errors for a model with other ops: %s\n", strings.Join(errs, ", "))
	return err
}
