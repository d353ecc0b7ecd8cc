package rebalance

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/account"
)

// Names of files in the folder of log files.
const (
	DecisionsFile = "balance.jsonl" // JSON lines with one decision per line
	CurvesFile    = "curves.csv"    // latest fitted curve of each rank, in the format of command balance simulate
)

// balanceReport logs the decisions of the balancer on rank 0 and writes them to files.
type balanceReport struct {
	run     *assembly.Run
	policy  balancer.Policy
	batch   divide.Batch
	waiting *straggler.Waiting // waiting times of the window before the decision; the balancer changes them
	console *observe.Console
	dir     string
	lines   *observe.StepLines
	health  []straggler.Settled // by rank: verdicts that the log has reported
	// true after the first failure to write the curves, which alone is logged; only jobs of the run's queue use it
	failed   bool
	outcomes account.Outcomes
	last     DecisionLine // latest line of the decisions file
	defined  bool         // true after the log has defined "of the oracle"
}

// DecisionLine is one line of the decisions file. Times are in s per step.
type DecisionLine struct {
	Step          int64             `json:"step"` // last step of the decision's window
	Policy        string            `json:"policy"`
	Shares        []int             `json:"shares"`
	Next          []int             `json:"next"`
	Changed       bool              `json:"changed"`
	Reason        string            `json:"reason"`
	StepSeconds   experiment.Number `json:"step_seconds"`        // measured mean, with noise and exposed communication
	FittedSeconds experiment.Number `json:"fitted_step_seconds"` // time with Shares, from the fitted curves
	OracleSeconds experiment.Number `json:"oracle_step_seconds"` // time with the best shares; at most FittedSeconds
	// ShareOfOracle estimates OracleSeconds / FittedSeconds. It takes the errors of the curves into account.
	ShareOfOracle experiment.Number `json:"share_of_oracle"`
	ShareLow      experiment.Number `json:"share_of_oracle_low"` // lower end of the 90 % interval of ShareOfOracle
	ShareHigh     experiment.Number `json:"share_of_oracle_high"`
	Unknown       string            `json:"share_of_oracle_unknown,omitempty"` // why ShareOfOracle is unknown
	// Disagreement says why ShareOfOracle, the times of the ranks and Imbalance clearly differ.
	Disagreement string            `json:"share_of_oracle_disagreement,omitempty"`
	Imbalance    experiment.Number `json:"imbalance"`
	Useful       experiment.Number `json:"useful_seconds"`
	// Lost contains the losses that package account defines. The losses and Useful add up to StepSeconds.
	Lost map[string]experiment.Number `json:"lost_seconds"`
	// EqualSeconds is the time of a step with equal shares, PredictedSeconds with the shares Next, both from the fitted
	// curves.
	EqualSeconds     experiment.Number `json:"equal_step_seconds"`
	EqualLow         experiment.Number `json:"equal_step_seconds_low"` // lower end of the 90 % interval of EqualSeconds
	EqualHigh        experiment.Number `json:"equal_step_seconds_high"`
	EqualUnknown     string            `json:"equal_step_unknown,omitempty"` // why EqualSeconds is unknown
	PredictedSeconds experiment.Number `json:"predicted_step_seconds"`
	Outcome          *outcomeLine      `json:"outcome,omitempty"` // result of the previous change of shares
	// rank that causes most of the noise; null if no single rank does
	Noisy *int `json:"noisy_rank"`
	// NoiseCause is the cause of the noise. It is "unknown" if no sensor shows a cause, and "" if the noise is small.
	NoiseCause    string     `json:"noise_cause,omitempty"`
	NoiseEvidence string     `json:"noise_evidence,omitempty"`
	Ranks         []rankLine `json:"ranks"`
}

