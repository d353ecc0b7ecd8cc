package runs

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/profiler/account"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// Limits of the lists of a run. Older entries are dropped.
const (
	mostChanges = 1000
	mostEvents  = 2000
	mostAlerts  = 500
)

// Decision is one decision of the balancer, a line of logs/balance.jsonl. Times are in s per step; nil means unknown.
type Decision struct {
	Step      int64               `json:"step"`
	Policy    string              `json:"policy"`
	Shares    []int               `json:"shares"`
	Next      []int               `json:"next"`
	Changed   bool                `json:"changed"`
	Reason    string              `json:"reason"`
	Seconds   *float64            `json:"step_seconds"`        // measured
	Fitted    *float64            `json:"fitted_step_seconds"` // step time with Shares, from the fitted curves
	Oracle    *float64            `json:"oracle_step_seconds"` // step time with the best shares, from the fitted curves
	OfOracle  *float64            `json:"share_of_oracle"`     // fraction 0…1
	Low       *float64            `json:"share_of_oracle_low"`
	High      *float64            `json:"share_of_oracle_high"`
	Unknown   string              `json:"share_of_oracle_unknown,omitempty"`      // why OfOracle is unknown
	Differs   string              `json:"share_of_oracle_disagreement,omitempty"` // why OfOracle and Ranks differ
	Imbalance *float64            `json:"imbalance"`                              // fraction 0…1
	Useful    *float64            `json:"useful_seconds"`                         // useful part of Seconds
	Noisy     *int                `json:"noisy_rank"`                             // rank that causes most of the noise
	NoiseWhy  string              `json:"noise_cause,omitempty"`                  // "unknown": no sensor shows a cause
	NoiseSign string              `json:"noise_evidence,omitempty"`               // evidence for NoiseWhy
	Lost      map[string]*float64 `json:"lost_seconds"`                           // other parts of Seconds, by cause
	Equal     *float64            `json:"equal_step_seconds"`                     // step time with equal shares
	EqualLow  *float64            `json:"equal_step_seconds_low"`                 // ends of its 90 % interval
	EqualHigh *float64            `json:"equal_step_seconds_high"`
	EqualWhy  string              `json:"equal_step_unknown,omitempty"` // why Equal is unknown
	Predicted *float64            `json:"predicted_step_seconds"`       // step time with Next, from the fitted curves
	// Outcome is the outcome of the previous change of shares. In View.Changes, it is the outcome of the change that
	// this Decision made.
	Outcome *Outcome       `json:"outcome"`
	Ranks   []DecisionRank `json:"ranks,omitempty"`
}

// ParseDecision reads a line of logs/balance.jsonl. It reports false for a damaged line. A line also counts as damaged
// in these cases: a time or a share is negative, a fraction is not from 0 to 1, or an interval's low end is above its
// high end.
func ParseDecision(line []byte) (d Decision, ok bool) {
	if json.Unmarshal(line, &d) != nil || d.Step < 1 || d.Step > runtime.MostStep {
		return Decision{}, false
	}
	return d, d.possible()
}

// possible reports whether the values of the decision can come from a balancer.
func (d *Decision) possible() bool {
	const rounding = 1e-9
	times := []*float64{d.Seconds, d.Fitted, d.Oracle, d.Useful, d.Equal, d.EqualLow, d.EqualHigh, d.Predicted}
	for _, p := range d.Lost {
		times = append(times, p)
	}
	for _, r := range d.Ranks {
		times = append(times, r.Seconds, r.Error)
	}
	for _, p := range times {
		if p != nil && *p < -rounding {
			return false
		}
	}
	for _, p := range []*float64{d.OfOracle, d.Low, d.High, d.Imbalance} {
		if p != nil && !(*p >= -rounding && *p <= 1+rounding) {
			return false
		}
	}
	exchanged := func(low, high *float64) bool { return low != nil && high != nil && *low > *high+rounding }
	if exchanged(d.Low, d.High) || exchanged(d.EqualLow, d.EqualHigh) {
		return false
	}
	return !slices.ContainsFunc(slices.Concat(d.Shares, d.Next), func(n int) bool { return n < 0 || n > math.MaxInt32 })
}

// Outcome states the predicted and the achieved speed-up of a change of shares. Both exclude the noise of steps.
type Outcome struct {
	Step      int64    `json:"step"` // step of the decision that made the change
	Predicted *float64 `json:"predicted"`
	Achieved  *float64 `json:"achieved"`
	Low       *float64 `json:"achieved_low"` // ends of the 90 % interval of Achieved
	High      *float64 `json:"achieved_high"`
	// steps are slower than before the change, and slower than predicted, by more than the noise
	Worse bool `json:"worse,omitempty"`
}

