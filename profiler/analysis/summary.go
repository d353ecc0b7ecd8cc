package analysis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runs"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// SummaryVersion increases when a key of the summary is removed or changes its meaning.
const SummaryVersion = 3

// Number is a float64 that is null in JSON if it is unknown.
type Number = experiment.Number

// Summary describes one run in numbers. logs/summary.json contains it. Times are in seconds, unless the name contains
// another unit. Ratios are fractions 0…1. Unknown values are null.
type Summary struct {
	SchemaVersion int    `json:"schema_version"`
	Run           string `json:"run"` // name of the run's folder
	// Status is the state of the run, and Why explains it. The words are those of experiment.State.
	Status    string `json:"status"`
	Why       string `json:"why,omitempty"`
	Program   string `json:"program,omitempty"`
	Model     string `json:"model,omitempty"`
	Dataset   string `json:"dataset,omitempty"`
	Device    string `json:"device,omitempty"`
	Precision string `json:"precision,omitempty"`
	Ranks     int    `json:"ranks"`
	BatchSize int64  `json:"batch_size"` // global batch size of the last step

	Steps int64 `json:"steps"` // number of the last recorded step
	// FirstStep is the first step that the figures below cover, except for TrainingTime, FinalTrainLoss and BestEval.
	// It is above 1 if the run has resumed with another number of ranks: the figures then cover only the steps with
	// Ranks ranks.
	FirstStep      int64  `json:"first_step"`
	RecordedSteps  int64  `json:"recorded_steps"`
	FinalTrainLoss Number `json:"final_train_loss"`
	BestEval       Number `json:"best_eval"`
	// metric of the best evaluation: top1 (a fraction), loss, …
	BestEvalMetric string `json:"best_eval_metric,omitempty"`
	BestEvalStep   int64  `json:"best_eval_step"`

	LastEval *experiment.ResultEvaluation `json:"last_eval"` // newest evaluation; null if there is none

	// Unit is the unit of the reported speed: img, tok or samples; "" if the run does not state it. A sample contains
	// UnitsPerSample units.
	Unit           string `json:"unit,omitempty"`
	UnitsPerSample int    `json:"units_per_sample,omitempty"`

	// Throughput is samples per second of all ranks: samples / TrainingTime.
	Throughput          Number `json:"throughput_images_per_sec"`
	CommunicationTime   Number `json:"communication_time_per_step"`   // exposed, after the backward pass
	CommunicationHidden Number `json:"communication_hidden_per_step"` // hidden time, during the backward pass
	// bytes of gradients that each rank contributes, in the type of the transfer
	CommunicationBytes Number `json:"communication_bytes_per_step"`
	Overlap            Number `json:"communication_overlap"`       // hidden / (hidden + exposed)
	CommunicationRatio Number `json:"communication_compute_ratio"` // exposed / (forward + backward)
	BusBandwidth       Number `json:"all_reduce_bus_bandwidth_bytes_per_sec"`
	// MemoryUtilization is the largest ratio (peak memory use / total memory) of all ranks. For a CPU rank, the total
	// is the memory that the rank may use.
	MemoryUtilization Number `json:"gpu_memory_utilization"`
	// mean over ranks and steps; for a CPU rank, relative to the CPUs that it may use
	Utilization Number `json:"gpu_utilization"`
	// (max-min)/max of the ranks' own compute times, mean over steps
	Imbalance         Number `json:"load_imbalance"`
	ShareOfOracle     Number `json:"share_of_oracle"`     // last estimate of the balancer
	ShareOfOracleLow  Number `json:"share_of_oracle_low"` // ends of its 90 % interval
	ShareOfOracleHigh Number `json:"share_of_oracle_high"`
	// ShareOfOracleDisagreement says why ShareOfOracle and the times of the ranks differ; "": they do not.
	ShareOfOracleDisagreement string `json:"share_of_oracle_disagreement,omitempty"`
	// ShareOfOracleMean is 1 - imbalance / (step time - noise), from the parts of the mean step in Bottleneck. Without
	// Bottleneck, it is the mean of all estimates of the balancer, weighted by the number of steps of each estimate.
	ShareOfOracleMean Number `json:"share_of_oracle_mean"`
	// Gain is the throughput divided by the throughput with equal shares on the same step-time curves. It covers the
	// steps whose decisions state a gain. It is unknown if these are less than half of the steps.
	Gain     Number `json:"gain_over_equal_shares"`
	GainLow  Number `json:"gain_over_equal_shares_low"` // ends of its 90 % interval
	GainHigh Number `json:"gain_over_equal_shares_high"`
	GainPart Number `json:"gain_over_equal_shares_part"` // number of these steps / steps from FirstStep on
	// GainUnknown is the reason why Gain is unknown; "": Gain is known, or the run has one rank.
	GainUnknown string `json:"gain_over_equal_shares_unknown,omitempty"`

	TrainingTime Number `json:"training_time"` // sum of the times of all steps, including steps without a record
	// EvaluationTime is the time of all evaluations, which are not part of a step. CheckpointTime is the time of all
	// saves; a save continues while the next steps train.
	EvaluationTime Number `json:"evaluation_time"`
	CheckpointTime Number `json:"checkpoint_time"`
	Pauses         int    `json:"pauses"` // number of pauses between recorded steps; see runtime.StepSpan

	Bottleneck *BottleneckSummary `json:"bottleneck"` // null if no step could be evaluated

	StepTime  Distribution `json:"step_time"`       // training time of a step
	StepParts StepParts    `json:"step_time_parts"` // means over ranks
	// time to sum the gradients of a step over all ranks, hidden or exposed
	AllReduce Distribution  `json:"all_reduce_time"`
	PerRank   []RankSummary `json:"per_rank"`
	Damaged   []string      `json:"damaged,omitempty"` // descriptions of unreadable parts of the records

	rankSeconds float64 // sum of (step time × number of ranks in that step) over all steps
}

