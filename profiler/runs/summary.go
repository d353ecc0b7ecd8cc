package runs

import (
	"encoding/json"
	"time"

	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

const (
	summaryFile = "summary.json"
	mostSummary = 8 << 20 // the summary of a thousand ranks has about 4 MB
)

// Account contains the parts of a step, as means over the steps From to To; see package account. It comes from
// logs/summary.json, so it has the same figures as the final table and the command analyze.
type Account struct {
	From    int64              `json:"from"`
	To      int64              `json:"to"`
	Seconds float64            `json:"step_seconds"`
	Parts   map[string]float64 `json:"parts_seconds"`
	Bound   string             `json:"bound"` // verdict on these steps
	Verdict string             `json:"verdict"`
	Rank    *int               `json:"rank"` // rank that the verdict names; null: no single rank
}

// summarized is the part of logs/summary.json that View shows.
type summarized struct {
	modified time.Time // time of the file; zero if there is no file
	size     int64
	first    int64    // first step of the figures
	account  *Account // nil if there is no valid account
}

// readSummary reads logs/summary.json if the file has changed since it was last read. changed is true if the summary
// was read, or if the file has disappeared.
func (r *Run) readSummary() (changed bool) {
	was := r.summary
	info, err := r.logs.Stat(summaryFile)
	if err != nil {
		r.summary = summarized{}
		return was != r.summary
	}
	if was.modified.Equal(info.ModTime()) && was.size == info.Size() {
		return false
	}
	r.summary = summarized{modified: info.ModTime(), size: info.Size()}
	text, err := regular.ReadIn(r.logs, summaryFile, mostSummary)
	if err != nil {
		return true
	}
	var file struct {
		Steps      int64 `json:"steps"`
		First      int64 `json:"first_step"`
		Bottleneck *struct {
			Parts   map[string]float64 `json:"parts_seconds_per_step"`
			Seconds float64            `json:"step_seconds"`
			Bound   string             `json:"bound"`
			Verdict string             `json:"verdict"`
			Rank    *int               `json:"rank"`
		} `json:"bottleneck"`
	}
	if json.Unmarshal(text, &file) != nil || file.Bottleneck == nil || file.Bottleneck.Seconds <= 0 {
		return true
	}
	for _, seconds := range file.Bottleneck.Parts {
		if seconds < 0 || seconds > file.Bottleneck.Seconds {
			return true
		}
	}
	r.summary.first = file.First
	r.summary.account = &Account{file.First + runtime.WarmUpSteps, file.Steps, file.Bottleneck.Seconds,
		file.Bottleneck.Parts, file.Bottleneck.Bound, file.Bottleneck.Verdict,
		file.Bottleneck.Rank}
	return true
}

// account returns the account of the steps first to last of a run that has ended, or nil if its summary covers other
// steps.
func (r *Run) account(state Kind, first, last int64) *Account {
	a := r.summary.account
	if state == Running || state == Unknown || a == nil || r.summary.first != first || a.To != last {
		return nil
	}
	return a
}
