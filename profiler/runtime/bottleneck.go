package runtime

import "math"

// BottleneckWindow is the number of steps of a verdict.
const BottleneckWindow = 50

// LostFraction is the fraction of a step's time above which a cause becomes the verdict. Below it the run is
// compute-bound.
const LostFraction = 0.10

// WarmUpSteps are the first steps of a run. They include page faults, so no verdict and no mean time counts them.
const WarmUpSteps = 2

// Limits of the verdict, most of them fractions of the step's time.
const (
	keptFraction   = 0.07 // the previous verdict stays while its loss is larger
	changeFraction = 0.03 // and while no other cause exceeds it by more
	fullPercent    = 90.0 // memory above which a rank can take no more samples
	slowedFraction = 0.10 // slowdown of a rank with full memory that counts
	shareTolerance = 0.10 // allowed change of its share since, as a fraction
	// steadyFraction is the fraction of a straggler's loss that a rank's mean time, not jitter, must cause to name the
	// rank.
	steadyFraction = 0.5
	optimizerBig   = 0.15 // fraction of the step above which the optimizer is mentioned
)

// Bound is the limit of a run's speed.
type Bound int

const (
	ComputeBound       Bound = iota // no other cause takes 10 % of a step
	DataBound                       // the step waits for data
	CommunicationBound              // waiting for other ranks' gradients and statistics after the slowest rank is done
	StragglerBound                  // waiting for ranks with too many samples for their speed
	MemoryBound                     // work that ranks with full memory cannot take, or that full memory slows down

	bounds
)

// String implements fmt.Stringer.
func (b Bound) String() string {
	return [...]string{"compute-bound", "data-bound", "communication-bound", "straggler", "memory-bound"}[b]
}

// RankTimes are one rank's measurements in one step, in seconds, as in its Record.
type RankTimes struct {
	Samples       int // 0: the rank is ignored
	Data          float64
	Forward       float64
	Backward      float64
	Exchanges     float64 // of batch normalisation, within forward and backward
	Communication float64 // exposed
	Hidden        float64
	Optimizer     float64
	MemoryPercent float64 // NaN unknown
}

// own returns the rank's compute time without data and without waiting for others.
func (r *RankTimes) own() float64 { return max(0, r.Forward+r.Backward-r.Exchanges) }

func (r *RankTimes) total() float64 {
	return r.Data + r.Forward + r.Backward + r.Communication + r.Optimizer
}

// Bottleneck is the verdict on a window. Times are seconds per step, means over the window.
type Bottleneck struct {
	Bound    Bound
	Lost     [bounds]float64 // to each cause; 0 for compute
	Rank     int             // rank with the longest wait for data, straggler, or rank with the fullest memory; -1: no single one
	Slowest  float64         // fraction of steps in which Rank, a straggler, was the slowest
	Ratio    float64         // Rank's compute time relative to that with shares in proportion to speed
	Step     float64         // the whole step
	Compute  float64         // forward and backward without losses
	Update   float64         // the optimizer
	Hidden   float64         // communication during the backward pass
	Exchange float64         // exchanges of batch normalisation, part of the lost communication
	Memory   float64         // percent, of the fullest rank; NaN: unknown
	Ranks    int             // ranks with samples
	Steps    int
}

// Bottlenecks finds the limit of a run's speed, in windows of steps.
//
//	b := runtime.NewBottlenecks(ranks)
//	b.Add(times)         // once per step: no allocation
//	if b.Full() {
//		v := b.Verdict() // and starts the next window
//	}
//
// # Lost time
//
// Every step is divided into parts that sum to it:
//
//	data           the slowest rank's time including its wait for data, minus the slowest rank's time without it. Waiting on
//	               ranks that would have waited for others anyway costs nothing. If balanced shares would gain more without
//	               the wait for data, it is that gain
//	communication  the least exposed communication plus the least exchanges of any rank: the wait of the rank for which
//	               all others wait
//	straggler      the slowest rank's compute time, minus the time of all ranks with samples in proportion to their speed.
//	               Ranks with full memory count with at most the samples that they have
//	memory         the cost of the samples that ranks with full memory cannot take, plus their slowdown since then
//	optimizer and compute, which are not lost, are the rest
//
// The proportion uses a rank's time per sample as it is, so a straggler's loss is slightly too high for small shares.
// The verdict is the cause with the largest loss, if that is a tenth of the step; otherwise the run is compute-bound.
// To suppress noise, the previous verdict stays while it loses 7 % and no other cause loses 3 % of the step more.
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

