package account

import (
	"fmt"
	"math"
	"strings"
)

// Rank contains the measured times of one rank in one step, in s. A rank without samples is ignored.
type Rank struct {
	Samples int
	Passes  float64 // forward and backward passes, without waits for other ranks
	Data    float64 // wait for data
	Update  float64 // optimizer and other work, which do not depend on the number of samples of the rank
	// part of Update that is spent between two steps, for example on reports or records, or while the process was
	// stopped
	Pause float64
}

func (r *Rank) busy() float64 { return r.Passes + r.Update }

// Split compares the shares in use with the best shares.
type Split struct {
	// Oracle is the time of a step with the best shares divided by the time with the shares in use, 0…1. Both times
	// include exposed communication and exclude noise. NaN: unknown.
	Oracle float64
	// Granularity is the time that a step loses because samples cannot be divided, as a fraction of the step time with
	// the shares in use. NaN: unknown.
	Granularity float64
}

// Unknown returns the split of a window without curves.
func Unknown() Split { return Split{math.NaN(), math.NaN()} }

// Account contains the parts of a step, in s. They are at least 0 and sum to Step.
type Account struct {
	Step          float64 // measured time of a step
	Useful        float64
	Imbalance     float64 // the shares are not the best ones
	Communication float64 // exposed: not hidden by computation
	Data          float64 // waits for data
	Memory        float64 // full memory
	Noise         float64 // the times of ranks vary from step to step
	Granularity   float64 // samples, or groups of samples, cannot be divided
	Pauses        float64 // between two steps, and between the parts of a step
}

// Part is one part of a step.
type Part struct {
	Name    string
	Seconds float64
	Kind    string // kind of work or loss; completes the sentence "… of the step are …"
}

// names lists the name and the kind of each part, in the order of Parts.
var names = [...][2]string{
	{"useful", "useful work"},
	{"imbalance", "imbalance, which the best split would save"},
	{"communication", "exposed communication"},
	{"data", "waits for data"},
	{"memory", "the cost of full memory"},
	{"noise", "noise of the ranks' times, which no split removes"},
	{"granularity", "granularity: samples cannot be divided further"},
	{"pauses", "pauses between steps and between their parts"},
}

// Parts returns the parts. The first one is useful work, and the others are losses.
func (a *Account) Parts() []Part {
	parts := make([]Part, len(names))
	for i, seconds := range a.values() {
		parts[i] = Part{names[i][0], *seconds, names[i][1]}
	}
	return parts
}

func (a *Account) values() [len(names)]*float64 {
	return [...]*float64{&a.Useful, &a.Imbalance, &a.Communication, &a.Data, &a.Memory, &a.Noise, &a.Granularity,
		&a.Pauses}
}

// Losses are the names of the losses that a decision of the balancer states, in the order of Parts. Memory is missing,
// because only the verdict on a run determines it.
var Losses = [...]string{"imbalance", "communication", "data", "noise", "granularity", "pauses"}

// Lost returns the time of each of Losses, in s.
func (a *Account) Lost() [len(Losses)]float64 {
	return [...]float64{a.Imbalance, a.Communication, a.Data, a.Noise, a.Granularity, a.Pauses}
}

// Of returns the account of a step that takes the given time. The function part returns the time of the part with a
// given name. All times are in s.
func Of(step float64, part func(name string) float64) Account {
	a := Account{Step: step}
	for i, seconds := range a.values() {
		*seconds = part(names[i][0])
	}
	return a
}

// WorthNaming is the smallest noise, as a fraction of a step, for which reports name the rank and the cause.
const WorthNaming = 0.01

// String returns the account as a sum, such as "100.0 ms = 90.0 useful + 8.0 communication + 2.0 noise".
func (a *Account) String() string { return a.Text(-1) }

// Text returns the text of String. If the noise is at least WorthNaming, Text also names the rank noisy, which causes
// most of the noise. noisy is -1 if there is no single such rank.
func (a *Account) Text(noisy int) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%.1f ms = %.1f useful", 1e3*a.Step, 1e3*a.Useful)
	for _, p := range a.Parts()[1:] {
		if p.Seconds >= 5e-5 {
			fmt.Fprintf(&text, " + %.1f %s", 1e3*p.Seconds, p.Name)
			if p.Name == "noise" && noisy >= 0 && p.Seconds >= WorthNaming*a.Step {
				fmt.Fprintf(&text, " (mostly of rank %d)", noisy)
			}
		}
	}
	return text.String()
}

