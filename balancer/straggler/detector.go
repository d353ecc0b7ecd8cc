package straggler

import (
	"fmt"
	"math"
	"strings"
)

// Detector compares each rank with its own past and with the other ranks. It thus distinguishes a slow type of device
// from a sick device: a device that has become slow because of a problem. It has no clock. The caller passes windows of
// steps, and Detector returns verdicts.
//
// A window is slow if the ratio of measured to expected time exceeds the rank's usual ratio by 5 % and by 3.5 standard
// deviations. The standard deviation combines the noise of the rank and the error of its curve. With few windows, the
// noise is uncertain, so the limit is higher. A window is good if the ratio exceeds the usual ratio by less than half
// of the limit. The usual ratio and the noise are robust estimates for each rank (see history). A slowdown of less than
// about 4 standard deviations is found late, and its verdict may end and begin again.
//
// Some sensors measure lost time directly, for example the time for which a CPU quota stops the rank. If this time
// exceeds the sensor's noise, the limit is lower. A window is then slow if a slowdown of up to the measured size
// explains the ratio better than noise does. Noise may hide a part of the slowdown. The detector therefore does not
// update the usual ratio and the healthy sensor values of the rank during the first 20 windows of the slowdown.
//
// If the noise of healthy ranks is lognormal, false verdicts begin in two of a million windows at a deviation of 5 %.
// They begin in three windows at 10 % and at 15 %, and in none at 2 %.
//
// If a rank never matched its curve, and no sensor shows a cause, the detector assumes that the curve is wrong. If a
// sensor shows a cause, the rank is sick for 20 windows. Then the behaviour since the first window becomes the usual
// one. An example is a laptop whose curve was measured while it was cold.
//
// The detector compares the links of a rank with their own history, after subtraction of the median growth over the
// ranks. A link is slow if its time grows by at least 25 %, and by at least 5 % of the compute time.
//
// Ranks are compared with each other by their time per sample, because their shares may differ. A rank can be of a
// slower type only if no rank of its type is fast enough (see SetTypes), and if the curves predict the difference.
type Detector struct {
	rule  MedianRule
	ranks []patient
	types []string // nil: unknown

	seconds, perSample, growth, sorted []float64
	predicted                          []float64 // time per sample: by the rank's curve, or measured without a curve
	verdicts                           []Verdict
}

// patient is the state of one rank.
type patient struct {
	compute, link history
	healthy       baseline
	learns        bool
	sickFromStart int // windows with a sign of a cause, while the curve is not trusted
	stopped       int // consecutive windows in which a sensor measured a slowdown

	straggler bool
	keepsUp   int // consecutive windows in which the rank was not marked
	slowSince int64

	verdict Verdict
}

const (
	assumedNoise     = 0.05 // noise of compute times per window, before it is known
	assumedLinkNoise = 0.1
	adoptWindows     = 20
	leastSlowdown    = 0.05 // smaller slowdowns never make a rank sick, even with little noise
	leastLinkGrowth  = 0.25
	leastLinkShare   = 0.05 // of the compute time
)

// NewDetector returns a Detector for a number of ranks.
func NewDetector(ranks int) *Detector {
	d := &Detector{ranks: make([]patient, ranks), seconds: make([]float64, ranks), perSample: make([]float64, ranks),
		growth: make([]float64, ranks), predicted: make([]float64, ranks), verdicts: make([]Verdict, ranks)}
	for i := range d.ranks {
		p := &d.ranks[i]
		p.compute, p.link = newHistory(), newHistory()
		p.verdict = Verdict{Rank: i, Ratio: 1}
	}
	return d
}

// SetTypes sets the device type of each rank. An empty type differs from all other types. Without types, every rank may
// be of a slower type.
func (d *Detector) SetTypes(types []string) { d.types = types }

// keepsUp reports whether a rank of the same type is not a straggler. If so, the type is not the reason why this rank
// is slow.
func (d *Detector) keepsUp(rank int, marks []bool) bool {
	if len(d.types) != len(d.ranks) || d.types[rank] == "" {
		return false
	}
	for other, t := range d.types {
		if t == d.types[rank] && measured(d.perSample[other]) && !marks[other] {
			return true
		}
	}
	return false
}

