package runs

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// communicationLine returns a line of the file with the figures of communication.
func communicationLine(t *testing.T, c runtime.Communication) string {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

func linkOf(name string, limit, sent float64) runtime.LinkTraffic {
	return runtime.LinkTraffic{Link: telemetry.Link{Kind: telemetry.LinkNetwork, Name: name, Limit: limit,
		Basis: telemetry.BasisCounter}, Sent: &sent}
}

func TestNewestCommunicationIsShown(t *testing.T) {
	parent := t.TempDir()
	f := newFakeRun(t, parent, "a", 2)
	f.steps(1, 20)
	path := filepath.Join(logsFolder, runtime.CommunicationFile)
	old := communicationLine(t, runtime.Communication{Step: 5, Steps: 5, Time: time.Unix(99, 0)})
	hidden := 0.25
	newest := communicationLine(t, runtime.Communication{Step: 20, Steps: 15, Time: time.Unix(100, 0), Seconds: 0.5,
		Buckets: []runtime.BucketTimes{{Name: "bucket 0", Bytes: 8, Hidden: &hidden}},
		Ranks: []runtime.RankCommunication{
			{Compute: 0.4, Exposed: 0.1, Hidden: 0.2, Bytes: 8, Links: []runtime.LinkTraffic{linkOf("idle", 100, 10),
				linkOf("unlimited", 0, 1e9)}}, {Links: []runtime.LinkTraffic{linkOf("busy", 100, 90)}}}})
	f.write(path, old+newest+`{"step":`) // the writer has written only a part of the last line
	r := open(t, parent, "a")
	c := r.View().Communication
	if c == nil || c.Step != 20 || c.Steps != 15 || c.Time != 100 || c.Seconds != 0.5 || len(c.Ranks) != 2 ||
		c.Ranks[0].Hidden != 0.2 || len(c.Buckets) != 1 || *c.Buckets[0].Hidden != 0.25 || c.Left != 0 {
		t.Fatalf("got %+v, want the newest line", c)
	}
	var names []string
	for _, l := range c.Links {
		names = append(names, fmt.Sprint(l.Rank, l.Name))
	}
	if got := strings.Join(names, " "); got != "1busy 0idle 0unlimited" {
		t.Errorf("got links %s, want the one closest to its limit first", got)
	}
	version := r.Version()
	f.write(path, old+newest+communicationLine(t, runtime.Communication{Step: 30, Steps: 10}))
	update(r)
	if c = r.View().Communication; c.Step != 30 || r.Version() == version {
		t.Errorf("after another line: got step %d and version %d, before %d", c.Step, r.Version(), version)
	}
	f.write(path, "no line\n"+old)
	update(r)
	if v := r.View(); v.Communication.Step != 5 || v.Damaged[runtime.CommunicationFile] == "" {
		t.Errorf("a damaged file: got %+v and %v, want step 5 and the damage", v.Communication, v.Damaged)
	}
}

func TestLinksOfManyRanksAreLimited(t *testing.T) {
	line := runtime.Communication{Step: 1, Ranks: make([]runtime.RankCommunication, 1000)}
	for i := range line.Ranks {
		line.Ranks[i].Links = []runtime.LinkTraffic{linkOf("eth0", 1000, float64(i))}
	}
	var c communicated
	c.add([]byte(communicationLine(t, line)), 0)
	if v := c.last; len(v.Links) != mostLinkRows || v.Left != 1000-mostLinkRows || v.Links[0].Rank != 999 ||
		len(v.Ranks) != mostRankRows {
		t.Errorf("got %d links, the first of rank %d, %d left, %d ranks", len(v.Links), v.Links[0].Rank, v.Left,
			len(v.Ranks))
	}
}

// Most runs have no NVLink. A column without values must be omitted, because it would only cost time.
func TestTrafficWithoutValuesIsOmitted(t *testing.T) {
	parent := t.TempDir()
	f := newFakeRun(t, parent, "a", 2)
	for rank, w := range f.writers {
		for step := int64(1); step <= 10; step++ {
			r := record(rank, step)
			if rank == 0 {
				r.Telemetry[telemetry.NetworkSent] = float64(1000 * step)
			}
			w.Append(&r)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, parent, "a")
	got, err := r.Figures(t.Context(),
		Query{From: 1, Points: 100, Columns: []string{"network_sent", "nvlink_sent", "temperature"}})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range got.Lines {
		lines = append(lines, fmt.Sprint(l.Column, l.Rank))
		if l.Column == "network_sent" && (l.Mean[9] != 10000 || l.Unit != "bytes/s") {
			t.Errorf("got %+v, want 10,000 bytes/s at step 10", l)
		}
	}
	if text := strings.Join(lines, " "); text != "network_sent0 temperature0 temperature1" {
		t.Errorf("got lines %s", text)
	}
}