// DecisionRank contains the values of a decision for one rank.
type DecisionRank struct {
	Seconds  *float64 `json:"seconds"`
	Fitted   *float64 `json:"fitted_seconds"`
	Error    *float64 `json:"fitted_error_seconds"`
	Waited   *float64 `json:"waited_seconds"`
	Caused   *float64 `json:"caused_seconds"`
	Health   string   `json:"health"`
	Cause    string   `json:"cause,omitempty"`
	Evidence string   `json:"evidence,omitempty"`
}

// Alert reports a problem that needs attention, or the end of such a problem.
type Alert struct {
	Step     int64     `json:"step"`
	Kind     AlertKind `json:"kind"`
	Rank     int       `json:"rank"` // rank with the problem; -1: all ranks
	Text     string    `json:"text"`
	Evidence string    `json:"evidence"`
}

// AlertKind is the kind of an alert.
type AlertKind string

// The kinds of alerts.
const (
	StragglerAlert  AlertKind = "straggler"  // a rank is slower than usual
	SlowTypeAlert   AlertKind = "slow type"  // a rank has a slower type of device
	RecoveredAlert  AlertKind = "recovered"  // a straggler has its usual speed again
	BottleneckAlert AlertKind = "bottleneck" // one cause costs much time in several successive windows
	SkippedAlert    AlertKind = "skipped"    // steps without an update
)

// Limits of alerts.
const (
	// A cause gives an alert if two conditions hold: it is the verdict of lastingWindows successive windows, and in the
	// newest of them it costs more than the fraction mostLost of a step.
	lastingWindows = 3
	mostLost       = 0.2
)

// decided contains the data that were read from the decisions of the balancer.
type decided struct {
	replaced int
	damaged  int
	grid     *grid
	last     *Decision
	changes  history[Decision]
	settled  []straggler.Settled // by rank
	alerts   history[Alert]
}

func newDecided() decided { return decided{grid: newGrid(len(decisionColumns), 2048)} }

// follow removes all decisions if the file was replaced.
func (d *decided) follow(replaced int) {
	if replaced != d.replaced {
		*d = newDecided()
		d.replaced = replaced
	}
}

func (d *decided) add(line []byte, replaced int) {
	d.follow(replaced)
	v, ok := ParseDecision(line)
	if !ok || tooLarge(line) {
		d.damaged++
		return
	}
	of := func(p *float64) float64 {
		if p == nil {
			return math.NaN()
		}
		return *p
	}
	values := []float64{of(v.OfOracle), of(v.Low), of(v.High), of(v.Imbalance), of(v.Seconds), of(v.Oracle),
		of(v.Useful), of(v.Equal), of(v.EqualLow), of(v.EqualHigh)}
	for _, cause := range account.Losses {
		values = append(values, of(v.Lost[cause]))
	}
	d.grid.add(v.Step, 0, 0, values)
	d.noteOutcome(v.Outcome)
	d.compareHealth(&v)
	d.last = &v
	if v.Changed {
		short := v
		short.Ranks, short.Outcome = nil, nil
		bytes := 8*(len(v.Shares)+len(v.Next)) + 64*len(v.Lost) + len(v.Reason) + len(v.Policy) + len(v.Unknown) +
			len(v.Differs) + len(v.EqualWhy) + len(v.NoiseWhy) + len(v.NoiseSign)
		d.changes.add(short, bytes, mostChanges)
	}
}

// noteOutcome stores the outcome of a change of shares in the entry of this change.
func (d *decided) noteOutcome(o *Outcome) {
	if o == nil {
		return
	}
	for i := range slices.Backward(d.changes.list) {
		if c := &d.changes.list[i]; c.Step <= o.Step {
			if c.Step == o.Step {
				c.Outcome = o
			}
			return
		}
	}
}

// compareHealth adds an alert for each rank whose settled verdict has changed.
func (d *decided) compareHealth(v *Decision) {
	if len(d.settled) != len(v.Ranks) {
		d.settled = make([]straggler.Settled, len(v.Ranks))
	}
	for i, r := range v.Ranks {
		kind, known := straggler.ParseKind(r.Health)
		if !known {
			continue
		}
		s := &d.settled[i]
		news := s.Add(v.Step, kind)
		a := Alert{Step: s.Since, Rank: i, Evidence: r.Evidence}
		switch news {
		case straggler.NoNews:
			continue
		case straggler.IsSick:
			a.Kind, a.Text = StragglerAlert, fmt.Sprintf("rank %d is slower than usual, cause: %s", i, r.Cause)
		case straggler.IsSlow:
			a.Kind, a.Text = SlowTypeAlert, fmt.Sprintf("rank %d has a slower type of device", i)
		case straggler.Recovered:
			a.Kind, a.Text = RecoveredAlert, fmt.Sprintf("rank %d has its usual speed again", i)
		}
		d.alerts.add(a, len(a.Text)+len(a.Evidence), mostAlerts)
	}
}