// Distribution describes the distribution of a time over steps.
type Distribution struct {
	Mean Number `json:"mean"`
	Min  Number `json:"min"`
	P50  Number `json:"p50"`
	P95  Number `json:"p95"`
	P99  Number `json:"p99"`
	Max  Number `json:"max"`
}

// StepParts contains means over the steps after the warm-up.
type StepParts struct {
	Data          Number `json:"data"`
	Forward       Number `json:"forward"`
	Backward      Number `json:"backward"`
	Communication Number `json:"communication"`
	Optimizer     Number `json:"optimizer"`
	Exchanges     Number `json:"exchanges"` // exchanges of batch normalisation, part of Forward and Backward
	Between       Number `json:"between"`   // rest of the step time
}

// RankSummary describes one rank.
type RankSummary struct {
	Rank              int            `json:"rank"`
	Samples           Number         `json:"batch_size"`      // mean number of samples per step
	Compute           Number         `json:"compute_time"`    // compute time without waits for other ranks
	SamplesPerSecond  Number         `json:"samples_per_sec"` // throughput during Compute
	StepTime          Distribution   `json:"step_time"`       // sum of the parts, as measured by the rank
	StepParts         StepParts      `json:"step_time_parts"`
	AllReduce         Distribution   `json:"all_reduce_time"`
	Utilization       Number         `json:"gpu_utilization"`
	MemoryUtilization Number         `json:"gpu_memory_utilization"`
	PowerWatts        Number         `json:"power_watts"`         // mean power
	Temperature       Number         `json:"temperature_celsius"` // highest temperature
	ByBatchSize       []ShareSummary `json:"by_batch_size"`       // most frequent shares of the rank, sorted by size

	RankVerdicts

	stepTimes, allReduces []float32 // in s, for the histogram
}

// ShareSummary describes the steps of a rank with one particular share.
type ShareSummary struct {
	Samples          int64  `json:"batch_size"`
	Steps            int64  `json:"steps"`
	Compute          Number `json:"compute_time"`
	SamplesPerSecond Number `json:"samples_per_sec"`
}

// Latencies returns the step times and all-reduce times of a rank in s, for histograms. For long runs it returns
// every k-th step.
func (r *RankSummary) Latencies() (steps, allReduces []float32) { return r.stepTimes, r.allReduces }

// ErrNoRecords reports that a folder contains no records to summarise.
var ErrNoRecords = errors.New("no metric records (logs/rank_0_metrics.json): the run had profile.enabled = false, or its logs are in another folder; give that folder with --log-dir")

// noRecords returns ErrNoRecords, or the reason why the newest process of the run left no records.
func noRecords(dir string) error {
	if r, err := experiment.ReadResult(dir); err == nil && r.Current && r.Steps == 0 {
		return fmt.Errorf("the run has no metric records: its newest process ended before its first step was complete (exit code %d: %s), and it did not continue from a checkpoint, so it removed the records of earlier processes",
			r.Exit, r.Error)
	}
	return ErrNoRecords
}

