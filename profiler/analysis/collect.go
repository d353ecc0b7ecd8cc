package analysis

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// collector adds up the records of a run, one file at a time. It needs 32 bytes of memory per step, and 8 bytes for
// each of the first maxLatencies steps of a rank.
type collector struct {
	steps []stepTotal // steps of rank 0 in order
	loss  float64     // loss of the last step
	ranks []*rankTotal

	segment runtime.Segment // records of other segments are not added
	starts  []runtime.Event // starts of processes, in order
	earlier float64         // training time before the segment, s; 0: none, or unknown
	ranked  float64         // sum of (step time × number of ranks) over the same steps, s

	pauses int
}

// stepTotal contains the sums of one step over all ranks.
type stepTotal struct {
	iteration int64
	seconds   float32 // training time of a step
	count     float32 // number of steps that the record stands for; see runtime.StepSpan
	min, max  float32 // smallest and largest own compute time of ranks with samples, s; max is 0 if there is none
	samples   int32
	ranks     int32 // number of ranks with a record of this step
}

// maxLatencies is the largest number of times per rank that are kept for histograms. When this number is reached,
// every second time is dropped.
const maxLatencies = 1 << 16

// rankTotal contains the sums of one rank.
type rankTotal struct {
	n, samples                                                       float64
	data, forward, backward, communication, optimizer, hidden, own   float64 // seconds
	exchanges                                                        float64 // seconds; part of forward and backward
	between                                                          float64 // seconds; the rest of the step time
	bytes, utilization, utilizations, memory, power, powers, hottest float64
	stepTimes, allReduces                                            thinned
	shares                                                           map[int64]*shareTotal
	warmUp                                                           []runtime.Record // first steps, not in the sums

	matched  int   // records of steps that rank 0 also recorded
	gap      int   // number of steps that rank 0 recorded and this rank did not, before the step last
	firstGap int64 // number of the first step that gap counts
	last     int64 // number of the last step that matched counts
}

type shareTotal struct{ steps, own float64 }

// thinned keeps every k-th value that is added; k doubles when there are too many.
type thinned struct {
	values []float32
	every  int
	seen   int
}

func (t *thinned) add(v float64) {
	if t.every == 0 {
		t.every = 1
	}
	if t.seen++; (t.seen-1)%t.every != 0 {
		return
	}
	if len(t.values) == maxLatencies {
		for i := range maxLatencies / 2 {
			t.values[i] = t.values[2*i]
		}
		t.values = t.values[:maxLatencies/2]
		t.every *= 2
		if (t.seen-1)%t.every != 0 {
			return
		}
	}
	t.values = append(t.values, float32(v))
}

// read adds the file of a rank. The caller must read the file of rank 0 first.
func (c *collector) read(ctx context.Context, rank int, path string) (damaged int, err error) {
	t := &rankTotal{memory: unknown, hottest: unknown, shares: map[int64]*shareTotal{}}
	var times runtime.StepTimes
	next := 0 // index of the next step in steps
	tooMany, batch := 0, c.largestBatch()
	damaged, err = runtime.EachMetric(ctx, path, func(m *runtime.Record) {
		if batch > 0 && m.BatchSize > batch {
			tooMany++
			return
		}
		if !c.segment.Contains(rank, m.Iteration) {
			if rank == 0 {
				times.Next(m, m.IterationTime().Seconds()) // the next step time starts at the end of this step
				c.addEarlier(m)
			}
			return
		}
		t.add(m)
		own := m.Own().Seconds()
		if rank == 0 {
			span := times.Next(m, m.IterationTime().Seconds())
			if span.Paused {
				c.pauses++
			}
			c.steps = append(c.steps, stepTotal{iteration: m.Iteration, seconds: float32(span.Seconds),
				count: float32(span.Steps)})
			c.loss = m.Values[telemetry.Loss]
		}
		at := next
		for at < len(c.steps) && c.steps[at].iteration < m.Iteration {
			at++
		}
		if at < len(c.steps) && c.steps[at].iteration == m.Iteration {
			t.match(c.steps[next:at], m.Iteration)
			c.steps[at].add(m.BatchSize, float32(own))
			next = at + 1
		}
	})
	if t.n == 0 { // the run consists only of warm-up steps
		for i := range t.warmUp {
			t.sumUp(&t.warmUp[i])
		}
	}
	if err == nil {
		c.ranks = append(c.ranks, t)
	}
	return damaged + tooMany, err
}

// largestBatch returns the largest global batch of a process of the run; 0: unknown.
func (c *collector) largestBatch() (samples int64) {
	for _, e := range c.starts {
		samples = max(samples, int64(e.Start.BatchSize))
	}
	return samples
}

