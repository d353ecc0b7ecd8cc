package prometheus

import (
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/hetero-train/hetero-train/profiler/account"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Run describes a run. It does not change.
type Run struct {
	Name, Model, Dataset, Policy, Program string
	Ranks                                 []Rank   // ranks whose metrics are served
	Metrics                               []string // names of the metrics of evaluations
	NoiseCauses                           []string // names of all causes of noise
}

// Rank identifies a rank.
type Rank struct {
	Number int
	GPU    bool
	Links  []telemetry.Link
}

var nan = math.NaN()

// Phases are the names of the phases of a step, in the order of RankState.Phases.
var Phases = [...]string{"data", "forward", "backward", "communication", "optimizer"}

// Causes are the names of the causes of lost time, in the order of State.Lost.
var Causes = account.Losses

// Verdicts are the names of the verdicts on a rank. RankState.Verdict is an index into this list.
var Verdicts = [...]string{"healthy", "slow_type", "sick"}

// State contains the values of all metrics. Counters count from the start of the process, except Step and Skipped.
type State struct {
	Step, Planned int64 // optimizer steps of the run: completed steps, and all planned steps (0: unknown)
	Epoch         float64
	Steps         int64            // counter
	Samples       int64            // counter, over all ranks
	Skipped       int64            // counter: steps without an update of the parameters, over the whole run
	RollBacks     int64            // counter
	Warnings      int64            // counter
	Values        telemetry.Values // values of the last step
	StepSeconds   Histogram
	// time of the last step, evaluation or checkpoint, s since 1970; before the first of these, time of the start
	LastProgress       float64
	Checkpoints        int64   // counter
	LastCheckpoint     float64 // s since 1970; undefined before the first checkpoint of this process
	Start              float64 // s since 1970
	CheckpointSeconds  float64 // duration of the last save
	Evaluations        int64   // counter
	EvaluationStep     int64
	EvaluationLoss     float64
	EvaluationMetrics  []float64 // in the order of Run.Metrics
	Decisions, Changes int64     // counters: decisions of the balancer, and those that changed the shares
	Gain               float64   // throughput / throughput with equal shares, in the last window; NaN: unknown
	Oracle             float64   // step time with the best shares divided by the step time; NaN: unknown
	Imbalance          float64
	Lost               [len(Causes)]float64 // counters, s
	Noise              []float64            // counters, s: noise worth naming, in the order of Run.NoiseCauses
	Useful             float64              // counter, s: time of steps that is not lost
	Ranks              []RankState          // in the order of Run.Ranks
}

// RankState contains the values of the metrics of a rank.
type RankState struct {
	Share   int                  // samples of the global batch
	Samples int64                // counter
	Compute float64              // time of the rank's own work in the last step, s
	Phases  [len(Phases)]float64 // counters, s
	Verdict int                  // index into Verdicts; -1: unknown
	Sensors telemetry.Sample
	Links   []telemetry.Traffic // in the order of Rank.Links
	Bytes   int64               // counter: bytes of gradients that were summed over ranks
	Hidden  float64             // counter, s: communication of gradients during the backward pass
	Bus     float64             // bus bandwidth of the last step's all-reduces, bytes/s, computed from bytes and time
}

// Metrics contains the values of all metrics. Only one goroutine may call Update. Any goroutine may render the metrics.
type Metrics struct {
	run     Run
	numbers []string // numbers of the ranks, formatted as text
	own     State    // belongs to the goroutine that calls Update

	mu     sync.Mutex // guards shared; Update never waits for it
	shared State
}

// New returns the metrics of a run before its first step. The parameter now is the time in s since 1970.
func New(run Run, now float64) *Metrics {
	m := &Metrics{run: run}
	for range 2 {
		m.own, m.shared = m.shared, State{Start: now, LastProgress: now, Oracle: nan, Gain: nan, Imbalance: nan,
			EvaluationMetrics: make([]float64, len(run.Metrics)), Noise: make([]float64, len(run.NoiseCauses)),
			Ranks: make([]RankState, len(run.Ranks))}
		for i := range m.shared.Ranks {
			m.shared.Ranks[i] = RankState{Verdict: -1, Sensors: telemetry.Unknown(), Bus: nan,
				Links: make([]telemetry.Traffic, len(run.Ranks[i].Links))}
			for j := range m.shared.Ranks[i].Links {
				m.shared.Ranks[i].Links[j] = telemetry.UnknownTraffic()
			}
		}
	}
	for _, r := range run.Ranks {
		m.numbers = append(m.numbers, strconv.Itoa(r.Number))
	}
	return m
}

// Update calls change, which may modify the state. The pointer is valid only during the call. Update never waits and
// allocates no memory.
func (m *Metrics) Update(change func(*State)) {
	change(&m.own)
	if m.mu.TryLock() {
		m.shared.take(&m.own)
		m.mu.Unlock()
	}
}

// take copies the state from into s. The lists of both states must have the same lengths.
func (s *State) take(from *State) {
	ranks, metrics, noise := s.Ranks, s.EvaluationMetrics, s.Noise
	*s = *from
	s.Ranks, s.EvaluationMetrics, s.Noise = ranks, metrics, noise
	for i := range s.Ranks {
		links := s.Ranks[i].Links
		s.Ranks[i] = from.Ranks[i]
		s.Ranks[i].Links = links
		copy(links, from.Ranks[i].Links)
	}
	copy(s.EvaluationMetrics, from.EvaluationMetrics)
	copy(s.Noise, from.Noise)
}

// read returns a copy of the state.
func (m *Metrics) read() State {
	s := State{Ranks: make([]RankState, len(m.run.Ranks)), EvaluationMetrics: make([]float64, len(m.run.Metrics)),
		Noise: make([]float64, len(m.run.NoiseCauses))}
	for i, r := range m.run.Ranks {
		s.Ranks[i].Links = make([]telemetry.Traffic, len(r.Links))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.take(&m.shared)
	return s
}

// Text returns the metrics in Prometheus' text format.
func (m *Metrics) Text() []byte {
	s := m.read()
	t := &text{out: make([]byte, 0, 8<<10+len(s.Ranks)*3<<10)}
	r := m.run
	t.family("hetero_train_run_info", "gauge", "Properties of the run; always 1.")
	t.sample(1, label{"run", r.Name}, label{"model", r.Model}, label{"dataset", r.Dataset}, label{"policy", r.Policy},
		label{"version", r.Program})
	gauge := func(name, help string, v float64) { t.family(name, "gauge", help); t.sample(v) }
	counter := func(name, help string, v float64) { t.family(name, "counter", help); t.sample(v) }
	gauge("hetero_train_run_step", "Optimizer steps of the run so far, including those of earlier processes.",
		float64(s.Step))
	if s.Planned > 0 {
		gauge("hetero_train_run_planned_steps", "Optimizer steps of the whole run.", float64(s.Planned))
	}
	gauge("hetero_train_run_epoch", "Passes over the training data so far.", s.Epoch)
	counter("hetero_train_steps_total", "Optimizer steps of this process.", float64(s.Steps))
	counter("hetero_train_samples_total", "Samples that the served ranks have trained in this process.",
		float64(s.Samples))
	counter("hetero_train_skipped_steps_total",
		"Steps of the run without an update because the gradient was not finite.", float64(s.Skipped))
	counter("hetero_train_rollbacks_total", "Returns to an earlier checkpoint in this process.", float64(s.RollBacks))
	counter("hetero_train_warnings_total", "Warnings of the training loop in this process.", float64(s.Warnings))
	t.family("hetero_train_step_seconds", "histogram", "Duration of an optimizer step on the serving rank.")
	s.StepSeconds.write(t)
	gauge("hetero_train_start_timestamp_seconds", "Time at which this process started to serve metrics.", s.Start)
	gauge("hetero_train_last_progress_timestamp_seconds",
		"Time of the last step, evaluation or checkpoint; before these, of the start.", s.LastProgress)
	if s.Steps > 0 {
		for i, d := range telemetry.Metrics {
			if d.Prometheus != "" {
				gauge(d.Prometheus, d.Help, s.Values[i])
			}
		}
	}
	m.writeResults(t, &s)
	m.writeRanks(t, &s)
	m.writeSensors(t, &s)
	m.writeLinks(t, &s)
	return t.out
}

// writeResults writes the metrics of evaluations, checkpoints (rank 0 only) and decisions.
func (m *Metrics) writeResults(t *text, s *State) {
	gauge := func(name, help string, v float64) { t.family(name, "gauge", help); t.sample(v) }
	counter := func(name, help string, v float64) { t.family(name, "counter", help); t.sample(v) }
	counter("hetero_train_evaluations_total", "Evaluations of this process.", float64(s.Evaluations))
	if s.Evaluations > 0 {
		gauge("hetero_train_evaluation_step", "Optimizer steps before the last evaluation.", float64(s.EvaluationStep))
		gauge("hetero_train_evaluation_loss", "Mean loss of the last evaluation.", s.EvaluationLoss)
		if len(m.run.Metrics) > 0 {
			t.family("hetero_train_evaluation_metric", "gauge", "Metrics of the last evaluation; fractions are 0 to 1.")
			for i, name := range m.run.Metrics {
				t.sample(s.EvaluationMetrics[i], label{"metric", name})
			}
		}
	}
	if slices.ContainsFunc(m.run.Ranks, func(r Rank) bool { return r.Number == 0 }) { // only rank 0 saves checkpoints
		m.writeSaves(t, s)
	}
	counter("hetero_train_decisions_total", "Decisions of the load balancer.", float64(s.Decisions))
	counter("hetero_train_share_changes_total", "Decisions of the load balancer that changed the shares.",
		float64(s.Changes))
	if s.Decisions > 0 {
		if s.Oracle == s.Oracle {
			gauge("hetero_train_oracle_ratio",
				"Step time with the best shares divided by the step time, without noise, in the last window.", s.Oracle)
		}
		if s.Gain == s.Gain {
			gauge("hetero_train_gain_ratio", "Throughput divided by the throughput that equal shares would have on the same curves, in the last window.",
				s.Gain)
		}
		gauge("hetero_train_imbalance_ratio",
			"Difference between the slowest and the fastest rank, divided by the slowest, in the last window.",
			s.Imbalance)
		counter("hetero_train_useful_seconds_total", "Time of steps that is not lost.", s.Useful)
		t.family("hetero_train_lost_seconds_total", "counter", "Time that steps lost, by cause.")
		for i, cause := range Causes {
			t.sample(s.Lost[i], label{"cause", cause})
		}
		if len(m.run.NoiseCauses) > 0 {
			t.family("hetero_train_noise_seconds_total", "counter",
				"Noise of windows that lose at least 1 % to it, by the cause that sensors of the ranks show.")
			for i, cause := range m.run.NoiseCauses {
				t.sample(s.Noise[i], label{"cause", cause})
			}
		}
	}
}

// writeSaves writes the metrics of checkpoints.
func (m *Metrics) writeSaves(t *text, s *State) {
	gauge := func(name, help string, v float64) { t.family(name, "gauge", help); t.sample(v) }
	t.family("hetero_train_checkpoints_total", "counter", "Checkpoints that this process has saved.")
	t.sample(float64(s.Checkpoints))
	if s.Checkpoints > 0 {
		gauge("hetero_train_last_checkpoint_timestamp_seconds", "Time of the last checkpoint of this process.",
			s.LastCheckpoint)
		gauge("hetero_train_checkpoint_save_seconds", "Duration of the last save.", s.CheckpointSeconds)
	}
}

// writeRanks writes the metrics of each rank except its sensors.
func (m *Metrics) writeRanks(t *text, s *State) {
	if s.Steps == 0 {
		return
	}
	each := func(name, kind, help string, value func(*RankState) float64) {
		t.family(name, kind, help)
		for i := range s.Ranks {
			t.sample(value(&s.Ranks[i]), label{"rank", m.numbers[i]})
		}
	}
	each("hetero_train_share", "gauge", "Samples of the global batch that the rank gets.", func(r *RankState) float64 {
		return float64(r.Share)
	})
	each("hetero_train_rank_samples_total", "counter", "Samples that the rank has trained in this process.",
		func(r *RankState) float64 { return float64(r.Samples) })
	each("hetero_train_rank_compute_seconds", "gauge", "Time of the rank's own work in the last step.",
		func(r *RankState) float64 { return r.Compute })
	t.family("hetero_train_rank_phase_seconds_total", "counter", "Time of the rank in each phase of the steps.")
	for i := range s.Ranks {
		for phase, name := range Phases {
			t.sample(s.Ranks[i].Phases[phase], label{"rank", m.numbers[i]}, label{"phase", name})
		}
	}
	if s.Decisions == 0 {
		return
	}
	t.family("hetero_train_rank_verdict", "gauge", "1 for the verdict on the rank, 0 for the other verdicts.")
	for i := range s.Ranks {
		if s.Ranks[i].Verdict < 0 {
			continue
		}
		for verdict, name := range Verdicts {
			t.sample(float64(b2i(verdict == s.Ranks[i].Verdict)), label{"rank", m.numbers[i]}, label{"verdict", name})
		}
	}
}
