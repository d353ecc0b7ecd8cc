package runtime

import (
	"math"

	"github.com/hetero-train/hetero-train/profiler/account"
)

// BottleneckWindow is the number of steps of a window. Each window gets one verdict.
const BottleneckWindow = 50

// LostFraction is the smallest fraction of a step's time that a cause must cost to become the verdict. If no cause
// does, the run is compute-bound.
const LostFraction = 0.10

// WarmUpSteps is the number of steps at the start of a run that verdicts and mean times exclude, because page faults
// slow them down.
const WarmUpSteps = 2

// Limits of the verdict. Fractions are relative to the time of a step, unless the comment names another quantity.
const (
	// The previous verdict stays as long as its loss is at least keptFraction and no other loss exceeds this loss by
	// more than changeFraction.
	keptFraction   = 0.07
	changeFraction = 0.03
	// A rank that uses at least fullPercent percent of its memory counts as full: it cannot take more samples.
	fullPercent = 90.0
	// A rank with full memory counts as slowed down if its time per sample exceeds the usual time by at least this
	// fraction of the usual time.
	slowedFraction = 0.10
	// The usual time per sample of a rank is compared only while its share differs from its usual share by at most
	// this fraction.
	shareTolerance = 0.10
	// The advice mentions the optimizer if it takes more than this fraction of the step.
	optimizerBig = 0.15
)

// Bound is the cause that limits the speed of a run.
type Bound int

const (
	ComputeBound       Bound = iota // no cause costs LostFraction of a step
	DataBound                       // the step waits for data
	CommunicationBound              // the slowest rank waits for gradients and statistics
	StragglerBound                  // imbalance: ranks wait for a rank that has too many samples for its speed
	MemoryBound                     // full memory keeps ranks from taking more samples, or slows them down
	NoiseBound                      // ranks wait because their times vary from step to step

	bounds
)

// String implements fmt.Stringer.
func (b Bound) String() string {
	return [...]string{"compute-bound", "data-bound", "communication-bound", "straggler", "memory-bound",
		"noise-bound"}[b]
}

// causes maps each verdict to the name of a part in package account; "" for ComputeBound.
var causes = [bounds]string{DataBound: "data", CommunicationBound: "communication", StragglerBound: "imbalance",
	MemoryBound: "memory", NoiseBound: "noise"}

// CauseOf returns the part of package account that a verdict names. ok is false for ComputeBound and for an unknown
// verdict.
func CauseOf(bound string) (cause string, ok bool) {
	for b := range bounds {
		if b.String() == bound {
			return causes[b], causes[b] != ""
		}
	}
	return "", false
}

// RankTimes contains the measurements of one rank in one step, in seconds, as in its Record.
type RankTimes struct {
	Samples       int // number of samples; a rank with 0 is ignored
	Data          float64
	Forward       float64
	Backward      float64
	Exchanges     float64 // waits for exchanges of batch normalisation; part of Forward and Backward
	Communication float64 // wait for gradients
	Hidden        float64 // communication during computation
	Optimizer     float64
	MemoryPercent float64 // memory use in percent; NaN if unknown
}

// own returns the compute time of the rank: the time of the passes, without waits for other ranks and for data.
func (r *RankTimes) own() float64 { return max(0, r.Forward+r.Backward-r.Exchanges) }

func (r *RankTimes) total() float64 {
	return r.Data + r.Forward + r.Backward + r.Communication + r.Optimizer
}

// Bottleneck is the verdict on a window. Times are means over the window, in seconds per step.
type Bottleneck struct {
	account.Account // parts of a step, which sum to Step
	Bound           Bound
	// rank that causes the loss: with the longest wait for data, the straggler, with the fullest memory, or with most
	// of the noise; -1: no single rank
	Rank       int
	Slowest    float64 // for a straggler: fraction of the steps in which Rank was the slowest
	Ratio      float64 // for a straggler: compute time of Rank divided by the compute time with balanced shares
	Update     float64 // time of the optimizer, part of Useful
	Hidden     float64 // communication time during the backward pass
	Exchange   float64 // time of the exchanges of batch normalisation, part of Communication
	FullMemory float64 // largest memory use of all ranks, in percent; NaN if unknown
	Ranks      int     // number of ranks with samples
	Steps      int
	Cause      Cause // cause of more than half of the noise
}