// Add adds the account of n steps to the sums in a. The account b contains the means over these steps.
func (a *Account) Add(b *Account, n float64) {
	a.Step += n * b.Step
	from := b.values()
	for i, to := range a.values() {
		*to += n * *from[i]
	}
}

// Over divides the sums in a by n, the number of steps, and returns the means.
func (a Account) Over(n float64) Account {
	a.Step /= n
	for _, part := range a.values() {
		*part /= n
	}
	return a
}

// Window sums up the times of steps.
type Window struct {
	n        int
	seconds  float64 // sum over steps of the measured time
	squares  float64 // sum over steps of the squared measured time
	exposed  float64 // sum over steps of the exposed communication
	slowest  float64 // sum over steps of the longest busy time of a rank, without waits for data
	withData float64 // sum over steps of the longest busy time of a rank, with waits for data
	ranks    []group
	all      []total // sums over the window, by rank
	steady   float64 // sum over groups of (number of steps · longest mean busy time of a rank, with waits for data)
	best     float64 // like steady, but with shares in proportion to the speeds of the ranks
	free     float64 // like best, but without waits for data
	pauses   float64 // part of steady that pauses cause
	steps    int     // number of steps of the current group
	longest  []total // by rank: sums over the steps in which this rank has the longest busy time
}

// group contains the sums of a rank over the successive steps in which its share is the same.
type group struct {
	share                                int
	samples, passes, data, update, pause float64
}

// total contains the sums of a rank over the window.
type total struct {
	busy float64 // with waits for data
	n    int
}

// NewWindow returns an empty window for the given number of ranks.
func NewWindow(ranks int) *Window {
	return &Window{ranks: make([]group, ranks), all: make([]total, ranks), longest: make([]total, ranks)}
}

// Steps returns the number of steps in the window.
func (w *Window) Steps() int { return w.n }

// Spread returns the number of steps in the window, and the standard error of their mean time.
func (w *Window) Spread() Spread {
	if w.n < 2 {
		return Spread{w.n, math.NaN()}
	}
	n := float64(w.n)
	mean := w.seconds / n
	return Spread{w.n, math.Sqrt(max(w.squares/n-mean*mean, 0)/(n-1)) / mean}
}

// Reset removes all steps.
func (w *Window) Reset() {
	clear(w.ranks)
	clear(w.all)
	clear(w.longest)
	*w = Window{ranks: w.ranks, all: w.all, longest: w.longest}
}

// Add adds a step. seconds is its measured time, and exposed its exposed communication, both in s. If seconds is not
// positive and finite, the longest busy time plus the exposed communication replaces it. Add ignores a rank without
// samples, and a rank whose busy time is not positive and finite. If no other rank remains, Add ignores the step.
func (w *Window) Add(seconds, exposed float64, step []Rank) {
	step = step[:min(len(step), len(w.ranks))]
	slowest, withData, last := 0.0, 0.0, -1
	for i := range step {
		r := &step[i]
		if !r.counts() {
			continue
		}
		slowest = max(slowest, r.busy())
		if t := r.busy() + r.Data; last < 0 || t > withData {
			withData, last = t, i
		}
	}
	if last < 0 {
		return
	}
	if !(exposed > 0) || math.IsInf(exposed, 1) {
		exposed = 0
	}
	if !(seconds > 0) || math.IsInf(seconds, 1) {
		seconds = withData + exposed
	}
	for i := range step {
		if step[i].counts() && step[i].Samples != w.ranks[i].share {
			w.close()
			break
		}
	}
	for i := range step {
		r, g := &step[i], &w.ranks[i]
		if !r.counts() {
			continue
		}
		g.share = r.Samples
		g.samples, g.passes, g.data, g.update = g.samples+float64(r.Samples), g.passes+r.Passes, g.data+r.Data,
			g.update+r.Update
		g.pause += max(r.Pause, 0)
		w.all[i].busy += r.busy() + r.Data
		w.all[i].n++
	}
	w.longest[last].busy += withData
	w.longest[last].n++
	w.n, w.steps = w.n+1, w.steps+1
	w.squares += seconds * seconds
	w.seconds, w.exposed = w.seconds+seconds, w.exposed+exposed
	w.slowest, w.withData = w.slowest+slowest, w.withData+withData
}

