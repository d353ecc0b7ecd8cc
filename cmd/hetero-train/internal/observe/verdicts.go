package observe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/profiler/analysis"
)

// newestVerdict returns the text of the cell with the newest verdict on a rank.
func newestVerdict(r *analysis.RankVerdicts) string {
	if r.Verdict == nil {
		return "-"
	}
	return verdictText(*r.Verdict, r.Cause)
}

// verdictText describes a verdict from a file.
func verdictText(verdict string, cause *string) string {
	of := ""
	if cause != nil {
		of = show.Foreign(*cause)
	}
	return show.Verdict(show.Foreign(verdict), of)
}

// mostSlow is the maximum number of verdicts in the row of slow ranks. summary.json contains all of them.
const mostSlow = 8

// slowRanks returns a text that lists all verdicts during the run except healthy, with their ranks and steps. Verdicts
// with the most steps come first. The text is "" if there are no such verdicts.
func slowRanks(s *analysis.Summary) string {
	type slow struct {
		rank int
		of   analysis.VerdictSummary
	}
	var all []slow
	for _, r := range s.PerRank {
		for _, v := range r.Verdicts {
			all = append(all, slow{r.Rank, v})
		}
	}
	slices.SortStableFunc(all, func(a, b slow) int { return cmp.Compare(b.of.Steps, a.of.Steps) })
	var texts []string
	for _, v := range all[:min(len(all), mostSlow)] {
		texts = append(texts, fmt.Sprintf("rank %d: %s, in %s (%d to %d)", v.rank,
			verdictText(v.of.Verdict, &v.of.Cause), show.Count(v.of.Steps, "step"), v.of.First, v.of.Last))
	}
	if left := len(all) - mostSlow; left > 0 {
		texts = append(texts, fmt.Sprintf("%d more in %s", left, SummaryFile))
	}
	return strings.Join(texts, "; ")
}
