package balancer

import (
	"fmt"
	"math"
	"strings"

	"github.com/hetero-train/hetero-train/telemetry"
)

// Kind is what a Verdict says of a rank.
type Kind int

const (
	Healthy  Kind = iota // as fast as its own curve says, and no straggler
	SlowType             // of a type of device that takes longer per sample, but as fast as its own curve says: it needs a smaller share
	Sick                 // slower than its own curve: something is wrong with the device, and Cause says what
)

// String implements fmt.Stringer.
func (k Kind) String() string { return [...]string{"healthy", "slow type", "sick"}[k] }

// Cause is what made a rank sick.
type Cause int

const (
	CauseNone    Cause = iota // of a rank that is not sick
	CauseUnknown              // it is slower, and nothing that is measured explains it
	CauseData                 // it waits for data
	CauseNetwork              // its links are slower than they were, more than others' are

	firstSensorCause // causes that a sensor's sign explains follow, in the order of telemetry.Declared
)

// Causes that sensors explain.
const (
	CauseHardware     = firstSensorCause + Cause(telemetry.HardwareSlowdown)
	CauseThermal      = firstSensorCause + Cause(telemetry.ThermalThrottling)
	CausePower        = firstSensorCause + Cause(telemetry.PowerLimit)
	CauseQuota        = firstSensorCause + Cause(telemetry.CPUQuota)
	CausePCIe         = firstSensorCause + Cause(telemetry.PCIe)
	CauseECC          = firstSensorCause + Cause(telemetry.ECCErrors)
	CauseOtherProcess = firstSensorCause + Cause(telemetry.OtherProcesses)
	CauseStolenCPU    = firstSensorCause + Cause(telemetry.StolenCPU)
	CauseMemory       = firstSensorCause + Cause(telemetry.Memory)
	CauseClock        = firstSensorCause + Cause(telemetry.Clock)
)

// String implements fmt.Stringer.
func (c Cause) String() string {
	if c >= firstSensorCause {
		return telemetry.Declared[c-firstSensorCause].Cause
	}
	return [...]string{"none", "unknown", "data starvation", "network"}[c]
}

// Verdict is what is known of one rank. It begins after two windows of trouble and ends after two healthy ones.
type Verdict struct {
	Rank      int
	Kind      Kind
	Cause     Cause   // of a sick rank
	Ratio     float64 // Sick: how many times slower it is than when it was healthy; SlowType: per sample, than the median of the ranks; Healthy: 1
	Evidence  string  // "thermal throttling for 12 of 20 samples at 93 °C; clock 58 % of its maximum, was 96 %"
	SinceStep int64   // of the first window of the trouble
}

// Observation is what one rank measured in a window, as means over its steps.
type Observation struct {
	// Seconds is the rank's own compute time per step, without waiting for other ranks: data, forward and backward, and
	// the optimizer where its curve has it too. NaN or 0: the rank had no samples or measured nothing.
	Seconds float64
	Samples int     // of the rank in a step; 0 unknown: the ranks' whole steps are compared then
	Data    float64 // of them, waiting for data; NaN unknown

	// Expected is what the rank's own curve says for its share, and ExpectedError the standard error of that; NaN: it
	// has no curve yet. The curve must be of the healthy rank, and from before this window: References keeps such ones.
	Expected, ExpectedError float64

	// Link is the seconds per step that transfers on this rank's own links took, without waiting for slower ranks;
	// NaN unknown. A figure that all ranks of an all-reduce share shows nobody's link.
	Link float64

	Health telemetry.Summary // of the rank's sensors
}

// Detector compares each rank with itself and with the others, and so tells a slow type of device from a sick one.
// Without a clock: give it a window, it gives verdicts.
//
// A window is slow where the ratio of measured to expected time is over what is usual for the rank by 5 % and by 3.5
// standard deviations, of the rank's noise and of its curve together; it is well again below half of that. The rank's
// usual ratio and noise are robust and its own (see history). So slowdowns of less than about 4 standard deviations
// come late and may come and go. Of healthy ranks whose windows scatter by 5 % (lognormal) three in a million windows begin a
// false verdict; 14 at 10 %, 28 at 15 %, none at 2 %.
//
// Of a rank that never kept its curve and shows no sign of sickness, the curve is thought wrong and not the device. With
// a sign the rank is sick, but for 20 windows only: what it was like from its first window on is then taken for its
// nature, as with a laptop whose curve was measured cold.
//
// Links are judged the same way, against their own history and less the growth that the median of the ranks has seen;
// they are slow from 25 % on, if that takes at least 5 % of the compute time.
//
// Ranks are compared with each other by their time per sample, because their shares may differ. Only a rank of another type
// than the ranks that keep up can be of a slower type; see SetTypes.
type Detector struct {
	rule  MedianRule
	ranks []patient
	types []string // nil: unknown

	seconds, perSample, growth, sorted []float64
	verdicts                           []Verdict
}

// patient is one rank as the detector knows it.
type patient struct {
	compute, link history
	healthy       baseline
	learns        bool
	sickFromStart int // windows

	straggler bool
	keepsUp   int // windows running without being marked
	slowSince int64

	verdict Verdict
}

const (
	assumedNoise     = 0.05 // of compute times per window, before they are known
	assumedLinkNoise = 0.1
	adoptWindows     = 20
	leastSlowdown    = 0.05 // below it nobody is sick, however quiet the rank
	leastLinkGrowth  = 0.25
	leastLinkShare   = 0.05 // of the compute time
)

// NewDetector watches a number of ranks.
func NewDetector(ranks int) *Detector {
	d := &Detector{ranks: make([]patient, ranks), seconds: make([]float64, ranks), perSample: make([]float64, ranks), growth: make([]float64, ranks), verdicts: make([]Verdict, ranks)}
	for i := range d.ranks {
		p := &d.ranks[i]
		p.compute, p.link = newHistory(), newHistory()
		p.verdict = Verdict{Rank: i, Ratio: 1}
	}
	return d
}

