package observe

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/analysis"
)

// The final table must name the slow ranks of the run and their causes.
func TestTheFinalTableNamesSlowRanks(t *testing.T) {
	sick, healthy, quota := "sick", "healthy", "CPU quota"
	s := &analysis.Summary{Ranks: 3, FirstStep: 1, Steps: 400, PerRank: []analysis.RankSummary{
		{Rank: 0, RankVerdicts: analysis.RankVerdicts{Verdict: &healthy, Verdicts: []analysis.VerdictSummary{
			{Verdict: "slow type", Steps: 1, First: 20, Last: 20}}}},
		{Rank: 1, RankVerdicts: analysis.RankVerdicts{Verdict: &sick, Cause: &quota,
			Verdicts: []analysis.VerdictSummary{{Verdict: sick, Cause: quota, Steps: 230, First: 171, Last: 400}}}},
		{Rank: 2}}}
	rows := SummaryRows(s)
	at := slices.IndexFunc(rows, func(r Row) bool { return r.Name == "slow ranks" })
	if at < 0 {
		t.Fatalf("got no row of slow ranks in %v", rows)
	}
	if got, want := rows[at].Value,
		"rank 1: slower than usual, cause: CPU quota, in 230 steps (171 to 400); rank 0: slow type, in 1 step (20 to 20)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for i, want := range []string{"verdict", "healthy", "slower than usual, cause: CPU quota", "-"} {
		for _, text := range []string{strings.Split(Table(nil, s), "\n")[i],
			strings.TrimSuffix(strings.Split(markdown("run", nil, s), "\n")[5+i+min(i, 1)], " |")} {
			if !strings.HasSuffix(text, " "+want) {
				t.Errorf("line %d: got %q, want %q at its end", i, text, want)
			}
		}
	}
	forged := "x\n\x1b[2J"
	s.PerRank[1].Cause, s.PerRank[1].Verdicts[0].Cause = &forged, forged
	if got := Table(SummaryRows(s), s); strings.ContainsRune(got, '\x1b') ||
		!strings.Contains(got, `cause: "x\n\x1b[2J", in 230 steps`) {
		t.Errorf("a cause of a stranger's file: got\n%s", got)
	}
	for i := range 9 {
		s.PerRank[2].Verdicts = append(s.PerRank[2].Verdicts,
			analysis.VerdictSummary{Verdict: sick, Cause: fmt.Sprint(i), Steps: 2})
	}
	if got := slowRanks(s); !strings.HasSuffix(got, "; 3 more in summary.json") || strings.Contains(got, "slow type") {
		t.Errorf("many verdicts: got %q", got)
	}
	for i := range s.PerRank {
		s.PerRank[i].Verdicts = nil
	}
	if got := slowRanks(s); got != "" {
		t.Errorf("without slow ranks: got %q", got)
	}
}
