package runtime

import "math"

// BottleneckWindow is how many steps a verdict is about.
const BottleneckWindow = 50

// LostFraction is the fraction of a step's time that a cause must take to be the verdict.
const LostFraction = 0.10

// Limits of the verdict. Shares are of the step's time.
const (
	lostShare    = LostFraction // what a cause must take to be the verdict; below it the run is compute-bound
	keptShare    = 0.07         // what the verdict of the window before must take to stay
	changeShare  = 0.03         // by how much another cause must be above it
	fullPercent  = 90.0         // memory from which on a rank can take no more samples
	slowedShare  = 0.10         // by how much a rank with full memory must be slower than before
	sameShare    = 0.10         // by how much its share may have changed meanwhile
	warmUpSteps  = 2            // of a run, which touch memory for the first time
	steadyShare  = 0.5          // of a straggler's loss that a rank must cause by its mean time, not by jitter, to be named
	optimizerBig = 0.15         // share of the step from which on the optimizer is spoken of
)

// Bound is what limits a run's speed.
type Bound int

const (
	ComputeBound       Bound = iota // nothing else takes 10 % of a step
	DataBound                       // the step waits for data
	CommunicationBound              // for gradients and statistics of other ranks, after the slowest rank is done
	StragglerBound                  // for ranks that have more work than they can do in the time of the others
	MemoryBound                     // for work that ranks with full memory cannot take, or that full memory slows down

	bounds
)

// String implements fmt.Stringer.
func (b Bound) String() string {
	return [...]string{"compute-bound", "data-bound", "communication-bound", "straggler", "memory-bound"}[b]
}

// RankTimes is what one rank measured in one step, in seconds, as in its Record.
type RankTimes struct {
	Samples       int // 0: the rank is left out
	Data          float64
	Forward       float64
	Backward      float64
	Exchanges     float64 // of batch normalisation, within forward and backward
	Communication float64 // exposed
	Hidden        float64
	Optimizer     float64
	MemoryPercent float64 // NaN unknown
}

// own is the rank's computing without data and without waiting for others.
func (r *RankTimes) own() float64 { return max(0, r.Forward+r.Backward-r.Exchanges) }

func (r *RankTimes) total() float64 {
	return r.Data + r.Forward + r.Backward + r.Communication + r.Optimizer
}

// Bottleneck is the verdict on a window. Times are seconds per step, means over the window.
type Bottleneck struct {
	Bound    Bound
	Lost     [bounds]float64 // to each cause; to compute nothing
	Rank     int             // which waits most for data, is the straggler, or has the fullest memory; -1: no single one
	Slowest  float64         // share of the steps in which Rank was the slowest, of a straggler
	Ratio    float64         // Rank's compute time over what it would be with shares in proportion to speed
	Step     float64         // the whole step
	Compute  float64         // what forward and backward would take with nothing lost
	Update   float64         // the optimizer
	Hidden   float64         // communication under the backward pass
	Exchange float64         // of the communication that was lost, exchanges of batch normalisation
	Memory   float64         // percent, the fullest rank; NaN unknown
	Ranks    int             // that had samples
	Steps    int
}