// Verdict combines successive windows in which the same cause limits the speed of the run.
type Verdict struct {
	From       int64 `json:"from"`        // first step of the first window
	To         int64 `json:"to"`          // last step of the last window
	NewestFrom int64 `json:"newest_from"` // first step of the last window; the times and the text belong to this window
	runtime.BottleneckEvent
}

// lost returns the fraction of a step that the cause of the verdict costs in the newest window, 0…1.
func (v *Verdict) lost() float64 {
	cause, ok := runtime.CauseOf(v.Bound)
	if !ok || !(v.Seconds > 0) {
		return 0
	}
	return v.Parts[cause] / v.Seconds
}

// happened contains the data that were read from the events.
type happened struct {
	replaced int
	damaged  int
	starts   history[runtime.Event]
	evals    history[runtime.Event]
	saves    history[runtime.Event]
	verdicts history[Verdict]
	length   int64
	fresh    bool // a process has started since the last verdict
}

// newestStart returns the newest start of a process and its step, or zero values if none is known.
func (h *happened) newestStart() (step int64, start runtime.StartEvent) {
	if n := len(h.starts.list); n > 0 {
		return h.starts.list[n-1].Step, *h.starts.list[n-1].Start
	}
	return 0, runtime.StartEvent{}
}

// follow removes all events if the file was replaced.
func (h *happened) follow(replaced int) {
	if replaced != h.replaced {
		*h = happened{replaced: replaced}
	}
}

func (h *happened) add(line []byte, replaced int) {
	h.follow(replaced)
	var e runtime.Event
	if tooLarge(line) || json.Unmarshal(line, &e) != nil || e.Step < 0 || e.Step > runtime.MostStep ||
		e.Length != nil && (e.Length.Steps < 0 || e.Length.Steps > runtime.MostStep) {
		h.damaged++
		return
	}
	switch {
	case e.Start != nil:
		h.starts.add(e, len(line), mostEvents)
		h.fresh = true
	case e.Length != nil:
		h.length = e.Length.Steps
	case e.Evaluation != nil:
		h.evals.add(e, len(line), mostEvents)
	case e.Checkpoint != nil:
		h.saves.add(e, len(line), mostEvents)
	case e.Bottleneck != nil:
		first, _ := h.newestStart() // step at which the process began; the window does not begin before it
		from := max(e.Step-runtime.BottleneckWindow, first) + 1
		v := Verdict{From: from, To: e.Step, NewestFrom: from, BottleneckEvent: *e.Bottleneck}
		joins := !h.fresh // false for the first verdict of a process, which may concern other ranks
		h.fresh = false
		if n := len(h.verdicts.list); joins && n > 0 && h.verdicts.list[n-1].Bound == v.Bound &&
			h.verdicts.list[n-1].Rank == v.Rank {
			v.From = h.verdicts.list[n-1].From
			h.verdicts.list[n-1] = v
			return
		}
		h.verdicts.add(v, len(line), mostAlerts)
	}
}

// alerts returns the alerts of all sources, sorted by step.
func (r *Run) alerts() []Alert {
	all := slices.Clone(r.decided.alerts.list)
	for _, v := range r.happened.verdicts.list {
		if lost := v.lost(); v.To-v.From+1 >= lastingWindows*runtime.BottleneckWindow && lost > mostLost {
			all = append(all,
				Alert{Step: v.From, Kind: BottleneckAlert, Rank: v.Rank,
					Text: fmt.Sprintf("%s for %d steps: %.0f %% of a step are lost", v.Bound, v.To-v.From+1,
						100*lost),
					Evidence: v.Advice})
		}
	}
	if len(r.ranks) > 0 {
		g, skipped := r.ranks[0].grid, len(rankColumns)+find(runColumns, "skipped")
		for i := 0; i < len(g.cells[skipped]); i++ {
			steps, first := 0, i
			for ; i < len(g.cells[skipped]) && g.cells[skipped][i].sum > 0; i++ { // successive cells give one alert
				steps += int(g.cells[skipped][i].sum)
			}
			if i > first {
				all = append(all, Alert{Step: g.place[i-1].last, Kind: SkippedAlert, Rank: -1,
					Text: plural(steps, "step skipped", "steps skipped") + " because the gradient was not finite"})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Alert) int { return int(a.Step - b.Step) })
	return newest(all, mostAlerts)
}

// newest returns the last elements of list, at most limit of them.
func newest[T any](list []T, limit int) []T {
	if len(list) <= limit {
		return list
	}
	return slices.Clone(list[len(list)-limit:])
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
