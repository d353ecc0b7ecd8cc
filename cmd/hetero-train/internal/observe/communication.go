package observe

import (
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Limits of the communication file. A run of few ranks writes a line every second. A line for 1,000 ranks has about 500
// kB, so such a run writes one every 25 s.
const (
	communicationInterval = time.Second
	communicationRate     = 20e3 // maximum rate of writing, bytes/s
)

// communicationLines is the observer that writes the traffic of the links and the times of all-reduces to the
// communication file.
type communicationLines struct {
	file    *StepLines
	ranks   []rankLinks
	buckets []bucketSum

	begun   time.Time // time of the last line
	pause   time.Duration
	step    int64
	steps   int64 // steps since the last line
	seconds float64
}

// rankLinks contains the sums of a rank since the last line, and the newest traffic of its links.
type rankLinks struct {
	links                    []telemetry.Link
	traffic                  []telemetry.Traffic
	compute, exposed, hidden time.Duration
	bytes                    int64
}

// bucketSum contains the sums of a bucket since the last line.
type bucketSum struct {
	name          string
	bytes         int64
	busy, exposed time.Duration
}

// openCommunication opens the communication file, and removes the lines of steps after the checkpoint from which the
// run resumes.
func openCommunication(a *assembly.Run, resume *checkpoint.State) (*communicationLines, error) {
	kept := int64(-1) // remove all lines, because they belong to another run
	if resume != nil {
		kept = resume.Step
	}
	file, err := OpenLines(a.Queue, "communication of the run",
		filepath.Join(a.Folder.LogDir(), runtime.CommunicationFile), kept, a.Process.Opts.LogOf(logs.ComponentProfiler))
	if err != nil {
		return nil, err
	}
	file.Limit(LimitOfFile(a))
	a.Process.Later(file.Close)
	return newCommunication(file, a.Rank.Links), nil
}

func newCommunication(file *StepLines, links [][]telemetry.Link) *communicationLines {
	c := &communicationLines{file: file, pause: communicationInterval, ranks: make([]rankLinks, len(links))}
	for i, own := range links {
		c.ranks[i] = rankLinks{links: own, traffic: unknownTraffic(len(own))}
	}
	return c
}

// unknownTraffic returns unknown values for the traffic of a number of links.
func unknownTraffic(links int) []telemetry.Traffic {
	list := make([]telemetry.Traffic, links)
	for i := range list {
		list[i] = telemetry.UnknownTraffic()
	}
	return list
}

// takeReport copies the traffic of the reported links to traffic, which has an entry for each link of a rank.
func takeReport(traffic []telemetry.Traffic, report *train.LinkReport) {
	if report.First < len(traffic) {
		copy(traffic[report.First:], report.Traffic[:])
	}
}

// StepDone implements [train.Observer]. It allocates memory only if it writes a line.
func (c *communicationLines) StepDone(r *train.StepRecord) {
	c.step = r.Step
	if c.begun.IsZero() { // leave out the first step of a process, which takes longer
		c.begun = r.Time
		return
	}
	c.steps++
	c.seconds += r.Times.Total().Seconds()
	for i := range c.ranks {
		sum, own := &c.ranks[i], &r.Ranks[i]
		t := &own.Times
		takeReport(sum.traffic, &own.Links)
		sum.compute += max(0, t.Data+t.Forward+t.Backward-t.Exchanges) + t.Optimizer
		sum.exposed, sum.hidden, sum.bytes = sum.exposed+t.Communication, sum.hidden+t.Hidden, sum.bytes+own.Bytes
	}
	if len(c.buckets) != len(r.Reductions) {
		c.buckets = make([]bucketSum, len(r.Reductions))
	}
	for i, reduction := range r.Reductions {
		b := &c.buckets[i]
		b.name, b.bytes, b.busy, b.exposed = reduction.Name, reduction.Bytes, b.busy+reduction.Busy,
			b.exposed+reduction.Exposed
	}
	if r.Time.Sub(c.begun) >= c.pause {
		c.begun = r.Time
		c.write(r.Time)
	}
}

// write writes a line about the steps since the last line.
func (c *communicationLines) write(now time.Time) {
	if c.steps == 0 {
		return
	}
	steps := float64(c.steps)
	line := runtime.Communication{Step: c.step, Steps: c.steps, Time: now, Seconds: c.seconds / steps}
	for i := range c.ranks {
		line.Ranks = append(line.Ranks, c.ranks[i].mean(steps, len(c.ranks)))
	}
	for _, b := range c.buckets {
		out := runtime.BucketTimes{Name: b.name, Bytes: b.bytes}
		if busy := b.busy.Seconds() / steps; busy > 0 {
			exposed := b.exposed.Seconds() / steps
			out.Exposed, out.Hidden = runtime.Known(exposed), runtime.Known(max(0, busy-exposed))
			out.Bandwidth = runtime.Known(runtime.BusBandwidth(float64(b.bytes), busy, len(c.ranks)))
		}
		line.Buckets = append(line.Buckets, out)
	}
	bytes := c.file.Add(line)
	c.pause = max(communicationInterval, time.Duration(float64(bytes)/communicationRate*float64(time.Second)))
	c.reset()
}

// mean returns the means over a number of steps. In a run of several ranks, it adds the all-reduces as a separate link.
func (s *rankLinks) mean(steps float64, ranks int) runtime.RankCommunication {
	out := runtime.RankCommunication{Compute: s.compute.Seconds() / steps, Exposed: s.exposed.Seconds() / steps,
		Hidden: s.hidden.Seconds() / steps, Bytes: float64(s.bytes) / steps,
		Links: []runtime.LinkTraffic{}}
	for i, l := range s.links {
		out.Links = append(out.Links, runtime.LinkTraffic{Link: l, Sent: runtime.Known(s.traffic[i].Sent),
			Received: runtime.Known(s.traffic[i].Received)})
	}
	if ranks > 1 {
		bus := runtime.Known(runtime.BusBandwidth(out.Bytes, out.Exposed+out.Hidden, ranks))
		out.Links = append(out.Links,
			runtime.LinkTraffic{Link: telemetry.Link{Kind: telemetry.LinkAllReduce, Name: "all-reduce",
				Basis: telemetry.BasisComputed}, Sent: bus, Received: bus})
	}
	return out
}

// reset sets the sums to 0.
func (c *communicationLines) reset() {
	c.steps, c.seconds = 0, 0
	for i := range c.ranks {
		s := &c.ranks[i]
		s.compute, s.exposed, s.hidden, s.bytes = 0, 0, 0, 0
	}
	clear(c.buckets)
}

// RolledBack implements train.Observer. It removes the lines of repeated steps.
func (c *communicationLines) RolledBack(step int64) {
	c.step = step
	c.reset()
	c.file.RolledBack(step)
}

// EvalDone implements train.Observer.
func (c *communicationLines) EvalDone(train.Evaluation) {}

// Saving implements [train.Observer]. It flushes the file, so that all lines before the checkpoint are on the disk.
func (c *communicationLines) Saving() {
	c.write(time.Now())
	c.file.sync()
}

// Saved implements train.Observer.
func (c *communicationLines) Saved(checkpoint.Saved, time.Duration) {}

// Warn implements train.Observer.
func (c *communicationLines) Warn(error) {}