// Observe takes the observations of a window, one per rank, and the last step of the window. It returns a verdict for
// each rank. The verdicts are valid until the next call.
func (d *Detector) Observe(step int64, window []Observation) ([]Verdict, error) {
	if len(window) != len(d.ranks) {
		return nil, fmt.Errorf("straggler verdicts at step %d: got %d observations, want one for each of %d ranks",
			step, len(window), len(d.ranks))
	}
	for i := range window {
		d.seconds[i] = window[i].Seconds
		d.perSample[i] = window[i].Seconds / float64(max(window[i].Samples, 1))
		d.growth[i] = d.ranks[i].linkGrowth(&window[i])
		d.predicted[i] = d.perSample[i]
		if o := &window[i]; o.comparable() {
			usual, _ := d.ranks[i].compute.center()
			d.predicted[i] = math.Exp(usual) * o.Expected / float64(max(o.Samples, 1))
		}
	}
	predictedSlow := slowFactor * d.rule.Median(d.predicted)
	common := d.commonGrowth()
	marks := d.rule.Observe(d.perSample)
	median := d.rule.Median(d.perSample)
	for i := range window {
		p, o := &d.ranks[i], &window[i]
		excess := p.judgeCompute(step, o)
		linkExcess := p.judgeLink(step, o, d.growth[i]-common)
		p.diagnose(o, excess, linkExcess)
		marked := marks[i] && !d.keepsUp(i, marks) && d.predicted[i] > predictedSlow
		p.compare(step, o, marked, d.rule.over[i], d.perSample[i]/median)
		p.learn(o)
		d.verdicts[i] = p.verdict
	}
	d.nameCommonTrouble()
	return d.verdicts, nil
}

// Learns reports whether the last window may update a rank's healthy curve. It may if the rank was as fast as the curve
// predicts, or if the curve is known to be wrong.
func (d *Detector) Learns(rank int) bool { return d.ranks[rank].learns }

// linkGrowth returns the log of the slowdown of the rank's links relative to their history, or NaN if it is unknown.
func (p *patient) linkGrowth(o *Observation) float64 {
	usual, known := p.link.center()
	if !known || !measured(o.Link) {
		return math.NaN()
	}
	return math.Log(o.Link) - usual
}

// commonGrowth returns the median growth of the links of all ranks, or 0 if the links became faster. If the links of
// all ranks become slower, no single rank is the cause.
func (d *Detector) commonGrowth() float64 {
	d.sorted = d.sorted[:0]
	for _, g := range d.growth {
		if !math.IsNaN(g) {
			d.sorted = append(d.sorted, g)
		}
	}
	if len(d.sorted) < 2 {
		return 0
	}
	return max(0, lowerMiddle(d.sorted))
}

// judgeCompute compares a rank with its own curve and returns the excess, or NaN if it is unknown.
func (p *patient) judgeCompute(step int64, o *Observation) float64 {
	if !o.comparable() {
		return math.NaN()
	}
	usual, _ := p.compute.center()
	excess := math.Log(o.Seconds/o.Expected) - usual
	curve := o.ExpectedError / o.Expected
	noise := math.Hypot(p.compute.noise(assumedNoise), curve)
	least := math.Log1p(leastSlowdown)
	limit := max(math.Hypot(p.compute.limit(assumedNoise), sigmas*curve), least)
	known := p.healthy.knownSlowdown(o)
	p.stopped = count(p.stopped, known > least && p.compute.trusted())
	// At the excess equal, noise alone and a slowdown of any size up to the known one are equally likely causes. equal
	// is at least about one standard deviation.
	if equal := noise * math.Sqrt(max(1, 2*math.Log(known/(noise*math.Sqrt(2*math.Pi))))); known > max(equal, least) {
		limit = min(limit, max(equal, least))
	}
	p.compute.judge(step, excess, limit)
	return excess
}

func (p *patient) judgeLink(step int64, o *Observation, excess float64) float64 {
	if math.IsNaN(excess) {
		return excess
	}
	limit := max(p.link.limit(assumedLinkNoise), math.Log1p(leastLinkGrowth))
	if usual, _ := p.link.center(); o.Link-math.Exp(usual) < leastLinkShare*o.Seconds {
		excess = min(excess, limit) // too small to be relevant
	}
	p.link.judge(step, excess, limit)
	return excess
}