// Lost returns the time that a cause costs, in seconds per step. It returns 0 for ComputeBound.
func (v *Bottleneck) Lost(cause Bound) float64 {
	return [bounds]float64{DataBound: v.Data, CommunicationBound: v.Communication, StragglerBound: v.Imbalance,
		MemoryBound: v.Memory, NoiseBound: v.Noise}[cause]
}

// Bottlenecks determines the cause that limits the speed of a run. It gives one verdict per window of steps.
//
//	b := runtime.NewBottlenecks(ranks)
//	b.Add(seconds, times)      // once per step: no allocation
//	b.Balanced(steps, split)   // after each decision of the balancer
//	b.Noise(seconds, cause)    // after each decision of the balancer
//	if b.Full() {
//		v := b.Verdict() // and starts the next window
//	}
//
// # Lost time
//
// Package account divides every step into useful work and lost time by cause. Granularity is never the verdict. In
// addition to package account, this type determines the cost of full memory: the cost of the samples that ranks with
// full memory cannot take, plus the slowdown of these ranks since their memory became full.
//
// The verdict is the cause with the largest loss if this loss is at least a tenth of the step. Otherwise the run is
// compute-bound. To suppress noise, the previous verdict stays as long as its loss is at least 7 % of the step and no
// other loss exceeds it by more than 3 % of the step.
type Bottlenecks struct {
	warm     int
	account  *account.Window
	step     []account.Rank // scratch memory of Add
	split    account.Split  // sums over the steps of the decisions in this window
	decided  float64        // number of steps in split
	newest   account.Split
	noise    noises // noise in the decisions of this window
	caused   Cause  // cause in the newest decision
	ranks    []rankWindow
	update   float64 // sums over the window of the fields with these names in Bottleneck
	exchange float64
	hidden   float64
	last     Bound
	speed    []float64 // speed of each rank in samples/s; scratch memory of Verdict
}

// rankWindow contains the sums of one rank over the window, and its usual speed before its memory was full.
type rankWindow struct {
	samples, own, data, memory float64
	slowest, steps             int

	usualShare, usualTime float64 // samples per step, and seconds per sample; 0 if unknown
}

// NewBottlenecks returns a Bottlenecks for the given number of ranks.
func NewBottlenecks(ranks int) *Bottlenecks {
	return &Bottlenecks{ranks: make([]rankWindow, ranks), speed: make([]float64, ranks),
		account: account.NewWindow(ranks), step: make([]account.Rank, ranks), newest: account.Unknown()}
}

// Add adds a step with its measured time in s, and one entry per rank. It ignores the first WarmUpSteps steps of a run,
// and ranks with times that are not finite.
func (b *Bottlenecks) Add(seconds float64, step []RankTimes) {
	if b.warm < WarmUpSteps {
		b.warm++
		return
	}
	slowest, own, update, hidden := -1, 0.0, 0.0, 0.0
	communication, exchanges := math.Inf(1), math.Inf(1)
	clear(b.step)
	for i := range min(len(step), len(b.ranks)) {
		r := &step[i]
		t := r.total()
		if r.Samples <= 0 || !(t > 0) || math.IsInf(t, 1) {
			continue
		}
		o := r.own()
		if slowest < 0 || o > own {
			slowest, own = i, o
		}
		b.step[i] = account.Rank{Samples: r.Samples, Passes: o, Data: r.Data, Update: r.Optimizer}
		update, hidden = max(update, r.Optimizer), max(hidden, r.Hidden)
		communication, exchanges = min(communication, r.Communication), min(exchanges, r.Exchanges)
		w := &b.ranks[i]
		w.steps++
		w.samples += float64(r.Samples)
		w.own += o
		w.data += r.Data
		if r.MemoryPercent > w.memory {
			w.memory = r.MemoryPercent
		}
	}
	if slowest < 0 {
		return
	}
	b.account.Add(seconds, communication+exchanges, b.step)
	b.ranks[slowest].slowest++
	b.update += update
	b.exchange += exchanges
	b.hidden += hidden
}

