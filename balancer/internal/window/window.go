package window

import (
	"math"
	"slices"
	"unsafe"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
	"github.com/hetero-train/hetero-train/profiler/account"
)

// Window collects the steps between two decisions. It leaves out the first step after a change of shares, because this
// step contains cold caches and the cost of the change.
type Window struct {
	interval int
	since    int // steps since the last decision or change, used or not

	Shares  []int
	skip    bool        // the next step is the first one with its shares
	Compute [][]float64 // by rank and step: s, own and update
	Own     [][]float64 // by rank and step: s
	data    []stat.Mean // by rank: s
	Use     []stat.Mean // by rank: utilization
	Memory  []stat.Mean // by rank
	spread  stat.Mean   // (max - min) / max of own time
	Exposed stat.Mean   // s
	Seconds stat.Mean   // s

	Account *account.Window
	step    []account.Rank // scratch memory of take
	longest float64        // s: longest step
}

// New returns an empty window. A decision is due after an interval, in steps.
func New(ranks, interval int) *Window {
	w := &Window{interval: interval, Compute: make([][]float64, ranks), Own: make([][]float64, ranks),
		data: make([]stat.Mean, ranks), Use: make([]stat.Mean, ranks), Memory: make([]stat.Mean, ranks),
		Account: account.NewWindow(ranks), step: make([]account.Rank, ranks)}
	room := min(interval, 1024)
	for _, list := range [][][]float64{w.Compute, w.Own} {
		flat := make([]float64, ranks*room) // one piece of memory for all ranks
		for r := range list {
			list[r] = flat[r*room : r*room : (r+1)*room]
		}
	}
	return w
}

// Add adds a step and reports whether a decision is due.
func (w *Window) Add(s *balancer.Step) (due bool) {
	w.since++
	if !slices.Equal(s.Shares, w.Shares) {
		first := w.Shares == nil
		w.since = 1 // shares may change long after the decision; only steps with the new shares count
		w.Shares = append(w.Shares[:0], s.Shares...)
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

func (w *Window) take(s *balancer.Step) {
	least, most := math.Inf(1), 0.0
	for r := range w.Compute {
		own := divide.Measured(at(s.Own, r))
		if s.Shares[r] > 0 && !math.IsNaN(own) {
			compute := own
			if u := divide.Measured(at(s.Update, r)); !math.IsNaN(u) {
				compute += u
			}
			w.Compute[r] = append(w.Compute[r], compute)
			w.Own[r] = append(w.Own[r], own)
			least, most = min(least, own), max(most, own)
		}
		data := max(at(s.Data, r), 0)
		w.step[r] = accountOf(s, r, own, data)
		w.data[r].Add(data)
		w.Use[r].Add(at(s.Utilization, r))
		w.Memory[r].Add(at(s.Memory, r))
	}
	if most > 0 {
		w.spread.Add((most - least) / most)
	}
	w.Account.Add(divide.Measured(s.WholeSeconds()), s.Exposed, w.step)
	w.Exposed.Add(max(s.Exposed, 0))
	w.Seconds.Add(divide.Measured(s.Seconds))
	if seconds := divide.Measured(s.Seconds); seconds > w.longest {
		w.longest = seconds
	}
}

// accountOf returns the times of a rank whose own time is own, and its wait for data data, in s; NaN: unknown.
func accountOf(s *balancer.Step, rank int, own, data float64) account.Rank {
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

// Usual returns the mean time of a step without the longest one, because one slow step is not typical.
func (w *Window) Usual() float64 { return (w.Seconds.Sum - w.longest) / float64(w.Seconds.N-1) }

// Bytes returns the memory of the times that the window holds.
func (w *Window) Bytes() (bytes int64) {
	const slice, float = 24, 8
	for r := range w.Compute {
		bytes += 2*slice + float*int64(cap(w.Compute[r])+cap(w.Own[r]))
	}
	perRank := int64(unsafe.Sizeof(account.Rank{})) + 3*int64(unsafe.Sizeof(stat.Mean{}))
	return bytes + int64(len(w.Compute))*perRank
}

// Next begins the next interval.
func (w *Window) Next() {
	w.since = 0
	w.clear()
}

func (w *Window) clear() {
	for r := range w.Compute {
		w.Compute[r], w.Own[r] = w.Compute[r][:0], w.Own[r][:0]
	}
	clear(w.data)
	clear(w.Use)
	clear(w.Memory)
	w.Account.Reset()
	w.spread, w.Exposed, w.Seconds, w.longest = stat.Mean{}, stat.Mean{}, stat.Mean{}, 0
}

// Explain returns the part of an explanation that needs no step-time curves.
func (w *Window) Explain() balancer.Explanation {
	e := balancer.Unexplained(len(w.Compute))
	e.Imbalance, e.Noisy = w.spread.Or(0), w.Account.Blame()
	if w.Account.Steps() > 0 {
		e.Lost = w.Account.Account(account.Unknown(), account.Memory{})
		e.Seconds, e.Spread = e.Lost.Step, w.Account.Spread()
	}
	nan := math.NaN()
	for r := range e.Ranks {
		v := &e.Ranks[r]
		v.Seconds, v.Data = stat.MeanOf(w.Compute[r]).Or(nan), w.data[r].Or(nan)
		v.Utilization, v.Memory = w.Use[r].Or(nan), w.Memory[r].Or(nan)
	}
	return e
}
