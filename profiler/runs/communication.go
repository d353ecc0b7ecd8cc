package runs

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// Limits of the lists of a CommunicationView.
const (
	mostLinkRows = 64
	mostRankRows = 64
)

// CommunicationView contains the communication of the newest steps. Times are means per step, in s.
type CommunicationView struct {
	Step    int64                   `json:"step"` // last step
	Steps   int64                   `json:"steps"`
	Time    float64                 `json:"time"` // s since 1970 UTC
	Seconds float64                 `json:"step_seconds"`
	Ranks   []RankCommunicationView `json:"ranks"`   // the first ranks
	Buckets []runtime.BucketTimes   `json:"buckets"` // all-reduces of rank 0
	Links   []LinkView              `json:"links"`   // sorted: the links closest to their limits come first
	Left    int                     `json:"left"`    // number of links that Links omits
}

// RankCommunicationView is the communication of a rank.
type RankCommunicationView struct {
	Rank    int     `json:"rank"`
	Compute float64 `json:"compute_seconds"`
	Exposed float64 `json:"exposed_seconds"`
	Hidden  float64 `json:"hidden_seconds"`
	Bytes   float64 `json:"bytes"`
}

// LinkView is the traffic of a link of a rank in bytes/s.
type LinkView struct {
	Rank int `json:"rank"`
	runtime.LinkTraffic
}

// use returns the utilization of the link: the traffic of the busier direction divided by the limit. It returns a
// negative number if the utilization is unknown.
func (l *LinkView) use() float64 {
	most := -1.0
	for _, v := range []*float64{l.Sent, l.Received} {
		if v != nil && l.Limit > 0 {
			most = max(most, *v/l.Limit)
		}
	}
	return most
}

// communicated contains the data that were read from runtime.CommunicationFile.
type communicated struct {
	replaced int
	damaged  int
	last     *CommunicationView
}

// follow removes all lines if the file has been replaced. The parameter replaced is the number of replacements so far.
func (c *communicated) follow(replaced int) {
	if replaced != c.replaced {
		*c = communicated{replaced: replaced}
	}
}

func (c *communicated) add(line []byte, replaced int) {
	c.follow(replaced)
	var v runtime.Communication
	if tooLarge(line) || json.Unmarshal(line, &v) != nil || v.Step < 1 || v.Step > runtime.MostStep {
		c.damaged++
		return
	}
	out := &CommunicationView{Step: v.Step, Steps: v.Steps, Time: float64(v.Time.UnixMicro()) / 1e6, Seconds: v.Seconds,
		Buckets: v.Buckets, Ranks: []RankCommunicationView{}, Links: []LinkView{}}
	for i, r := range v.Ranks {
		if i < mostRankRows {
			out.Ranks = append(out.Ranks, RankCommunicationView{i, r.Compute, r.Exposed, r.Hidden, r.Bytes})
		}
		for _, l := range r.Links {
			out.Links = append(out.Links, LinkView{i, l})
		}
	}
	slices.SortStableFunc(out.Links, func(a, b LinkView) int { return cmp.Compare(b.use(), a.use()) })
	if out.Left = max(0, len(out.Links)-mostLinkRows); out.Left > 0 {
		out.Links = slices.Clone(out.Links[:mostLinkRows])
	}
	c.last = out
}
