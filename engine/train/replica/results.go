package replica

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// StepResult is the result of one optimizer step on this rank.
type StepResult struct {
	Sums                        // totals over the samples of this rank
	GradNorm float64            // norm of the gradient of the mean loss, before clipping
	Updated  bool               // false if the norm was not finite; the step then updated nothing
	Scale    float64            // loss scale; 1 if the run uses no loss scale
	Lowered  bool               // the step updated nothing because the loss scale was too high; the scale is now lower
	Norms    []optim.ParamNorms // norms of single parameters; nil unless the step measured them
	Times    StepTimes
	Buckets  int   // number of all-reduces of gradients
	Bytes    int64 // bytes of gradients that were summed over ranks
	// Reductions are this rank's all-reduces of gradients, valid until the next step. A time is 0 if the device does
	// not measure it.
	Reductions []gradsync.Reduction
	Replaced   int // number of samples that could not be read
	// Positions is the fraction of the positions of a sample that the step computed, at most 1; see
	// Options.Positions.
	Positions float64
}

// sums adds up the fetched results of the first n samples in a slot. Field Count is not set; the caller computes it
// from the batch with targetsOf.
func (p *pass) sums(n, slot int) Sums {
	out := Sums{Samples: n}
	if n == 0 {
		return out
	}
	host := p.host.Host()[int64(slot)*p.resultBytes:]
	out.Loss, out.Top1, out.Top5 = sumTargets(p.loss, p.position, host, n*p.targets)
	if p.sampled {
		out.SampleLoss, out.SampleTop1, _ = sumTargets(p.perSample[0], p.perSample[1], host, n)
	}
	return out
}

// sumTargets adds up the losses of the first n targets, and counts those whose label has one of the highest 1 or 5
// scores.
func sumTargets(losses, positions transfer, host []byte, n int) (loss float64, top1, top5 int) {
	memory := losses.in(host)
	at := unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(positions.in(host)))), n)
	for i := range n {
		var l float64
		if losses.spec.DType == tensor.F64 {
			l = math.Float64frombits(binary.LittleEndian.Uint64(memory[8*i:]))
		} else {
			l = float64(math.Float32frombits(binary.LittleEndian.Uint32(memory[4*i:])))
		}
		loss += l
		if at[i] < 0 || math.IsNaN(l) {
			continue // no logit is larger than NaN, so a NaN target would count as position 0, the best position
		}
		if at[i] == 0 {
			top1++
		}
		if at[i] < 5 {
			top5++
		}
	}
	return loss, top1, top5
}

// Sums are totals over a number of samples.
type Sums struct {
	Samples    int
	Count      int // number of targets that count, with a label of 0 or more; a classified image has one target
	Top1, Top5 int // number of targets whose label has one of the highest 1 or 5 scores
	Loss       float64

	// Totals over the further targets of the samples (task.Report.SampleTarget); 0 without such targets.
	SampleLoss float64
	SampleTop1 int
}

// Score returns the means over the targets that count, and the means over the samples. The means are NaN if no target
// counts.
func (s Sums) Score() task.Score {
	n, samples := float64(s.Count), float64(max(s.Samples, 1))
	perSample := s.SampleLoss / samples
	return task.Score{Loss: s.Loss/n + perSample, Top1: float64(s.Top1) / n, Top5: float64(s.Top5) / n,
		SampleLoss: perSample, SampleTop1: float64(s.SampleTop1) / samples}
}

// Add adds o to s.
func (s *Sums) Add(o Sums) {
	s.Samples += o.Samples
	s.Count += o.Count
	s.Top1 += o.Top1
	s.Top5 += o.Top5
	s.Loss += o.Loss
	s.SampleLoss += o.SampleLoss
	s.SampleTop1 += o.SampleTop1
}