// outcomeLine is the result of a change of shares: the predicted and the achieved speed-up. Both exclude the noise of
// single steps.
type outcomeLine struct {
	Step      int64             `json:"step"` // step of the decision that changed the shares
	Predicted experiment.Number `json:"predicted"`
	Achieved  experiment.Number `json:"achieved"`
	Low       experiment.Number `json:"achieved_low"` // lower end of the 90 % interval of Achieved
	High      experiment.Number `json:"achieved_high"`
	Worse     bool              `json:"worse"` // steps became longer than before and than predicted, beyond the noise
}

type rankLine struct {
	Seconds experiment.Number `json:"seconds"`
	Fitted  experiment.Number `json:"fitted_seconds"`
	Error   experiment.Number `json:"fitted_error_seconds"`
	Waited  experiment.Number `json:"waited_seconds"` // time for which this rank waits for slower ranks
	Caused  experiment.Number `json:"caused_seconds"` // sum of the times for which other ranks wait for this rank
	Health  string            `json:"health"`
	Cause   string            `json:"cause,omitempty"`

	Evidence string `json:"evidence,omitempty"` // evidence for the value of Health; "" for a healthy rank
}

// decided writes one decision to the decisions file, and logs the decision if it changes the shares.
func (r *balanceReport) decided(step int64, d *balancer.Decision, verdicts []straggler.Verdict) {
	outcome, known := r.outcomes.Add(step, &d.Lost, d.Spread, d.Shares, d.Next, d.Predicted)
	var line *outcomeLine
	if known {
		n := func(v float64) experiment.Number { return experiment.Number(v) }
		line = &outcomeLine{outcome.Step, n(outcome.Predicted), n(outcome.Achieved), n(outcome.Low), n(outcome.High),
			outcome.Worse()}
	}
	r.write(step, d, verdicts, line)
	r.logVerdicts(step, verdicts)
	if known && outcome.Worse() {
		speedup := fmt.Sprintf("%s (%s to %s)", show.Figure("%.2f", outcome.Achieved), show.Figure("%.2f", outcome.Low),
			show.Figure("%.2f", outcome.High))
		r.log().Warn("a change of shares made steps longer", "step", outcome.Step, "speedup", speedup,
			"predicted", show.Figure("%.2f", outcome.Predicted), "now", reaction(d))
	}
	if !d.Changed {
		return
	}
	log := r.log()
	log.Info("Rebalancing triggered", "step", step, "reason", "performance variance detected: "+d.Reason)
	log.Info("New batch sizes: " + sizes(d.Next))
	r.show(d)
	r.writeCurves()
}

// reaction describes how a decision reacts to a change of shares that made steps longer.
func reaction(d *balancer.Decision) string {
	if d.Changed {
		return fmt.Sprintf("new shares %s: %s", sizes(d.Next), d.Reason)
	}
	return "the shares stay: " + d.Reason
}

// end logs the state of the ranks at the latest decision and writes the last curves.
func (r *balanceReport) end(latest *balancer.Decision) {
	r.writeCurves()
	r.show(latest)
}

// show logs the state of the ranks: as a table in text logs, as a DecisionLine in JSON logs.
func (r *balanceReport) show(d *balancer.Decision) {
	r.console.Log(strings.TrimSuffix(r.table(d), "\n"), "load balancer status", logs.ComponentKey,
		logs.ComponentBalancer, "decision", r.last)
}

// decisionLine returns the line of a decision, without Ranks and Outcome.
func decisionLine(step int64, policy string, d *balancer.Decision) DecisionLine {
	n := func(v float64) experiment.Number { return experiment.Number(v) }
	part := func(v float64) experiment.Number {
		if d.Lost.Step == 0 { // no step of the window was measured
			v = math.NaN()
		}
		return n(v)
	}
	line := DecisionLine{Step: step, Policy: policy, Shares: d.Shares, Next: d.Next, Changed: d.Changed,
		Reason:      d.Reason,
		StepSeconds: n(d.Seconds), FittedSeconds: n(d.Fitted), OracleSeconds: n(d.Oracle),
		ShareOfOracle: n(d.ShareOfOracle()), ShareLow: n(d.OfOracle.Low),
		ShareHigh: n(d.OfOracle.High), Imbalance: n(d.Imbalance),
		Unknown: d.Unknown, Disagreement: d.Disagreement,
		Useful: part(d.Lost.Useful), Lost: map[string]experiment.Number{},
		EqualSeconds: n(d.Equal), EqualLow: n(d.EqualLow), EqualHigh: n(d.EqualHigh),
		EqualUnknown: d.GainUnknown(), PredictedSeconds: n(d.Predicted)}
	for i, seconds := range d.Lost.Lost() {
		line.Lost[account.Losses[i]] = part(seconds)
	}
	if d.Noisy >= 0 {
		noisy := d.Noisy // d is valid only until the next decision
		line.Noisy = &noisy
	}
	line.NoiseCause, line.NoiseEvidence = d.NoiseCause, d.NoiseEvidence
	return line
}