// rankWindow holds one rank's sums over the window, and its state before its memory was full.
type rankWindow struct {
	samples, own, data, memory float64
	slowest, steps             int

	usualShare, usualTime float64 // samples per step, seconds per sample; 0: unknown
}

// NewBottlenecks returns Bottlenecks for the given number of ranks.
func NewBottlenecks(ranks int) *Bottlenecks {
	return &Bottlenecks{ranks: make([]rankWindow, ranks), speed: make([]float64, ranks)}
}

// Add adds a step, one entry per rank. It ignores the first steps of a run, and steps whose times are not numbers.
func (b *Bottlenecks) Add(step []RankTimes) {
	if b.warm < WarmUpSteps {
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

// Steps returns the number of steps in the window.
func (b *Bottlenecks) Steps() int { return b.steps }

// Full reports whether a window is complete.
func (b *Bottlenecks) Full() bool { return b.steps >= BottleneckWindow }

// Reset discards the window, for example when a run returns to an earlier step.
func (b *Bottlenecks) Reset() {
	for i := range b.ranks {
		w := &b.ranks[i]
		*w = rankWindow{usualShare: w.usualShare, usualTime: w.usualTime}
	}
	b.lost = [bounds]float64{}
	b.steps, b.slowest, b.step, b.update, b.exchange, b.hidden = 0, 0, 0, 0, 0, 0
}

// Verdict judges the steps since the last verdict, at least one, and starts the next window.
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
	all := max(0, b.slowest/n-usual) // all losses except communication
	shares := b.slowest/n - withData // gain by balancing in the present state
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

// choose returns the cause with the largest loss, or the previous cause if that loses nearly as much.
func (b *Bottlenecks) choose(v *Bottleneck) Bound {
	most := ComputeBound
	for cause := range bounds {
		if v.Lost[cause] > v.Lost[most] {
			most = cause
		}
	}
	if last := v.Lost[b.last]; b.last != ComputeBound && last >= keptFraction*v.Step && v.Lost[most]-last <= changeFraction*v.Step {
		return b.last
	}
	if v.Lost[most] < LostFraction*v.Step {
		return ComputeBound
	}
	return most
}

// balanced returns the compute times of a step with samples in proportion to the ranks' speeds:
//
//	usual     with the speeds of the ranks before their memory was full
//	free      with the present speeds
//	bounded   with the present speeds, and without additional samples on ranks with full memory
//	withData  with the present speeds, including the wait for data
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

// bounded removes ranks with full memory from the division, one round at a time. The samples that they cannot take make
// the step longer, so other ranks with full memory would get more samples in the next round.
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

// usualSpeed returns the speed of a rank before its memory was full; 0 if it is unchanged, or if the share has changed.
func (w *rankWindow) usualSpeed() float64 {
	share, time := w.samples/float64(w.steps), w.own/w.samples
	if !w.full() || w.usualTime == 0 || math.Abs(share-w.usualShare) > shareTolerance*w.usualShare || time < (1+slowedFraction)*w.usualTime {
		return 0
	}
	return 1 / w.usualTime
}

// rememberUsual keeps the best time per sample of ranks whose memory is not full, with their share.
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

// point sets the rank of the verdict, if there is a single one.
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
		if mean := w.own / float64(w.steps); mean-balanced >= steadyFraction*v.Lost[StragglerBound] {
			v.Rank, v.Ratio, v.Slowest = slowest, mean/balanced, float64(w.slowest)/float64(b.steps)
		}
	}
}
