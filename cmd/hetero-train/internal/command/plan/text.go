package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

func (r Report) write(w io.Writer) error {
	samples := fmt.Sprintf("%d classes, images of %dx%d", r.Classes, r.ImageSize, r.ImageSize)
	if r.Tokens > 0 {
		samples = fmt.Sprintf("samples of %d tokens%s", r.Tokens, show.Classes(r.Classes))
	}
	fmt.Fprintf(w, "model %s: %.2f million parameters, %s, %s, %s\n", r.Model, float64(r.Parameters)/1e6, samples,
		r.Precision, r.Optimizer)
	fmt.Fprintf(w, "step: %d samples (micro-batches: %d with %d samples each; ranks: %d), %s: forward %s, backward %s; %s per sample\n",
		r.BatchSize, r.Accumulation, r.MicroBatch, len(r.Ranks),
		flops(r.StepFLOPs), flops(r.ForwardFLOPs), flops(r.BackwardFLOPs), flops(r.StepFLOPs/int64(r.BatchSize)))
	if r.LastStep != "" {
		fmt.Fprintln(w, r.LastStep)
	}
	if len(r.Table) > 0 {
		f := r.Table[0]
		fmt.Fprintf(w, "independent of the micro-batch: %.1f MiB: weights %.1f, gradients %.1f, moments %.1f, statistics %.1f, averages %.1f, norms %.1f, other %.1f\n\n",
			show.MiB(f.Fixed()), show.MiB(f.Weights), show.MiB(f.Gradients), show.MiB(f.Moments),
			show.MiB(f.Statistics),
			show.MiB(f.Averages), show.MiB(f.Norms), show.MiB(f.Other))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "samples\tactivations\tcopies of weights\tworkspace\tinputs\tgaps\tdevice, MiB\tprocess, MiB\t")
	for _, f := range r.Table {
		var marks []string
		if slices.ContainsFunc(r.Ranks, func(one rankPlan) bool { return one.Share == f.Samples }) {
			marks = append(marks, "configured")
		}
		if f.Samples == r.LargestFit {
			marks = append(marks, "largest that fits")
		}
		if f.Recomputed > 0 {
			marks = append(marks, fmt.Sprintf("recomputes %d layers", f.Recomputed))
		}
		if !f.Account.Fits() {
			marks = append(marks, "does not fit")
		}
		u := f.Usage
		fmt.Fprintf(t, "%d\t%.1f\t%.1f\t%s\t%.1f\t%.1f\t%.1f\t%s\t  %s\n", f.Samples, show.MiB(u.Activations),
			show.MiB(u.Copies), r.workspaceMiB(f), show.MiB(u.Inputs), show.MiB(u.Gaps), show.MiB(f.Bytes()),
			r.processMiB(f), strings.Join(marks, ", "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if len(r.Ranks) > 1 {
		for _, one := range r.Ranks {
			fits := "fits"
			if !one.Fits {
				fits = "does NOT fit"
			}
			fmt.Fprintf(w, "rank %d: %d samples, %.1f MiB, %s\n", one.Rank, one.Share, show.MiB(one.Bytes), fits)
		}
	}
	if r.ReservedFor > 0 {
		fmt.Fprintf(w, "reserved on each rank for larger shares: %d samples, %.1f MiB\n", r.ReservedFor,
			show.MiB(r.Reserved))
	}
	memory := fmt.Sprintf("%.2f GiB", show.GiB(r.MemoryBytes))
	if r.MemoryBytes < 1<<30 {
		memory = fmt.Sprintf("%.1f MiB", show.MiB(r.MemoryBytes))
	}
	if err := r.writeProcess(w); err != nil {
		return err
	}
	if r.Prediction != nil {
		if err := r.Prediction.write(w); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "largest micro-batch of a rank in %s (%s, %s): %d samples\n", memory, r.Device,
		r.DeviceModel, r.LargestFit); err != nil {
		return err
	}
	return writePorts(w, r.Ports)
}

// workspaceMiB returns the workspace, MiB. Only a GPU knows the workspaces of its libraries.
func (r Report) workspaceMiB(f replica.Footprint) string {
	known := fmt.Sprintf("%.1f", show.MiB(f.Usage.Workspace))
	if r.Prediction == nil {
		return known
	}
	if f.Usage.Workspace == 0 {
		return "unknown"
	}
	return known + " + unknown"
}

// processMiB returns the memory of the process of a rank, MiB.
func (r Report) processMiB(f replica.Footprint) string {
	if r.Prediction != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.1f", show.MiB(f.Account.HostBytes()))
}

// writeProcess prints the memory that the process of a rank needs for the configured number of samples.
func (r Report) writeProcess(w io.Writer) error {
	i := slices.IndexFunc(r.Table, func(f replica.Footprint) bool {
		return slices.ContainsFunc(r.Ranks, func(one rankPlan) bool { return one.Share == f.Samples })
	})
	if i < 0 || len(r.Table[i].Account.Host) == 0 {
		return nil
	}
	a := r.Table[i].Account
	limit := "limit unknown"
	if a.Limit.Bytes > 0 {
		limit = fmt.Sprintf("limit %s, %s", memory.Size(a.Limit.Bytes), a.Limit.Source)
	}
	_, err := fmt.Fprintf(w, "process with %d samples (%s): %s\n", a.Samples, limit, a)
	for _, part := range a.Optional {
		if err == nil {
			_, err = fmt.Fprintf(w, "  of the rest, at most %s for: %s\n", memory.Size(part.Bytes), part.Name)
		}
	}
	return err
}

// flops formats a number of operations with a unit.
func flops(n int64) string {
	if n >= 1e12 {
		return fmt.Sprintf("%.2f TFLOP", float64(n)/1e12)
	}
	return fmt.Sprintf("%.2f GFLOP", float64(n)/1e9)
}