func (r *balanceReport) write(step int64, d *balancer.Decision, verdicts []straggler.Verdict, outcome *outcomeLine) {
	n := func(v float64) experiment.Number { return experiment.Number(v) }
	line := decisionLine(step, r.run.Process.Cfg.Balance.Policy, d)
	line.Outcome = outcome
	for rank, v := range d.Ranks {
		waited, caused := r.waited(rank)
		l := rankLine{Seconds: n(v.Seconds), Fitted: n(v.Fitted), Error: n(v.Error), Waited: n(waited),
			Caused: n(caused)}
		if verdicts != nil {
			if l.Health = verdicts[rank].Kind.String(); verdicts[rank].Kind == straggler.Sick {
				l.Cause = verdicts[rank].Cause.String()
			}
			if verdicts[rank].Kind != straggler.Healthy {
				l.Evidence = verdicts[rank].Evidence
			}
		}
		line.Ranks = append(line.Ranks, l)
	}
	r.last = line
	r.lines.Add(line)
}

// waited returns two times in s per step, averaged over the window. The first result is the time for which this rank
// waited for slower ranks. The second result is the sum of the times for which other ranks waited for this rank.
func (r *balanceReport) waited(rank int) (waited, caused float64) {
	w := r.waiting
	if w.Steps == 0 {
		return show.NaN, show.NaN
	}
	return w.Seconds[rank] / float64(w.Steps), w.Caused[rank] / float64(w.Steps)
}

// log returns the logger of the load balancer.
func (r *balanceReport) log() *slog.Logger { return r.run.Process.Opts.LogOf(logs.ComponentBalancer) }

// warn logs the first failure to write the curves. It ignores later failures, because they would repeat the message.
func (r *balanceReport) warn(err error) {
	if err != nil && !r.failed {
		r.failed = true
		r.log().Warn("the fitted step-time curves cannot be saved", "error", err)
	}
}

// logVerdicts logs the verdicts on the ranks whose settled verdict has changed.
func (r *balanceReport) logVerdicts(step int64, verdicts []straggler.Verdict) {
	log := r.log()
	for rank, v := range verdicts {
		switch r.health[rank].Add(step, v.Kind) {
		case straggler.NoNews:
		case straggler.Recovered:
			log.Info(fmt.Sprintf("rank %d has its usual speed again", rank))
		case straggler.IsSlow:
			log.Info(fmt.Sprintf("rank %d has a slower type of device: %.1f times the median time per sample", rank,
				v.Ratio), "evidence", v.Evidence)
		case straggler.IsSick:
			log.Warn(fmt.Sprintf("rank %d is slower than usual: %.1f times its usual step time, cause: %v", rank,
				v.Ratio, v.Cause), "evidence", v.Evidence, "since_step", v.SinceStep)
		}
	}
}

// writeCurves writes the latest fitted curves to a file.
func (r *balanceReport) writeCurves() {
	l, ok := r.policy.(balancer.Learner)
	if !ok {
		return
	}
	var text bytes.Buffer
	if simulate.WriteCurves(&text, l.Curves()) != nil {
		return // no rank has been measured yet
	}
	path := filepath.Join(r.dir, CurvesFile)
	r.run.Queue.Do(path, text.Len(), func() { r.warn(experiment.ReplaceText(path, text.Bytes())) })
}