// Summarize reads the records of the run in dir. The run may be finished, running or killed. logs is the folder of
// the records. If logs is "", Summarize uses the folder in the settings of the run, or dir/logs.
func Summarize(dir, logs string) (*Summary, error) { return summarize(context.Background(), dir, logs) }

// summarize is Summarize. It returns an error when ctx is canceled.
func summarize(ctx context.Context, dir, logs string) (*Summary, error) {
	if logs == "" {
		var err error
		if logs, err = LogDir(dir); err != nil {
			return nil, err
		}
	}
	s := &Summary{SchemaVersion: SummaryVersion, Run: filepath.Base(dir), FinalTrainLoss: Number(unknown),
		BestEval: Number(unknown), ShareOfOracle: Number(unknown), ShareOfOracleLow: Number(unknown),
		ShareOfOracleHigh: Number(unknown), ShareOfOracleMean: Number(unknown), Gain: Number(unknown),
		GainLow: Number(unknown), GainHigh: Number(unknown), GainPart: Number(unknown),
		BusBandwidth: Number(unknown)}
	if abs, err := filepath.Abs(dir); err == nil {
		s.Run = filepath.Base(abs)
	}
	happened, err := eventsOf(filepath.Join(logs, runtime.EventsFile))
	if err != nil {
		return nil, err
	}
	start := happened.starts
	segment, err := segmentOf(ctx, logs, start)
	if err != nil {
		return nil, err
	}
	c, found := collector{segment: segment, starts: start}, 0
	for rank := 0; segment.Ranks == 0 || rank < segment.Ranks; rank++ {
		damaged, err := c.read(ctx, rank, filepath.Join(logs, runtime.FileName(rank)))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		found++
		if damaged > 0 {
			s.Damaged = append(s.Damaged, ignored(runtime.FileName(rank), damaged))
		}
	}
	state, lacking, err := runs.Judge(dir, logs)
	if err != nil {
		return nil, err
	}
	if lacking != "" { // a summary without the missing ranks would be wrong
		return nil, fmt.Errorf("no summary is possible: %s", lacking)
	}
	if len(c.steps) == 0 {
		return nil, noRecords(dir)
	}
	settings, _ := readSettings(dir) // settings are optional, because the records are sufficient
	batch, _ := strconv.ParseInt(settings["data.batch_size"], 10, 64)
	c.fill(s, batch)
	s.Damaged = append(s.Damaged, c.gaps()...)
	s.Status, s.Why = string(state.Kind), state.Why
	current, err := s.addResult(dir)
	if err != nil {
		return nil, err
	}
	s.addEvaluations(&happened, current)
	s.EvaluationTime, s.CheckpointTime = Number(happened.evaluations), Number(happened.checkpoints)
	run := Run{segment: segment}
	if err := run.readDecisions(filepath.Join(logs, balanceFile)); err != nil {
		return nil, err
	}
	s.Damaged = append(s.Damaged, run.Damaged...)
	s.addDecisions(run.Decisions)
	s.addVerdicts(&run.judged)
	if s.Bottleneck, err = bottleneck(ctx, logs, found, segment, run.Decisions); err != nil {
		return nil, err
	}
	if b := s.Bottleneck; b != nil && s.ShareOfOracleMean == s.ShareOfOracleMean { // the balancer made an estimate
		s.ShareOfOracleMean = b.ofOracle()
	}
	if n := len(start); n > 0 {
		s.Unit, s.UnitsPerSample = start[n-1].Start.Unit, start[n-1].Start.Units
	}
	return s, nil
}

// happened contains the needed facts from the events of a run.
type happened struct {
	starts []runtime.Event // starts of processes
	// last is the newest evaluation, and best the newest one that was the best so far. Both are nil without
	// evaluations.
	last, best *runtime.Event
	judge      *runtime.StartEvent // start of the process that recorded best; nil if it is unknown

	evaluations, checkpoints float64 // s
}

// eventKeys are texts that the lines contain which eventsOf reads.
var eventKeys = [][]byte{[]byte(`"start":`), []byte(`"evaluation":`), []byte(`"checkpoint":`)}