// Balanced records a comparison by the balancer: the shares of the last steps with the best shares. Without calls of
// Balanced, the account assumes that times are in proportion to samples.
func (b *Bottlenecks) Balanced(steps int, split account.Split) {
	if b.warm < WarmUpSteps {
		return
	}
	if b.newest = split; split.Oracle != split.Oracle {
		return
	}
	n := float64(steps)
	b.decided += n
	b.split.Oracle += n * split.Oracle
	if split.Granularity > 0 {
		b.split.Granularity += n * split.Granularity
	}
}

// Noise records the cause of the noise in the last steps, as the balancer determined it. seconds is the total noise of
// these steps.
func (b *Bottlenecks) Noise(seconds float64, cause Cause) {
	if b.warm < WarmUpSteps {
		return
	}
	b.caused = cause
	b.noise.add(seconds, cause)
}

// causeOfWindow returns the cause of most of the noise in the window. For a window without a decision, it returns the
// cause of the newest decision.
func (b *Bottlenecks) causeOfWindow() Cause {
	if len(b.noise) == 0 {
		return b.caused
	}
	return b.noise.mainCause()
}

// splitOfWindow returns the mean split of the decisions in the window. For a window without a decision, it returns the
// split of the newest decision.
func (b *Bottlenecks) splitOfWindow() account.Split {
	if b.decided == 0 {
		return b.newest
	}
	return account.Split{Oracle: b.split.Oracle / b.decided, Granularity: b.split.Granularity / b.decided}
}

// Steps returns the number of steps in the window.
func (b *Bottlenecks) Steps() int { return b.account.Steps() }

// Full reports whether a window is complete.
func (b *Bottlenecks) Full() bool { return b.Steps() >= BottleneckWindow }

// Reset discards the steps of the window, for example when a run rolls back to an earlier step.
func (b *Bottlenecks) Reset() {
	for i := range b.ranks {
		w := &b.ranks[i]
		*w = rankWindow{usualShare: w.usualShare, usualTime: w.usualTime}
	}
	b.account.Reset()
	b.split, b.decided, b.noise = account.Split{}, 0, b.noise[:0]
	b.update, b.exchange, b.hidden = 0, 0, 0
}

// Verdict returns the verdict on the steps since the last verdict, and starts the next window. There must be at least
// one step.
func (b *Bottlenecks) Verdict() Bottleneck {
	n := float64(b.Steps())
	usual, free, bounded := b.balanced()
	v := Bottleneck{Rank: -1, Steps: b.Steps(), Update: b.update / n, Hidden: b.hidden / n, Exchange: b.exchange / n,
		FullMemory: math.NaN(), Cause: b.causeOfWindow(),
		Account: b.account.Account(b.splitOfWindow(),
			account.Memory{Kept: max(bounded-free, 0), Slowed: max(free-usual, 0)})}
	for i := range b.ranks {
		if b.ranks[i].steps > 0 {
			v.Ranks++
		}
	}
	v.Bound = b.choose(&v)
	b.point(&v)
	b.last = v.Bound
	b.rememberUsual()
	b.Reset()
	return v
}

// choose returns the cause with the largest loss. If the previous cause costs nearly as much, it returns the previous
// cause.
func (b *Bottlenecks) choose(v *Bottleneck) Bound {
	most := ComputeBound
	for cause := range bounds {
		if v.Lost(cause) > v.Lost(most) {
			most = cause
		}
	}
	if last := v.Lost(b.last); b.last != ComputeBound && last >= keptFraction*v.Step &&
		v.Lost(most)-last <= changeFraction*v.Step {
		return b.last
	}
	if v.Lost(most) < LostFraction*v.Step {
		return ComputeBound
	}
	return most
}