// mostWorth is the largest number of ranks for which the table contains the column "if excluded". Each of its values
// needs a separate solution of the division, so a larger table would take too long.
const mostWorth = 64

// table formats the state of the ranks in the window before decision d.
func (r *balanceReport) table(d *balancer.Decision) string {
	c := r.run.Process.Cfg
	var worth []divide.Worth
	if l, ok := r.policy.(balancer.Learner); ok && len(r.health) <= mostWorth {
		worth, _ = divide.Marginal(r.batch, l.Curves()) // nil unless all ranks have curves
	}
	total := 0
	for _, n := range d.Shares {
		total += n
	}
	var text strings.Builder
	accumulation := float64(c.Train.MicroBatches())
	fmt.Fprintf(&text, "[Load Balancer Status] step %d | %s | imbalance %s", r.last.Step, c.Balance.Policy,
		show.Figure("%.1f %%", 100*d.Imbalance))
	known := !math.IsNaN(d.OfOracle.Value)
	if known {
		fmt.Fprintf(&text, " | %s of the oracle (%s to %s)", show.Figure("%.1f %%", 100*d.OfOracle.Value),
			show.Figure("%.1f", 100*d.OfOracle.Low), show.Figure("%.1f", 100*d.OfOracle.High))
		if d.Disagreement != "" {
			text.WriteString("; " + d.Disagreement)
		}
	} else {
		fmt.Fprintf(&text, " | fraction of the oracle unknown: %s", d.Unknown)
	}
	if gain, low, high := d.Gain(); gain == gain {
		text.WriteString(" | " + account.GainText(gain, low, high))
	} else if why := d.GainUnknown(); known || why != d.Unknown {
		text.WriteString(" | gain over equal shares unknown: " + why)
	}
	if d.Lost.Step > 0 {
		fmt.Fprintf(&text, " | a step: %s", d.Lost.Text(d.Noisy))
		if d.NoiseEvidence != "" {
			text.WriteString(" | noise: " + d.NoiseEvidence)
		}
	}
	text.WriteByte('\n')
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "node\tuse %\tmemory %\tbatch\tnext\tsamples/s\tbusy ms\twait ms\tif excluded\t")
	for rank := range d.Ranks {
		own := d.Ranks[rank].Seconds
		value := ""
		if worth != nil {
			value = show.Figure("%+.1f %%", 100*worth[rank].Loss(d.Lost.Communication))
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t\n", rank,
			show.Figure("%.0f", 100*d.Ranks[rank].Utilization), show.Figure("%.0f", 100*d.Ranks[rank].Memory),
			d.Shares[rank], d.Next[rank],
			show.Figure("%.0f", float64(d.Shares[rank])*accumulation/own), show.Figure("%.1f", 1e3*own),
			show.Figure("%.1f", 1e3*r.last.Ranks[rank].Waited), value)
	}
	w.Flush()
	fmt.Fprintf(&text, "Cluster Throughput: %s samples/s\n", show.Figure("%.0f", float64(total)*accumulation/d.Seconds))
	if known && !r.defined {
		r.defined = true
		text.WriteString("of the oracle: step time with the best shares divided by step time with the actual shares, both from the fitted curves, without noise (90 % interval)\n" +
			"busy ms: time of the rank's own work in a step; wait ms: time in which it waits for other ranks; if excluded: change of the best step time without the rank\n" +
			"samples/s: batch / busy ms; imbalance in %: difference between the longest and the shortest busy time of a step, of the longest, mean over the steps; " +
			"imbalance in ms: time that the best shares would save; noise: waits because times vary from step to step, which no shares remove\n")
	}
	return text.String()
}

// sizes formats shares as "{0: 128, 1: 96}".
func sizes(shares []int) string {
	texts := make([]string, len(shares))
	for rank, n := range shares {
		texts[rank] = fmt.Sprintf("%d: %d", rank, n)
	}
	return "{" + strings.Join(texts, ", ") + "}"
}