// Bottlenecks finds what limits a run, in windows of steps.
//
//	b := runtime.NewBottlenecks(ranks)
//	b.Add(times)         // once a step: no allocation
//	if b.Full() {
//		v := b.Verdict() // and the next window begins
//	}
//
// # What is lost
//
// Every step is taken apart so that the parts add up to it:
//
//	data           the slowest rank's time with its waiting for data, less the slowest rank's without: waiting on ranks
//	               that would have waited for others anyway costs nothing, unless shares are balanced with it: then it
//	               is what balanced shares would gain without it
//	communication  the least exposed communication and the least exchanges of any rank: what even the rank that all
//	               others wait for had to wait
//	straggler      the slowest rank's compute time, less the one that all would have with samples in proportion to
//	               their speed; where ranks with full memory cannot take their part of that, with as much as they have
//	memory         what their not taking it costs, and what they became slower by since their memory is full
//	optimizer and compute, which are not lost, are the rest
//
// Proportion takes a rank's time per sample as it is, so that a straggler's loss is a little too high where shares are
// small. The verdict is the cause that loses most, if that is a tenth of the step; else the run is compute-bound. The
// verdict before stays while it loses 7 % and no other loses 3 % of the step more, so that it does not change with noise.
type Bottlenecks struct {
	warm, steps int
	ranks       []rankWindow
	lost        [bounds]float64 // sums over the window: data at the present shares, communication
	slowest     float64         // sums of the slowest ranks' times with data, and of
	step        float64
	update      float64
	exchange    float64
	hidden      float64
	last        Bound
	speed       []float64 // scratch of Verdict
}

// rankWindow is one rank's sums over the window, and what it was like before its memory was full.
type rankWindow struct {
	samples, own, data, memory float64
	slowest, steps             int

	usualShare, usualTime float64 // samples a step, seconds a sample; 0 unknown
}

// NewBottlenecks watches a number of ranks.
func NewBottlenecks(ranks int) *Bottlenecks {
	return &Bottlenecks{ranks: make([]rankWindow, ranks), speed: make([]float64, ranks)}
}

// Add takes a step, one entry a rank. The first steps of a run are left out. A step whose times are no numbers is too.
func (b *Bottlenecks) Add(step []RankTimes) {
	if b.warm < warmUpSteps {
		b.warm++
		return
	}
	slowest, own, withData, total, update, hidden := -1, 0.0, 0.0, 0.0, 0.0, 0.0
	communication, exchanges := math.Inf(1), math.Inf(1)
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
		withData, total = max(withData, o+r.Data), max(total, t)
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
	b.steps++
	b.ranks[slowest].slowest++
	b.lost[DataBound] += withData - own
	b.lost[CommunicationBound] += communication + exchanges
	b.slowest += withData
	b.step += total
	b.update += update
	b.exchange += exchanges
	b.hidden += hidden
}

// Steps is how many steps the window has so far.
func (b *Bottlenecks) Steps() int { return b.steps }

// Full reports whether a window is complete.
func (b *Bottlenecks) Full() bool { return b.steps >= BottleneckWindow }

// Reset drops the window so far, as when a run goes back to an earlier step.
func (b *Bottlenecks) Reset() {
	for i := range b.ranks {
		w := &b.ranks[i]
		*w = rankWindow{usualShare: w.usualShare, usualTime: w.usualTime}
	}
	b.lost = [bounds]float64{}
	b.steps, b.slowest, b.step, b.update, b.exchange, b.hidden = 0, 0, 0, 0, 0, 0
}

// Verdict is that of the steps added since the last one, which must be at least one, and begins the next window.
func (b *Bottlenecks) Verdict() Bottleneck {
	n := float64(b.steps)
	v := Bottleneck{Rank: -1, Steps: b.steps, Step: b.step / n, Update: b.update / n, Hidden: b.hidden / n, Exchange: b.exchange / n, Memory: math.NaN()}
	v.Lost[DataBound], v.Lost[CommunicationBound] = b.lost[DataBound]/n, b.lost[CommunicationBound]/n
	for i := range b.ranks {
		if b.ranks[i].steps > 0 {
			v.Ranks++
		}
	}
	usual, free, bounded, withData := b.balanced()
	v.Compute = usual
	all := max(0, b.slowest/n-usual) // but communication
	shares := b.slowest/n - withData // gained by balancing as things are
	v.Lost[DataBound] = min(all, max(v.Lost[DataBound], withData-free-shares))
	v.Lost[MemoryBound] = min(all-v.Lost[DataBound], max(0, bounded-usual))
	v.Lost[StragglerBound] = all - v.Lost[DataBound] - v.Lost[MemoryBound]
	v.Bound = b.choose(&v)
	b.point(&v, free)
	b.last = v.Bound
	b.rememberUsual()
	b.Reset()
	return v
}

