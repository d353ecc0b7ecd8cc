package runtime

import "math"

// BottleneckTotal combines the verdicts on the windows of a run into one verdict on all steps.
//
//	total := runtime.BottleneckTotal{}
//	total.Add(v)         // once per window
//	v := total.Verdict() // after at least one window
//
// Times are means over the steps of all windows. The verdicts on windows with the final cause may name different ranks.
// The total names the rank with the largest loss, but only if the windows of this rank contain half of the time lost to
// the cause.
type BottleneckTotal struct {
	sum    Bottleneck // times are sums over steps
	blamed [bounds]map[int]*blame
	noise  noises
}

// blame contains the sums over the windows whose verdict names one rank.
type blame struct{ lost, steps, slowest, ratio float64 }

// Steps returns the number of steps in all windows.
func (t *BottleneckTotal) Steps() int { return t.sum.Steps }

// Add adds the verdict on a window.
func (t *BottleneckTotal) Add(v Bottleneck) {
	n, s := float64(v.Steps), &t.sum
	if s.Steps == 0 {
		s.FullMemory = math.NaN()
	}
	s.Account.Add(&v.Account, n)
	s.Update += n * v.Update
	s.Hidden += n * v.Hidden
	s.Exchange += n * v.Exchange
	if math.IsNaN(s.FullMemory) || v.FullMemory > s.FullMemory {
		s.FullMemory = v.FullMemory
	}
	s.Ranks = max(s.Ranks, v.Ranks)
	s.Steps += v.Steps
	t.noise.add(n*v.Noise, v.Cause)
	if v.Rank < 0 {
		return
	}
	if t.blamed[v.Bound] == nil {
		t.blamed[v.Bound] = map[int]*blame{}
	}
	b := t.blamed[v.Bound][v.Rank]
	if b == nil {
		b = &blame{}
		t.blamed[v.Bound][v.Rank] = b
	}
	b.lost += n * v.Lost(v.Bound)
	b.steps += n
	b.slowest += n * v.Slowest
	b.ratio += n * v.Ratio
}

// Verdict returns the verdict on all windows. It is the cause with the largest loss if this loss is at least a tenth
// of the time.
func (t *BottleneckTotal) Verdict() Bottleneck {
	v, n := t.sum, float64(t.sum.Steps)
	v.Account = v.Account.Over(n)
	v.Update, v.Hidden, v.Exchange = v.Update/n, v.Hidden/n, v.Exchange/n
	v.Bound, v.Rank = ComputeBound, -1
	for cause := range bounds {
		if v.Lost(cause) >= LostFraction*v.Step && v.Lost(cause) > v.Lost(v.Bound) {
			v.Bound = cause
		}
	}
	v.Cause = t.noise.mainCause()
	for rank, b := range t.blamed[v.Bound] {
		if first := t.blamed[v.Bound][v.Rank]; first == nil || b.lost > first.lost || b.lost == first.lost &&
			rank < v.Rank {
			v.Rank = rank
		}
	}
	if v.Rank < 0 {
		return v
	}
	switch b := t.blamed[v.Bound][v.Rank]; {
	case b.lost < t.sum.Lost(v.Bound)/2 && (v.Bound == StragglerBound || v.Bound == NoiseBound):
		v.Rank = -1
	case v.Bound == StragglerBound:
		v.Slowest, v.Ratio = b.slowest/b.steps, b.ratio/b.steps
	}
	return v
}