func (r *Rank) counts() bool {
	t := r.busy() + r.Data
	return r.Samples > 0 && t > 0 && !math.IsInf(t, 1)
}

// close ends the current group, which consists of the steps since the last change of shares.
func (w *Window) close() {
	steady, best, free := w.group()
	w.steady, w.best, w.free, w.pauses, w.steps = w.steady+steady, w.best+best, w.free+free, w.pauses+w.paused(steady),
		0
	clear(w.ranks)
}

// group returns the terms of the current group in w.steady, w.best and w.free.
func (w *Window) group() (steady, best, free float64) {
	samples, speeds, freeSpeeds, update := 0.0, 0.0, 0.0, 0.0
	for i := range w.ranks {
		g := &w.ranks[i]
		if g.samples == 0 {
			continue
		}
		steady = max(steady, g.passes+g.data+g.update)
		samples, update = samples+g.samples, max(update, g.update)
		speeds += g.samples / max(g.passes+g.data, 1e-12)
		freeSpeeds += g.samples / max(g.passes, 1e-12)
	}
	if samples == 0 {
		return 0, 0, 0
	}
	return steady, min(samples/speeds+update, steady), min(samples/freeSpeeds+update, steady)
}

// paused returns the part of the current group's longest busy time (steady) that pauses cause.
func (w *Window) paused(steady float64) float64 {
	without := 0.0
	for i := range w.ranks {
		g := &w.ranks[i]
		without = max(without, g.passes+g.data+g.update-min(g.pause, g.update))
	}
	return steady - without
}

// Steady returns two means per step: busy, the time without noise and exposed communication, and the exposed
// communication.
func (w *Window) Steady() (busy, exposed float64) {
	steady, _, _ := w.group()
	n := float64(max(w.n, 1))
	return (w.steady + steady) / n, w.exposed / n
}

// Memory is the cost of full memory, in s per step.
type Memory struct {
	Kept   float64 // because ranks with full memory cannot take more samples
	Slowed float64 // because ranks are slower since their memory became full
}

// Account returns the means over the steps of the window, which must contain at least one step. Unless split is
// Unknown, the best shares in it must respect the memory limits of the ranks.
func (w *Window) Account(split Split, memory Memory) Account {
	steady, best, free := w.group()
	n := float64(w.n)
	pauses := (w.pauses + w.paused(steady)) / n
	steady, best, free = (w.steady+steady)/n, (w.best+best)/n, (w.free+free)/n
	exposed, withData := w.exposed/n, w.withData/n
	// Without waits for data, the best shares may differ. The variable both is the time that a step would save with
	// those shares and without waits for data: the sum of the losses imbalance and data.
	both := steady - free
	data := min(max(withData-w.slowest/n, best-free), both)
	saved := both - data - memory.Kept
	if split.Oracle == split.Oracle {
		saved = (1 - min(max(split.Oracle, 0), 1)) * (steady + exposed)
		data = min(data, both-saved)
	}
	granularity := 0.0
	if split.Granularity > 0 {
		granularity = min(split.Granularity, 1) * (steady + exposed)
	}
	a := Account{Step: w.seconds / n}
	left := a.Step
	take := func(part *float64, want float64) {
		*part = min(max(want, 0), left)
		left -= *part
	}
	take(&a.Noise, withData-steady)
	take(&a.Communication, exposed)
	take(&a.Imbalance, saved)
	take(&a.Memory, memory.Kept+memory.Slowed)
	take(&a.Data, data)
	take(&a.Granularity, granularity)
	take(&a.Pauses, pauses+max(a.Step-withData-exposed, 0)) // measured time beyond busy time and exposed communication
	a.Useful = left
	return a
}

// blamed is the smallest fraction of the noise that a rank must cause so that Blame returns it. Of two equal ranks,
// each causes about half.
const blamed = 0.85

// Blame returns the rank that causes at least the fraction blamed of the noise, or -1 if there is no such rank. A rank
// causes noise in the steps in which it is the slowest rank: the time by which it exceeds its own mean.
func (w *Window) Blame() int {
	sum, most, rank := 0.0, 0.0, -1
	for i, l := range w.longest {
		if l.n == 0 {
			continue
		}
		excess := max(l.busy-float64(l.n)*w.all[i].busy/float64(w.all[i].n), 0)
		if sum += excess; excess > most {
			most, rank = excess, i
		}
	}
	if most < blamed*sum {
		return -1
	}
	return rank
}
