package balancer

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/profiler/account"
)

// window collects the steps between two decisions. It leaves out the first step after a change of shares, because this
// step contains cold caches and the cost of the change.
type window struct {
	interval int
	since    int // steps since the last decision or change, used or not

	shares  []int
	skip    bool        // the next step is the first one with its shares
	compute [][]float64 // by rank and step: s, own and update
	own     [][]float64 // by rank and step: s
	data    []mean      // by rank: s
	use     []mean      // by rank: utilization
	memory  []mean      // by rank
	spread  mean        // (max - min) / max of own time
	exposed mean        // s
	seconds mean        // s

	account *account.Window
	step    []account.Rank // scratch memory of take
	longest float64        // s: longest step
}

// mean is a running mean that ignores NaN.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		m.sum, m.n = m.sum+v, m.n+1
	}
}

// meanOf returns the mean of all values.
func meanOf(values []float64) (m mean) {
	for _, v := range values {
		m.add(v)
	}
	return m
}

// or returns the mean, or otherwise if there are no values.
func (m mean) or(otherwise float64) float64 {
	if m.n == 0 {
		return otherwise
	}
	return m.sum / float64(m.n)
}

func newWindow(ranks, interval int) *window {
	w := &window{interval: interval, compute: make([][]float64, ranks), own: make([][]float64, ranks),
		data: make([]mean, ranks), use: make([]mean, ranks), memory: make([]mean, ranks), account: account.NewWindow(ranks), step: make([]account.Rank, ranks)}
	room := min(interval, 1024)
	for r := range ranks {
		w.compute[r], w.own[r] = make([]float64, 0, room), make([]float64, 0, room)
	}
	return w
}

// add adds a step and reports whether a decision is due.
func (w *window) add(s *Step) (due bool) {
	w.since++
	if !slices.Equal(s.Shares, w.shares) {
		first := w.shares == nil
		w.since = 1 // a change may come long after its decision; only steps with these shares count
		w.shares = append(w.shares[:0], s.Shares...)
		w.clear()
		w.skip = !first || s.Settling
	}
	if s.Settling {
		w.skip = true // the next step that is not settling is a first step again
		return false
	}
	if w.skip {
		w.skip = false
		return false
	}
	w.take(s)
	return w.since >= w.interval
}

func (w *window) take(s *Step) {
	least, most := math.Inf(1), 0.0
	for r := range w.compute {
		own := valid(at(s.Own, r))
		if s.Shares[r] > 0 && !math.IsNaN(own) {
			compute := own
			if u := valid(at(s.Update, r)); !math.IsNaN(u) {
				compute += u
			}
			w.compute[r] = append(w.compute[r], compute)
			w.own[r] = append(w.own[r], own)
			least, most = min(least, own), max(most, own)
		}
		data := max(at(s.Data, r), 0)
		w.step[r] = accountOf(s, r, own, data)
		w.data[r].add(data)
		w.use[r].add(at(s.Utilization, r))
		w.memory[r].add(at(s.Memory, r))
	}
	if most > 0 {
		w.spread.add((most - least) / most)
	}
	w.account.Add(valid(s.measured()), s.Exposed, w.step)
	w.exposed.add(max(s.Exposed, 0))
	w.seconds.add(valid(s.Seconds))
	if seconds := valid(s.Seconds); seconds > w.longest {
		w.longest = seconds
	}
}

// accountOf returns the times of a rank whose own time is own, and its wait for data data, in s; NaN: unknown.
func accountOf(s *Step, rank int, own, data float64) account.Rank {
	r := account.Rank{Samples: s.Shares[rank], Passes: own}
	if data > 0 {
		r.Data = min(data, own)
		r.Passes -= r.Data
	}
	if u := valid(at(s.Update, rank)); !math.IsNaN(u) {
		r.Update = u
	}
	if p := valid(at(s.Pause, rank)); !math.IsNaN(p) {
		r.Pause = p
	}
	return r
}

func at(values []float64, rank int) float64 {
	if rank >= len(values) {
		return math.NaN()
	}
	return values[rank]
}

// leastSeconds and MostSeconds, in s, limit the times that count as measurements; a clock that jumps gives other values.
const leastSeconds, MostSeconds = 1e-9, 1e9

// valid returns seconds, or NaN if it is not a measurement.
func valid(seconds float64) float64 {
	if !(seconds >= leastSeconds && seconds <= MostSeconds) {
		return math.NaN()
	}
	return seconds
}

// usual returns the mean time of a step without the longest one, because one slow step is not typical.
func (w *window) usual() float64 { return (w.seconds.sum - w.longest) / float64(w.seconds.n-1) }

// next begins the next interval.
func (w *window) next() {
	w.since = 0
	w.clear()
}

func (w *window) clear() {
	for r := range w.compute {
		w.compute[r], w.own[r] = w.compute[r][:0], w.own[r][:0]
	}
	clear(w.data)
	clear(w.use)
	clear(w.memory)
	w.account.Reset()
	w.spread, w.exposed, w.seconds, w.longest = mean{}, mean{}, mean{}, 0
}
