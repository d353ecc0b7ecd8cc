package runtime

import (
	"fmt"
	"strings"
)

// BottleneckSettings contains the settings that influence the advice. The advice mentions a setting only if it does not
// have the recommended value yet.
type BottleneckSettings struct {
	DataWorkers  int    // number of goroutines per rank that load data
	CPUs         int    // number of CPUs per rank for these goroutines
	Policy       string // value of balance.policy, or "fixed" for balance.fixed_shares
	Learns       bool   // Policy equalizes the measured times of the ranks
	WireDType    string // element type of transferred gradients: f32 or bf16
	Overlap      bool
	Foreign      bool // another program computes the steps, so settings of this program have no effect
	AutoBuckets  bool // parallel.bucket_cap_mb is 0
	SyncNorm     bool // batch normalisation uses the samples of all ranks
	Precision    string
	Accumulation int
}

// String returns the verdict and the lost times as a log line, such as
//
//	communication-bound: 120.0 of 400.0 ms per step (30 %) are lost waiting for gradients; another 40.0 ms are hidden behind the backward pass
func (v Bottleneck) String() string {
	text := fmt.Sprintf("%v: ", v.Bound)
	lost := fmt.Sprintf("%s of %s ms per step (%.0f %%) are lost ", milliseconds(v.Lost(v.Bound)), milliseconds(v.Step),
		100*v.Lost(v.Bound)/v.Step)
	switch v.Bound {
	case DataBound:
		text += lost + "waiting for data"
		if v.Ranks > 1 && v.Rank >= 0 {
			text += fmt.Sprintf(", mostly on rank %d", v.Rank)
		}
	case CommunicationBound:
		text += lost + "waiting for gradients"
		if v.Exchange > v.Communication/2 {
			text = fmt.Sprintf("%v: %swaiting for the exchanges of batch normalisation", v.Bound, lost)
		}
		text += fmt.Sprintf("; another %s ms are hidden behind the backward pass", milliseconds(v.Hidden))
	case StragglerBound:
		if v.Rank >= 0 {
			text += lost + fmt.Sprintf("to imbalance, which the best split would save: the others wait for rank %d, which is the slowest rank in %.0f %% of the steps and takes %.2f times as long as with balanced shares",
				v.Rank, 100*v.Slowest, v.Ratio)
		} else {
			text += lost + "to imbalance, which the best split would save: the others wait for the slowest rank, which changed during the run"
		}
	case MemoryBound:
		text += lost + fmt.Sprintf("because memory is full (%.0f %%", v.FullMemory)
		if v.Rank >= 0 {
			text += fmt.Sprintf(" on rank %d", v.Rank)
		}
		text += ")"
	case NoiseBound:
		text += lost + "to noise, which no split removes: the times of the ranks vary from step to step"
		if v.Rank >= 0 {
			text += fmt.Sprintf(", mostly those of rank %d", v.Rank)
		}
		switch cause := v.Cause.of(v.Rank); {
		case cause.Evidence != "":
			text += "; cause: " + cause.Evidence
		case cause.Name != "":
			text += "; no sensor shows the cause"
		}
	default:
		text += fmt.Sprintf("useful work takes %s of %s ms per step (%.0f %%), the optimizer %s ms of it",
			milliseconds(v.Useful), milliseconds(v.Step), 100*v.Useful/v.Step, milliseconds(v.Update))
	}
	return text + v.others()
}