// SetTypes says what type of device each rank has; an empty type is like no other. Without types every rank may be of a slower type.
func (d *Detector) SetTypes(types []string) { d.types = types }

// keepsUp reports whether a rank of the same type as this one is no straggler: then the type is not what makes this one slow.
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

// Observe takes a window that ended with a step, one observation a rank, and returns a verdict for each rank, valid
// until the next call.
func (d *Detector) Observe(step int64, window []Observation) ([]Verdict, error) {
	if len(window) != len(d.ranks) {
		return nil, fmt.Errorf("straggler verdicts at step %d: got %d observations, want one for each of %d ranks", step, len(window), len(d.ranks))
	}
	for i := range window {
		d.seconds[i] = window[i].Seconds
		d.perSample[i] = window[i].Seconds / float64(max(window[i].Samples, 1))
		d.growth[i] = d.ranks[i].linkGrowth(&window[i])
	}
	common := d.commonGrowth()
	marks := d.rule.Observe(d.perSample)
	median := d.rule.median(d.perSample)
	for i := range window {
		p, o := &d.ranks[i], &window[i]
		excess := p.judgeCompute(step, o)
		linkExcess := p.judgeLink(step, o, d.growth[i]-common)
		p.diagnose(o, excess, linkExcess)
		p.compare(step, o, marks[i] && !d.keepsUp(i, marks), d.rule.over[i], d.perSample[i]/median)
		p.learn(o)
		d.verdicts[i] = p.verdict
	}
	d.nameCommonTrouble()
	return d.verdicts, nil
}

// Learns reports whether a rank's healthy curve may learn from the last window: the rank was as the curve says, or the
// curve is known to be wrong.
func (d *Detector) Learns(rank int) bool { return d.ranks[rank].learns }

// linkGrowth is the logarithm of how much slower the rank's links are than they were, NaN where that is unknown.
func (p *patient) linkGrowth(o *Observation) float64 {
	usual, known := p.link.center()
	if !known || !measured(o.Link) {
		return math.NaN()
	}
	return math.Log(o.Link) - usual
}

// commonGrowth is the median growth of all ranks' links, 0 where they became faster: what all see is not one rank's.
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

// judgeCompute compares a rank with its own curve and returns how far it is above, NaN where that is unknown.
func (p *patient) judgeCompute(step int64, o *Observation) float64 {
	if !o.comparable() {
		return math.NaN()
	}
	usual, _ := p.compute.center()
	excess := math.Log(o.Seconds/o.Expected) - usual
	noise := math.Hypot(p.compute.noise(assumedNoise), o.ExpectedError/o.Expected)
	p.compute.judge(step, excess, max(sigmas*noise, math.Log1p(leastSlowdown)))
	return excess
}

// comparable reports whether there is a measurement and a curve to compare it with.
func (o *Observation) comparable() bool {
	return measured(o.Seconds) && measured(o.Expected) && o.ExpectedError >= 0 && !math.IsInf(o.ExpectedError, 1)
}

func (p *patient) judgeLink(step int64, o *Observation, excess float64) float64 {
	if math.IsNaN(excess) {
		return excess
	}
	limit := max(sigmas*p.link.noise(assumedLinkNoise), math.Log1p(leastLinkGrowth))
	if usual, _ := p.link.center(); o.Link-math.Exp(usual) < leastLinkShare*o.Seconds {
		excess = min(excess, limit) // too little to matter
	}
	p.link.judge(step, excess, limit)
	return excess
}

// diagnose decides whether a rank is sick, and of what.
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
			v.Evidence = fmt.Sprintf("its links take %.3g s per step, was %.3g s", o.Link, math.Exp(usual))
		}
	case v.Kind == Sick:
		*v = Verdict{Rank: v.Rank, Ratio: 1}
	}
}

// name begins trouble with the compute time, or goes on with it, and finds its cause. A cause stays while its sign does.
func (p *patient) name(o *Observation, excess float64) {
	signs := p.healthy.signs(o, o.Seconds-o.Seconds/math.Exp(excess))
	if !p.compute.trusted() {
		if len(signs) == 0 && !p.compute.sick {
			return // the curve is wrong, as far as anyone can tell
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
			v.Evidence = fmt.Sprintf("%.2f times as slow as its step-time curve predicts; no measurement shows a cause", math.Exp(excess))
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

// compare tells a straggler that is not sick from the others.
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
		text := "; it has no step-time curve yet"
		if o.comparable() {
			text = fmt.Sprintf(", %.2f times the prediction of its step-time curve", o.Seconds/o.Expected)
		}
		*v = Verdict{Rank: v.Rank, Kind: SlowType, Ratio: ratio, SinceStep: p.slowSince,
			Evidence: fmt.Sprintf("%.3g s per step; the time per sample is %.2f times the median of the ranks%s", o.Seconds, ratio, text)}
	}
}

// learn takes what a healthy rank is like. A first bad window belongs to nothing yet.
func (p *patient) learn(o *Observation) {
	wrongCurve := p.compute.troubled() && !p.compute.sick
	p.learns = !p.compute.sick && (p.compute.bad == 0 || wrongCurve)
	if o.comparable() {
		p.compute.learn(math.Log(o.Seconds/o.Expected), wrongCurve)
		if p.learns {
			p.healthy.learn(o)
		}
	}
	if measured(o.Link) {
		p.link.learn(math.Log(o.Link), false)
	}
}

// nameCommonTrouble says of unexplained trouble how many share it: that of most ranks is rarely one device's.
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