// choose finds the cause that loses most, and keeps the last one while it is nearly that.
func (b *Bottlenecks) choose(v *Bottleneck) Bound {
	most := ComputeBound
	for cause := range bounds {
		if v.Lost[cause] > v.Lost[most] {
			most = cause
		}
	}
	if last := v.Lost[b.last]; b.last != ComputeBound && last >= keptShare*v.Step && v.Lost[most]-last <= changeShare*v.Step {
		return b.last
	}
	if v.Lost[most] < lostShare*v.Step {
		return ComputeBound
	}
	return most
}

// balanced is the compute time of a step whose samples are divided in proportion to the ranks' speeds: as they were
// before their memory was full, as they are, with no more samples on ranks with full memory than they have, and with the
// waiting for data in it.
func (b *Bottlenecks) balanced() (usual, free, bounded, withData float64) {
	batch, speeds, usualSpeeds, speedsWithData := 0.0, 0.0, 0.0, 0.0
	for i := range b.ranks {
		w := &b.ranks[i]
		b.speed[i] = 0
		if w.own <= 0 {
			continue
		}
		b.speed[i] = w.samples / w.own
		batch += w.samples / float64(b.steps)
		speeds += b.speed[i]
		usualSpeeds += max(b.speed[i], w.usualSpeed())
		speedsWithData += w.samples / (w.own + w.data)
	}
	if speeds == 0 {
		return 0, 0, 0, 0
	}
	return batch / usualSpeeds, batch / speeds, b.bounded(batch, speeds), batch / speedsWithData
}

// bounded takes ranks with full memory out of the division, one round after the other: what they leave makes the step
// longer, and so other full ranks' parts larger.
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
			share := w.samples / float64(b.steps)
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

// usualSpeed is the speed of a rank before its memory was full, 0 where it is as fast, or has another share now.
func (w *rankWindow) usualSpeed() float64 {
	share, time := w.samples/float64(w.steps), w.own/w.samples
	if !w.full() || w.usualTime == 0 || math.Abs(share-w.usualShare) > sameShare*w.usualShare || time < (1+slowedShare)*w.usualTime {
		return 0
	}
	return 1 / w.usualTime
}

// rememberUsual keeps the best time per sample of ranks whose memory is not full, for the share that they have.
func (b *Bottlenecks) rememberUsual() {
	for i := range b.ranks {
		w := &b.ranks[i]
		if w.own <= 0 || w.full() {
			continue
		}
		share, time := w.samples/float64(w.steps), w.own/w.samples
		if w.usualTime == 0 || math.Abs(share-w.usualShare) > sameShare*w.usualShare || time < w.usualTime {
			w.usualShare, w.usualTime = share, time
		}
	}
}

// point names the rank that the verdict is about, where there is one.
func (b *Bottlenecks) point(v *Bottleneck, balanced float64) {
	data, slowest, fullest := 0, 0, 0
	for i := range b.ranks {
		w := &b.ranks[i]
		if w.data > b.ranks[data].data {
			data = i
		}
		if w.own > b.ranks[slowest].own {
			slowest = i
		}
		if w.memory > b.ranks[fullest].memory {
			fullest = i
		}
	}
	if most := b.ranks[fullest].memory; most > 0 {
		v.Memory = most
	}
	switch v.Bound {
	case DataBound:
		v.Rank = data
	case MemoryBound:
		v.Rank = fullest
	case StragglerBound:
		w := &b.ranks[slowest]
		if mean := w.own / float64(w.steps); mean-balanced >= steadyShare*v.Lost[StragglerBound] {
			v.Rank, v.Ratio, v.Slowest = slowest, mean/balanced, float64(w.slowest)/float64(b.steps)
		}
	}
}