// match counts a record of a step that rank 0 also recorded. unrecorded lists the steps directly before this step that
// only rank 0 recorded.
func (t *rankTotal) match(unrecorded []stepTotal, step int64) {
	if len(unrecorded) > 0 && t.gap == 0 {
		t.firstGap = unrecorded[0].iteration
	}
	t.matched, t.gap, t.last = t.matched+1, t.gap+len(unrecorded), step
}

// gaps describes the steps that rank 0 recorded and another rank did not. The figures of such steps do not include this
// rank. In a killed run, the last steps of a rank may be missing, because ranks write their files about once a second.
func (c *collector) gaps() (texts []string) {
	for rank, t := range c.ranks {
		file := runtime.FileName(rank)
		switch end := len(c.steps) - t.matched - t.gap; {
		case t.matched == 0:
			texts = append(texts, fmt.Sprintf("%s: no record of the %d steps of rank 0; the figures lack this rank",
				file, len(c.steps)))
		case t.gap > 0:
			texts = append(texts,
				fmt.Sprintf("%s: no record of %d steps from step %d on; the figures of these steps lack this rank",
					file, t.gap, t.firstGap))
		case end > 0:
			texts = append(texts,
				fmt.Sprintf("%s: ends at step %d, before the last %d steps of rank 0, which the figures leave out",
					file, t.last, end))
		}
	}
	return texts
}

// addEarlier adds the time of a step of rank 0 before the segment.
func (c *collector) addEarlier(m *runtime.Record) {
	before := c.earlier
	c.earlier = m.TrainingTime.Seconds()
	c.ranked += float64(max(runtime.SegmentAt(c.starts, m.Iteration).Ranks, 1)) * (c.earlier - before)
}

func (s *stepTotal) add(samples int64, own float32) {
	s.ranks++
	s.samples += int32(samples)
	if samples == 0 {
		return
	}
	if s.max == 0 || own < s.min {
		s.min = own
	}
	s.max = max(s.max, own)
}

// add adds a record to the distributions. After the warm-up, it also adds the record to the sums.
func (t *rankTotal) add(m *runtime.Record) {
	t.memory, t.hottest = knownMax(t.memory, m.Telemetry[telemetry.Memory]),
		knownMax(t.hottest, m.Telemetry[telemetry.Temperature])
	t.stepTimes.add(m.IterationTime().Seconds())
	if m.Bytes > 0 {
		t.allReduces.add((m.Communication + m.CommunicationHidden).Seconds())
	}
	s := t.shares[m.BatchSize]
	if s == nil {
		s = &shareTotal{}
		t.shares[m.BatchSize] = s
	}
	s.steps++
	s.own += m.Own().Seconds()
	if len(t.warmUp) < runtime.WarmUpSteps {
		t.warmUp = append(t.warmUp, *m)
		return
	}
	t.sumUp(m)
}

// sumUp adds a record to the sums.
func (t *rankTotal) sumUp(m *runtime.Record) {
	t.n++
	t.samples += float64(m.BatchSize)
	t.data += m.DataLoading.Seconds()
	t.forward += m.Forward.Seconds()
	t.backward += m.Backward.Seconds()
	t.communication += m.Communication.Seconds()
	t.optimizer += m.Optimizer.Seconds()
	t.hidden += m.CommunicationHidden.Seconds()
	t.exchanges += m.Exchanges.Seconds()
	t.between += max(m.Took()-m.IterationTime(), 0).Seconds()
	t.own += m.Own().Seconds()
	t.bytes += float64(m.Bytes)
	if v := m.Telemetry[telemetry.Utilization]; !math.IsNaN(v) {
		t.utilization, t.utilizations = t.utilization+v, t.utilizations+1
	}
	if v := m.Telemetry[telemetry.Power]; !math.IsNaN(v) {
		t.power, t.powers = t.power+v, t.powers+1
	}
}

// knownMax returns the maximum of a and b and ignores NaN.
func knownMax(a, b float64) float64 {
	if math.IsNaN(a) || b > a {
		return b
	}
	return a
}

// whole returns the steps, without the last ones for which not all ranks have records, as after a kill.
func (c *collector) whole() []stepTotal {
	ranks := int32(0)
	for i := range c.steps {
		ranks = max(ranks, c.steps[i].ranks)
	}
	n := len(c.steps)
	for c.steps[n-1].ranks < ranks {
		n--
	}
	return c.steps[:n]
}

