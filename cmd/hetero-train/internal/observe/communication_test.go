package observe

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

func readCommunication(t *testing.T, path string) (lines []runtime.Communication) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var c runtime.Communication
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, c)
	}
	return lines
}

func TestCommunicationOfARun(t *testing.T) {
	file, path := quietLines(t, runtime.CommunicationFile)
	o := newCommunication(file, [][]telemetry.Link{
		{{Kind: telemetry.LinkPCIe, Name: "pcie", Limit: 32e9, Basis: telemetry.BasisSample},
			{Kind: telemetry.LinkNetwork, Name: "eth0", Limit: 1.25e8, Basis: telemetry.BasisCounter},
			{Kind: telemetry.LinkLoopback, Name: "lo", Basis: telemetry.BasisCounter}},
		nil})
	unknown := telemetry.UnknownTraffic()
	begun := time.Unix(1000, 0)
	const ms = time.Millisecond
	step := func(n int64) *train.StepRecord {
		r := &train.StepRecord{Step: n, Time: begun.Add(time.Duration(n) * 500 * ms)}
		r.Times = replica.StepTimes{Data: 1 * ms, Forward: 100 * ms, Backward: 200 * ms, Exchanges: 1 * ms,
			Communication: 30 * ms, Optimizer: 10 * ms, Hidden: 70 * ms}
		r.Reductions = []gradsync.Reduction{{Name: "bucket 0", Bytes: 4000, Busy: 60 * ms},
			{Name: "bucket 1", Bytes: 1000, Busy: 40 * ms, Exposed: 30 * ms}, {Name: "unmeasured", Bytes: 8}}
		r.Ranks = []train.RankStep{
			{
				Times: r.Times, Bytes: 5000,
				Links: train.LinkReport{
					First: 0, Traffic: [2]telemetry.Traffic{{Sent: 5, Received: math.NaN()},
						{Sent: 100, Received: 200}}}}, {Times: r.Times, Bytes: 5000,
				Links: train.LinkReport{Traffic: [2]telemetry.Traffic{unknown, unknown}}}}
		if n%2 == 0 { // the other links of rank 0 are in the next report
			r.Ranks[0].Links = train.LinkReport{
				First: 2, Traffic: [2]telemetry.Traffic{{Sent: 7, Received: 7}, unknown}}
		}
		return r
	}
	for n := int64(1); n <= 5; n++ {
		o.StepDone(step(n))
	}
	lines := readCommunication(t, path)
	if len(lines) != 2 || lines[0].Step != 3 || lines[0].Steps != 2 || lines[1].Step != 5 {
		t.Fatalf("got %+v, want lines at steps 3 and 5: the first step begins, and then one second passes", lines)
	}
	known := func(p *float64) float64 {
		if p == nil {
			return math.NaN()
		}
		return *p
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*math.Abs(want) || math.IsNaN(got) != math.IsNaN(want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	c, nan := lines[1], math.NaN()
	near("step", c.Seconds, 0.341)
	r := c.Ranks[0]
	near("compute", r.Compute, 0.31)
	near("exposed", r.Exposed, 0.03)
	near("hidden", r.Hidden, 0.07)
	near("bytes", r.Bytes, 5000)
	if len(r.Links) != 4 || len(c.Ranks[1].Links) != 1 || r.Links[1].Name != "eth0" || r.Links[1].Limit != 1.25e8 ||
		r.Links[3].Basis != telemetry.BasisComputed {
		t.Fatalf("got links %+v and %+v, want the three of rank 0, and the all-reduces of both", r.Links,
			c.Ranks[1].Links)
	}
	near("pcie sent", known(r.Links[0].Sent), 5)
	near("pcie received", known(r.Links[0].Received), nan)
	near("eth0 received", known(r.Links[1].Received), 200)
	near("lo sent", known(r.Links[2].Sent), 7)
	near("all-reduce", known(r.Links[3].Sent), 5000/0.1) // with two ranks, the bus bandwidth is bytes divided by time
	near("bucket 0 hidden", known(c.Buckets[0].Hidden), 0.06)
	near("bucket 1 hidden", known(c.Buckets[1].Hidden), 0.01)
	near("bucket 1 exposed", known(c.Buckets[1].Exposed), 0.03)
	near("bucket 1 bandwidth", known(c.Buckets[1].Bandwidth), 1000/0.04)
	near("unmeasured", known(c.Buckets[2].Exposed), nan)

	o.StepDone(step(6))
	o.Saving()
	if lines = readCommunication(t, path); len(lines) != 3 || lines[2].Step != 6 || lines[2].Steps != 1 {
		t.Errorf("saving: got %+v, want a line of the last step", lines)
	}
	o.RolledBack(3)
	if lines = readCommunication(t, path); len(lines) != 1 || lines[0].Step != 3 {
		t.Errorf("a return to step 3: got %+v, want its line", lines)
	}
}

// A run of many ranks has long lines, which must not fill the disk.
func TestALongLineIsWrittenRarely(t *testing.T) {
	file, path := quietLines(t, runtime.CommunicationFile)
	o := newCommunication(file, make([][]telemetry.Link, 1000))
	r := &train.StepRecord{Ranks: make([]train.RankStep, 1000)}
	for second := range 100 {
		r.Step, r.Time = int64(second+1), time.Unix(int64(second), 0)
		o.StepDone(r)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if most := int64(100*communicationRate) + 300_000; info.Size() > most || info.Size() == 0 {
		t.Errorf("got %d bytes in 100 s, want at most %d", info.Size(), most)
	}
}
