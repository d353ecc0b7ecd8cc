package balancer

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
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
	data    []stat.Mean // by rank: s
	use     []stat.Mean // by rank: utilization
	memory  []stat.Mean // by rank
	spread  stat.Mean   // (max - min) / max of own time
	exposed stat.Mean   // s
	seconds stat.Mean   // s

	account *account.Window
	step    []account.Rank // scratch memory of take
	longest float64        // s: longest step
}

func newWindow(ranks, interval int) *window {
	w := &window{interval: interval, compute: make([][]float64, ranks), own: make([][]float64, ranks),
		data: make([]stat.Mean, ranks), use: make([]stat.Mean, ranks), memory: make([]stat.Mean, ranks), account: account.NewWindow(ranks), step: make([]account.Rank, ranks)}
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
		own := divide.Measured(at(s.Own, r))
		if s.Shares[r] > 0 && !math.IsNaN(own) {
			compute := own
			if u := divide.Measured(at(s.Update, r)); !math.IsNaN(u) {
				compute += u
			}
			w.compute[r] = append(w.compute[r], compute)
			w.own[r] = append(w.own[r], own)
			least, most = min(least, own), max(most, own)
		}
		data := max(at(s.Data, r), 0)
		w.step[r] = accountOf(s, r, own, data)
		w.data[r].Add(data)
		w.use[r].Add(at(s.Utilization, r))
		w.memory[r].Add(at(s.Memory, r))
	}
	if most > 0 {
		w.spread.Add((most - least) / most)
	}
	w.account.Add(divide.Measured(s.measured()), s.Exposed, w.step)
	w.exposed.Add(max(s.Exposed, 0))
	w.seconds.Add(divide.Measured(s.Seconds))
	if seconds := divide.Measured(s.Seconds); seconds > w.longest {
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
	if u := divide.Measured(at(s.Update, rank)); !math.IsNaN(u) {
		r.Update = u
	}
	if p := divide.Measured(at(s.Pause, rank)); !math.IsNaN(p) {
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

// usual returns the mean time of a step without the longest one, because one slow step is not typical.
func (w *window) usual() float64 { return (w.seconds.Sum - w.longest) / float64(w.seconds.N-1) }

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
	w.spread, w.exposed, w.seconds, w.longest = stat.Mean{}, stat.Mean{}, stat.Mean{}, 0
}