// fill writes the results to s.
func (c *collector) fill(s *Summary, batch int64) {
	steps := c.whole()
	last := steps[len(steps)-1]
	s.Ranks, s.BatchSize, s.Steps, s.RecordedSteps = int(last.ranks), int64(last.samples), last.iteration,
		int64(len(steps))
	if slices.ContainsFunc(steps, func(t stepTotal) bool { return int64(t.samples) == batch }) {
		s.BatchSize = batch // the last batch of an epoch may be smaller
	}
	s.Pauses, s.FinalTrainLoss = c.pauses, Number(c.loss)
	var times []float32
	seconds, count, samples, imbalance, balanced := 0.0, 0.0, 0.0, 0.0, 0.0
	for i, step := range steps {
		times = append(times, step.seconds)
		n := float64(step.count)
		seconds, count, samples = seconds+n*float64(step.seconds), count+n, samples+n*float64(step.samples)
		if step.ranks > 1 && step.max > 0 && (i >= runtime.WarmUpSteps || len(steps) <= runtime.WarmUpSteps) {
			imbalance, balanced = imbalance+float64((step.max-step.min)/step.max), balanced+1
		}
	}
	s.StepTime = distribution(times)
	s.StepTime.Mean = Number(seconds / count)
	s.TrainingTime, s.Throughput = Number(c.earlier+seconds), Number(samples/seconds)
	s.FirstStep, s.rankSeconds = c.segment.After+1, c.ranked+seconds*float64(last.ranks)
	s.Imbalance = Number(imbalance / balanced)
	var all rankTotal
	var allReduces []float32
	all.memory = unknown
	for rank, t := range c.ranks {
		all.sum(t)
		allReduces = append(allReduces, t.allReduces.values...)
		s.PerRank = append(s.PerRank, t.summary(rank))
	}
	s.AllReduce, s.StepParts = distribution(allReduces), all.parts()
	s.Utilization, s.MemoryUtilization = Number(all.utilization/all.utilizations/100), Number(all.memory/100)
	s.CommunicationTime, s.CommunicationHidden, s.CommunicationBytes = s.StepParts.Communication,
		Number(all.hidden/all.n), Number(all.bytes/all.n)
	s.Overlap = Number(all.hidden / (all.hidden + all.communication))
	s.CommunicationRatio = Number(all.communication / (all.forward + all.backward))
	if s.Ranks < 2 {
		s.Overlap = Number(unknown)
		return
	}
	// Bytes per second on each link of a ring all-reduce, which NCCL's tests call "bus bandwidth".
	n := float64(s.Ranks)
	s.BusBandwidth = Number(2 * (n - 1) / n * all.bytes / (all.hidden + all.communication))
}

// sum adds the sums of another rank to t.
func (t *rankTotal) sum(o *rankTotal) {
	t.n += o.n
	t.data += o.data
	t.forward += o.forward
	t.backward += o.backward
	t.communication += o.communication
	t.optimizer += o.optimizer
	t.hidden += o.hidden
	t.exchanges += o.exchanges
	t.between += o.between
	t.bytes += o.bytes
	t.utilization += o.utilization
	t.utilizations += o.utilizations
	t.memory = knownMax(t.memory, o.memory)
}

func (t *rankTotal) parts() StepParts {
	mean := func(sum float64) Number { return Number(sum / t.n) }
	return StepParts{mean(t.data), mean(t.forward), mean(t.backward), mean(t.communication), mean(t.optimizer),
		mean(t.exchanges), mean(t.between)}
}

func (t *rankTotal) summary(rank int) RankSummary {
	r := RankSummary{Rank: rank, Samples: Number(t.samples / t.n), Compute: Number(t.own / t.n),
		SamplesPerSecond: Number(t.samples / t.own), StepParts: t.parts(),
		Utilization: Number(t.utilization / t.utilizations / 100), MemoryUtilization: Number(t.memory / 100),
		PowerWatts:  Number(t.power / t.powers),
		Temperature: Number(t.hottest), stepTimes: t.stepTimes.values, allReduces: t.allReduces.values}
	r.StepTime, r.AllReduce = distribution(slices.Clone(r.stepTimes)), distribution(slices.Clone(r.allReduces))
	const most = 32
	for samples, share := range t.shares {
		r.ByBatchSize = append(r.ByBatchSize, ShareSummary{samples, int64(share.steps), Number(share.own / share.steps),
			Number(float64(samples) * share.steps / share.own)})
	}
	slices.SortFunc(r.ByBatchSize, func(a, b ShareSummary) int {
		return cmp.Or(cmp.Compare(b.Steps, a.Steps), cmp.Compare(a.Samples, b.Samples))
	})
	r.ByBatchSize = r.ByBatchSize[:min(len(r.ByBatchSize), most)]
	slices.SortFunc(r.ByBatchSize, func(a, b ShareSummary) int { return cmp.Compare(a.Samples, b.Samples) })
	return r
}