// others lists the other losses, if they are at least one hundredth of the step.
func (v Bottleneck) others() string {
	const worthNaming = 0.01
	named := causes[v.Bound]
	var texts []string
	for _, p := range v.Parts()[1:] {
		if p.Name != named && p.Seconds >= worthNaming*v.Step {
			texts = append(texts, fmt.Sprintf("%s %s ms", p.Name, milliseconds(p.Seconds)))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return "; also lost: " + strings.Join(texts, ", ")
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.1f", 1000*seconds) }

// Advice returns the recommended changes as text, the most promising one first.
func (v Bottleneck) Advice(s BottleneckSettings) string {
	if s.Foreign {
		return "" // the advice names settings of this program, which have no effect on another program
	}
	switch v.Bound {
	case DataBound:
		return v.dataAdvice(s)
	case CommunicationBound:
		return v.communicationAdvice(s)
	case StragglerBound:
		return v.stragglerAdvice(s)
	case MemoryBound:
		return v.memoryAdvice(s)
	case NoiseBound:
		if cause := v.Cause.of(v.Rank); cause.Evidence != "" {
			return fmt.Sprintf(
				"other shares do not help: remove the cause (%s), or raise data.batch_size to average the noise",
				cause.Evidence)
		}
		return "other shares do not help: check whether other programs use the machines, or raise data.batch_size to average the noise"
	}
	return v.computeAdvice(s)
}

func (v Bottleneck) dataAdvice(s BottleneckSettings) string {
	if s.DataWorkers < s.CPUs {
		return fmt.Sprintf("raise data.workers (now %d, %d CPUs)", s.DataWorkers, s.CPUs)
	}
	return fmt.Sprintf("all %d CPUs already load data (data.workers is %d): store the images at the training size, in an archive on a local disk",
		s.CPUs, s.DataWorkers)
}

func (v Bottleneck) communicationAdvice(s BottleneckSettings) string {
	var do []string
	if v.Cause.stops() {
		do = append(do, fmt.Sprintf("remove what stops a rank, in exchanges too (%s)", v.Cause.Evidence))
	}
	if v.Exchange > v.Communication/2 {
		if s.SyncNorm {
			do = append(do, `set model.batch_norm = "ghost", which needs no communication`)
		}
	} else {
		if !s.Overlap {
			do = append(do, "set parallel.overlap = true")
		}
		if s.WireDType != "bf16" {
			do = append(do, `set parallel.wire_dtype = "bf16", which halves the transferred bytes`)
		}
		if s.Overlap && !s.AutoBuckets {
			do = append(do, "set parallel.bucket_cap_mb = 0, so that the program finds the best bucket sizes")
		}
	}
	return strings.Join(append(do,
		"raise data.batch_size, because the exchange of gradients takes the same time for a larger batch"), "; or ")
}

func (v Bottleneck) stragglerAdvice(s BottleneckSettings) string {
	switch {
	case s.Policy == "fixed":
		return `remove balance.fixed_shares and set balance.policy = "hybrid"`
	case !s.Learns:
		return fmt.Sprintf("set balance.policy = \"hybrid\" (now %q), which gives each rank as many samples as it can process in the same time",
			s.Policy)
	}
	if v.Rank < 0 {
		return "the speeds of the ranks changed: check their straggler verdicts, and whether other programs use the machines"
	}
	return fmt.Sprintf(
		"rank %d is too slow for its share: check its straggler verdict, and whether other programs use its machine",
		v.Rank)
}

func (v Bottleneck) memoryAdvice(s BottleneckSettings) string {
	var do []string
	if s.Precision == "f32" {
		do = append(do, `set train.precision = "bf16", which halves the activations, if the device is fast in bf16`)
	}
	return strings.Join(
		append(do, fmt.Sprintf("raise train.grad_accumulation (now %d): the same batch then needs less memory",
			s.Accumulation), "lower data.batch_size"), "; or ")
}

func (v Bottleneck) computeAdvice(s BottleneckSettings) string {
	if v.Update > optimizerBig*v.Step {
		return fmt.Sprintf(
			"the optimizer takes %.0f %% of the step, and takes no longer for a larger batch: raise data.batch_size",
			100*v.Update/v.Step)
	}
	var do []string
	if s.Precision == "f32" {
		do = append(do, `set train.precision = "bf16", if the device is fast in bf16`)
	}
	if !(v.FullMemory >= fullPercent) {
		do = append(do, "raise data.batch_size, because devices compute larger batches more efficiently")
	}
	return strings.Join(append(do, "add ranks"), "; or ")
}