// eventsOf reads the events of a run. They are optional.
func eventsOf(path string) (h happened, err error) {
	err = regular.EachLine(path, func(line []byte) error {
		if !slices.ContainsFunc(eventKeys, func(key []byte) bool { return bytes.Contains(line, key) }) {
			return nil
		}
		var e runtime.Event
		switch {
		case json.Unmarshal(line, &e) != nil, e.Step < 0, e.Step > runtime.MostStep: // a damaged line
		case e.Start != nil:
			h.starts = append(h.starts, e)
		case e.Checkpoint != nil:
			h.checkpoints += max(e.Checkpoint.Seconds, 0)
		case e.Evaluation != nil:
			h.evaluations += max(e.Evaluation.Seconds, 0)
			if h.last = &e; e.Evaluation.Best {
				h.best, h.judge = &e, nil
				if n := len(h.starts); n > 0 {
					h.judge = h.starts[n-1].Start
				}
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return happened{}, fmt.Errorf("read events: %w", err)
	}
	return h, nil
}

// addEvaluations adds the newest evaluation. It also adds the best evaluation if the newest process has not written a
// result.
func (s *Summary) addEvaluations(h *happened, result bool) {
	if e := h.last; e != nil {
		s.LastEval = &experiment.ResultEvaluation{Step: e.Step, Samples: e.Evaluation.Samples,
			Loss: numberOf(e.Evaluation.Loss), Metrics: map[string]Number{}}
		for key, v := range e.Evaluation.Metrics {
			s.LastEval.Metrics[key] = numberOf(v)
		}
	}
	if result || h.best == nil || h.judge == nil {
		return
	}
	key := h.judge.BestMetric // a later process may use another metric
	value, known := h.best.Evaluation.Metrics[key]
	if key == "loss" {
		value, known = h.best.Evaluation.Loss, true
	}
	if known {
		s.BestEval, s.BestEvalMetric, s.BestEvalStep = numberOf(value), key, h.best.Step
	}
}

// segmentOf returns the segment of the last record of rank 0.
func segmentOf(ctx context.Context, logs string, starts []runtime.Event) (runtime.Segment, error) {
	last := int64(0)
	if len(starts) > 1 { // with one start, the run is one segment
		_, err := runtime.EachMetric(ctx, filepath.Join(logs, runtime.FileName(0)), func(m *runtime.Record) {
			last = m.Iteration
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return runtime.Segment{}, err
		}
	}
	return runtime.SegmentAt(starts, last), nil
}

// Segment returns the range of steps that the figures cover, as text. It is empty if the number of ranks never changed.
func (s *Summary) Segment() string {
	if s.FirstStep <= 1 {
		return ""
	}
	return fmt.Sprintf("steps %d to %d", s.FirstStep, s.Steps)
}

// Rate returns the throughput in units per second, and the unit.
func (s *Summary) Rate() (perSecond Number, unit string) {
	if s.Unit == "" || s.UnitsPerSample < 1 {
		return s.Throughput, "samples"
	}
	return s.Throughput * Number(s.UnitsPerSample), s.Unit
}

// leastCovered is the smallest fraction of steps with a known gain at which this gain counts as that of the run. Fewer
// steps do not represent the run: all of them may have the first shares.
const leastCovered = 0.5

// addDecisions adds the estimates of the balancer. An estimate describes the steps since the previous decision. The
// records of a killed run may end before its last decision. That decision still gives the last estimate, as in the
// command status.
func (s *Summary) addDecisions(decisions []Decision) {
	previous, steps, sum := s.FirstStep-1, 0.0, 0.0
	covered, measured, equal, low, high := 0.0, 0.0, 0.0, 0.0, 0.0 // steps, s
	for _, d := range decisions {
		n := float64(max(0, min(d.Step, s.Steps)-previous))
		// A decision of an older version of the program has no interval, and its gain may come from a guessed curve.
		if !math.IsNaN(d.EqualSeconds+d.EqualLow+d.EqualHigh) && d.StepSeconds > 0 {
			// the errors of the curves have the same sign in all decisions, so the ends of the intervals are summed
			covered, measured, equal = covered+n, measured+n*d.StepSeconds, equal+n*d.EqualSeconds
			low, high = low+n*d.EqualLow, high+n*d.EqualHigh
		}
		if !math.IsNaN(d.ShareOfOracle) {
			s.ShareOfOracle, s.ShareOfOracleLow, s.ShareOfOracleHigh = Number(d.ShareOfOracle),
				Number(d.ShareOfOracleLow), Number(d.ShareOfOracleHigh)
			s.ShareOfOracleDisagreement = d.Disagreement
			steps, sum = steps+n, sum+n*d.ShareOfOracle
		}
		previous = d.Step
	}
	if steps > 0 {
		s.ShareOfOracleMean = Number(sum / steps)
	}
	if all := float64(s.Steps - s.FirstStep + 1); all > 0 {
		s.GainPart = Number(covered / all)
	}
	if measured > 0 && s.GainPart >= leastCovered {
		s.Gain, s.GainLow, s.GainHigh = Number(equal/measured), Number(low/measured), Number(high/measured)
	} else if s.Ranks > 1 {
		s.GainUnknown = whyNoGain(decisions, float64(s.GainPart))
	}
}

// whyNoGain returns why the gain of a run is unknown. The parameter part is the fraction of the steps whose gain is
// known.
func whyNoGain(decisions []Decision, part float64) string {
	if len(decisions) == 0 {
		return "the balancer made no decision on measured times"
	}
	text := ""
	for _, d := range slices.Backward(decisions) {
		if text = d.EqualUnknown; text != "" {
			break
		}
	}
	switch {
	case part > 0 && text == "":
		text = fmt.Sprintf("the balancer knows it only for %.0f %% of the steps", 100*part)
	case part > 0:
		text = fmt.Sprintf("the balancer knows it only for %.0f %% of the steps; later, %s", 100*part, text)
	case text == "":
		text = "the decisions of the balancer do not contain it"
	}
	return text
}

// ignored describes the damaged lines of a file.
func ignored(file string, damaged int) string {
	if damaged == 1 {
		return file + ": 1 damaged line ignored"
	}
	return fmt.Sprintf("%s: %d damaged lines ignored", file, damaged)
}

// LogDir returns the folder of the logs of the run in dir, according to its settings. If the settings name a folder, it
// must belong to the run; see experiment.OpenLogs. A link in the run's folder must not lead out of it, because the run
// may be untrusted.
func LogDir(dir string) (string, error) {
	settings, err := readSettings(dir)
	if err != nil {
		settings = nil // settings are optional
	}
	return logDirOf(dir, settings)
}

func logDirOf(dir string, settings map[string]string) (string, error) {
	moved := settings["experiment.log_dir"]
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close() // read only
	if moved == "" {
		own := filepath.Join(dir, "logs")
		if err := regular.StayIn(root, "logs"); err != nil {
			return "", fmt.Errorf("%w; `hetero-train analyze RUN --log-dir %s` reads it all the same", err, own)
		}
		return own, nil
	}
	logs, err := experiment.OpenLogs(moved, root)
	if err != nil {
		return "", fmt.Errorf("experiment.log_dir: %w", err)
	}
	err = regular.StayIn(logs, ".")
	return moved, errors.Join(err, logs.Close())
}

// addResult sets the status of the run if its newest process has written a result; current reports whether it has. The
// result of an earlier process does not count. If it is unknown which process began last, records after the result show
// that a later process has begun.
func (s *Summary) addResult(dir string) (current bool, err error) {
	r, err := experiment.ReadResult(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.Program, s.Model, s.Dataset, s.Device, s.Precision = r.Program, r.Model, r.Dataset, r.Device, r.Precision
	s.BestEval, s.BestEvalMetric, s.BestEvalStep = r.BestEval, r.BestEvalMetric, r.BestEvalStep
	if r.Superseded || !r.Current && r.Steps < s.Steps {
		return false, nil
	}
	if r.Steps >= s.Steps { // a process that ended before its first step may leave the records of an earlier one
		s.FinalTrainLoss = r.FinalTrainLoss
	}
	ended, why := r.Outcome() // even if the process that wrote the result has not ended yet
	s.Status, s.Why = string(ended), why
	return true, nil
}

// distribution summarises times. It sorts values in place.
func distribution(values []float32) Distribution {
	n := Number(unknown)
	d := Distribution{n, n, n, n, n, n}
	if len(values) == 0 {
		return d
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += float64(v)
	}
	at := func(q float64) Number { return Number(values[int(math.Ceil(q*float64(len(values))))-1]) }
	return Distribution{Mean: Number(sum / float64(len(values))), Min: Number(values[0]), P50: at(0.5), P95: at(0.95),
		P99: at(0.99), Max: Number(values[len(values)-1])}
}