// balanced returns the compute time of a step with samples in proportion to the speeds of the ranks:
//
//	usual    with the speeds that the ranks had before their memory was full
//	free     with the current speeds
//	bounded  with the current speeds, and no additional samples for ranks with full memory
func (b *Bottlenecks) balanced() (usual, free, bounded float64) {
	batch, speeds, usualSpeeds := 0.0, 0.0, 0.0
	for i := range b.ranks {
		w := &b.ranks[i]
		b.speed[i] = 0
		if w.own <= 0 {
			continue
		}
		b.speed[i] = w.samples / w.own
		batch += w.samples / float64(b.Steps())
		speeds += b.speed[i]
		usualSpeeds += max(b.speed[i], w.usualSpeed())
	}
	if speeds == 0 {
		return 0, 0, 0
	}
	return batch / usualSpeeds, batch / speeds, b.bounded(batch, speeds)
}

// bounded returns the compute time of a step in which ranks with full memory keep their current samples, and the other
// ranks take the rest. In each round, full ranks that would get more samples than they have keep their current samples.
// This makes the step longer, so the next round may find further such ranks.
func (b *Bottlenecks) bounded(batch, speeds float64) (seconds float64) {
	const rounding = 1 + 1e-9
	least, again := 0.0, true
	for again {
		again, seconds = false, batch/speeds
		left := 0
		for i := range b.ranks {
			w := &b.ranks[i]
			if b.speed[i] == 0 {
				continue
			}
			share := w.samples / float64(b.Steps())
			if !w.full() || b.speed[i]*seconds <= rounding*share {
				left++
				continue
			}
			least = max(least, share/b.speed[i])
			batch, speeds = batch-share, speeds-b.speed[i]
			b.speed[i], again = 0, true
		}
		if left == 0 {
			return least
		}
	}
	return max(least, seconds)
}

func (w *rankWindow) full() bool { return w.memory >= fullPercent }

// usualSpeed returns the speed that a rank had before its memory was full. It returns 0 if the memory is not full, if
// the rank is not slower than before, or if its share has changed.
func (w *rankWindow) usualSpeed() float64 {
	share, time := w.samples/float64(w.steps), w.own/w.samples
	if !w.full() || w.usualTime == 0 || math.Abs(share-w.usualShare) > shareTolerance*w.usualShare ||
		time < (1+slowedFraction)*w.usualTime {
		return 0
	}
	return 1 / w.usualTime
}

// rememberUsual stores the share and the shortest time per sample of each rank whose memory is not full.
func (b *Bottlenecks) rememberUsual() {
	for i := range b.ranks {
		w := &b.ranks[i]
		if w.own <= 0 || w.full() {
			continue
		}
		share, time := w.samples/float64(w.steps), w.own/w.samples
		if w.usualTime == 0 || math.Abs(share-w.usualShare) > shareTolerance*w.usualShare || time < w.usualTime {
			w.usualShare, w.usualTime = share, time
		}
	}
}

// point sets the rank that the verdict names, if a single rank causes the loss.
func (b *Bottlenecks) point(v *Bottleneck) {
	data, slowest, fullest := 0, 0, 0
	for i := range b.ranks {
		w := &b.ranks[i]
		if w.data > b.ranks[data].data {
			data = i
		}
		if w.own+w.data > b.ranks[slowest].own+b.ranks[slowest].data {
			slowest = i
		}
		if w.memory > b.ranks[fullest].memory {
			fullest = i
		}
	}
	if most := b.ranks[fullest].memory; most > 0 {
		v.FullMemory = most
	}
	switch v.Bound {
	case DataBound:
		v.Rank = data
	case MemoryBound:
		v.Rank = fullest
	case NoiseBound:
		v.Rank = b.account.Blame()
	case StragglerBound:
		busy, _ := b.account.Steady()
		v.Rank, v.Ratio, v.Slowest = slowest, busy/max(busy-v.Imbalance, 1e-12),
			float64(b.ranks[slowest].slowest)/float64(b.Steps())
	}
}
