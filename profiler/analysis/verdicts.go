package analysis

import (
	"cmp"
	"slices"

	"github.com/hetero-train/hetero-train/profiler/runs"
)

// healthy is the verdict of the balancer on a rank that is as fast as usual; see package straggler.
const healthy = "healthy"

// VerdictSummary describes the steps for which the balancer gave a rank the same verdict. A verdict covers the steps
// since the previous decision.
type VerdictSummary struct {
	Verdict string `json:"verdict"`         // as in logs/balance.jsonl
	Cause   string `json:"cause,omitempty"` // cause, if the rank is sick
	Steps   int64  `json:"steps"`           // number of steps with this verdict
	First   int64  `json:"first_step"`
	Last    int64  `json:"last_step"`
}

// RankVerdicts contains the verdicts of the balancer on a rank.
type RankVerdicts struct {
	Verdict  *string          `json:"verdict"`  // newest verdict, as in logs/balance.jsonl; null if there is none
	Cause    *string          `json:"cause"`    // cause, if the rank is sick; otherwise null
	Verdicts []VerdictSummary `json:"verdicts"` // verdicts other than healthy, in the order of their first steps
}

// judged adds up the verdicts of the decisions, for each rank.
type judged struct {
	previous int64 // step of the previous decision
	ranks    []judgedRank
}

// judgedRank contains the verdicts on one rank.
type judgedRank struct {
	last runs.DecisionRank             // verdict of the newest decision; only Health and Cause are set
	all  map[[2]string]*VerdictSummary // by Health and Cause
}

// add adds the verdicts of the decision after the given step. If the number of ranks has changed, add drops the earlier
// verdicts.
func (v *judged) add(step int64, ranks []runs.DecisionRank) {
	if len(v.ranks) != len(ranks) {
		v.ranks = make([]judgedRank, len(ranks))
	}
	for i, r := range ranks {
		k := &v.ranks[i]
		k.last = runs.DecisionRank{Health: r.Health, Cause: r.Cause}
		if r.Health == "" || r.Health == healthy {
			continue
		}
		key := [2]string{r.Health, r.Cause}
		s := k.all[key]
		if s == nil {
			if k.all == nil {
				k.all = map[[2]string]*VerdictSummary{}
			}
			s = &VerdictSummary{Verdict: r.Health, Cause: r.Cause, First: v.previous + 1}
			k.all[key] = s
		}
		s.Steps, s.Last = s.Steps+max(0, step-v.previous), step
	}
	v.previous = step
}

// addVerdicts adds the newest verdict on each rank, and all verdicts other than healthy in the order of their first
// steps.
func (s *Summary) addVerdicts(v *judged) {
	for i := range s.PerRank[:min(len(s.PerRank), len(v.ranks))] {
		r, k := &s.PerRank[i], &v.ranks[i]
		r.Verdict, r.Cause, r.Verdicts = known(k.last.Health), known(k.last.Cause), []VerdictSummary{}
		for _, of := range k.all {
			r.Verdicts = append(r.Verdicts, *of)
		}
		slices.SortFunc(r.Verdicts, func(a, b VerdictSummary) int {
			return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Verdict, b.Verdict),
				cmp.Compare(a.Cause, b.Cause))
		})
	}
}

// known returns nil, which is null in JSON, for an empty text.
func known(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