// diagnose decides whether a rank is sick, and finds the cause.
func (p *patient) diagnose(o *Observation, excess, linkExcess float64) {
	if p.compute.troubled() {
		p.name(o, excess)
	}
	if p.link.troubled() {
		p.link.begin()
	}
	p.compute.settle()
	p.link.settle()
	v := &p.verdict
	switch {
	case p.compute.sick:
		v.Kind, v.SinceStep = Sick, p.compute.since
		if !math.IsNaN(excess) {
			v.Ratio = math.Exp(excess)
		}
	case p.link.sick:
		v.Kind, v.Cause, v.SinceStep = Sick, CauseNetwork, p.link.since
		if usual, _ := p.link.center(); !math.IsNaN(linkExcess) {
			v.Ratio = math.Exp(linkExcess)
			v.Evidence = fmt.Sprintf("the links of the rank take %.3g s per step, was %.3g s", o.Link, math.Exp(usual))
		}
	case v.Kind == Sick:
		*v = Verdict{Rank: v.Rank, Ratio: 1}
	}
}

// name begins or continues a verdict about the compute time, and finds its cause. The cause remains as long as its sign
// does, even if another sign is stronger.
func (p *patient) name(o *Observation, excess float64) {
	signs := p.healthy.signs(o, o.Seconds-o.Seconds/math.Exp(excess))
	if !p.compute.trusted() {
		if len(signs) == 0 && !p.compute.sick {
			return // the curve is probably wrong
		}
		if p.sickFromStart++; p.sickFromStart > adoptWindows {
			p.compute.sick = false
			return
		}
	}
	v := &p.verdict
	first := !p.compute.sick
	p.compute.begin()
	if first {
		v.Cause, v.Evidence = CauseUnknown, ""
	}
	if len(signs) == 0 {
		if v.Cause == CauseUnknown {
			v.Evidence = fmt.Sprintf("%.2f times as slow as its step-time curve predicts; no measurement shows a cause",
				math.Exp(excess))
		}
		return
	}
	texts, stays := make([]string, len(signs)), false
	for i, s := range signs {
		texts[i] = s.text
		stays = stays || s.cause == v.Cause
	}
	if !stays {
		v.Cause = signs[0].cause
	}
	v.Evidence = strings.Join(texts, "; ")
}

// compare decides whether a straggler that is not sick is of a slow device type.
func (p *patient) compare(step int64, o *Observation, marked bool, over int, ratio float64) {
	if over == 1 && !p.straggler {
		p.slowSince = step
	}
	p.keepsUp = count(p.keepsUp, !marked)
	p.straggler = marked || p.straggler && p.keepsUp < runningWindows
	v := &p.verdict
	switch {
	case v.Kind == Sick:
	case !p.straggler:
		*v = Verdict{Rank: v.Rank, Ratio: 1}
	case marked:
		text := "; the rank has no step-time curve yet"
		if o.comparable() {
			text = fmt.Sprintf(", %.2f times the prediction of its step-time curve", o.Seconds/o.Expected)
		}
		*v = Verdict{Rank: v.Rank, Kind: SlowType, Ratio: ratio, SinceStep: p.slowSince,
			Evidence: fmt.Sprintf("%.3g s per step; the time per sample is %.2f times the median of the ranks%s",
				o.Seconds, ratio, text)}
	}
}

// learn updates the history and the baseline of a healthy rank. If a window is the first bad one, the next window
// decides whether the history gets it.
func (p *patient) learn(o *Observation) {
	wrongCurve := p.compute.troubled() && !p.compute.sick
	stopped := p.stopped > 0 && p.stopped <= adoptWindows
	p.learns = !p.compute.sick && (p.compute.bad == 0 || wrongCurve) && !stopped
	if o.comparable() && !stopped {
		p.compute.learn(math.Log(o.Seconds/o.Expected), wrongCurve)
		if p.learns {
			p.healthy.learn(o)
		}
	}
	if measured(o.Link) {
		p.link.learn(math.Log(o.Link), false)
	}
}

// nameCommonTrouble adds the number of slower ranks to verdicts without a cause: if most ranks are slower, the cause is
// rarely one device.
func (d *Detector) nameCommonTrouble() {
	slower, all := 0, 0
	for i := range d.ranks {
		if measured(d.seconds[i]) {
			all++
			slower += count(0, d.ranks[i].compute.sick)
		}
	}
	for i := range d.verdicts {
		if v := &d.verdicts[i]; v.Cause == CauseUnknown && slower > 1 {
			v.Evidence += fmt.Sprintf("; %d of %d ranks are slower than their step-time curves predict", slower, all)
		}
	}
}
