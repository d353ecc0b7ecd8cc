package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/analysis"
)

func TestTablesFitOneRankAndSeveral(t *testing.T) {
	s := &analysis.Summary{Ranks: 2, PerRank: []analysis.RankSummary{{Rank: 0, Samples: 24, Compute: 0.1},
		{Rank: 1, Samples: 8, Compute: 0.1, PowerWatts: analysis.Number(show.NaN)}}}
	rows := []Row{{"a", "b | c"}}
	if got := Table(rows, s); !strings.HasPrefix(got, "  a  b | c\n") || strings.Count(got, "\n") != 4 {
		t.Errorf("got\n%s", got)
	}
	if got := markdown("run", rows, s); !strings.Contains(got, `| a | b \| c |`) || strings.Count(got, "\n") != 10 {
		t.Errorf("got\n%s", got)
	}
	s.PerRank, s.Ranks = s.PerRank[:1], 1
	for _, r := range append(SummaryRows(s), Row{"", Table(rows, s)}) {
		if strings.Contains(r.Value, "samples/s") || r.Name == "communication" || r.Name == "balance" {
			t.Errorf("one rank: got %q", r)
		}
	}
	s.Ranks, s.StepParts = 2, analysis.StepParts{Forward: 0.06, Communication: 0.02, Exchanges: 0.02, Optimizer: 0.01,
		Between: 0.01}
	s.Bottleneck = &analysis.BottleneckSummary{Parts: analysis.Parts{Communication: 0.035}}
	if got, want := communication(s),
		"20 ms per step spent waiting for gradients, 20 ms in exchanges of batch normalisation (including 5 ms waiting for slower ranks); "; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q first", got, want)
	}
	if got, want := partsOf(s.StepParts),
		"data 0.0 %, forward 60.0 %, backward 0.0 % (forward and backward include exchanges of batch normalisation: 20.0 %), communication 20.0 %, optimizer 10.0 %, between the parts 10.0 %"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	slow := &analysis.Summary{
		Ranks: 2, PerRank: []analysis.RankSummary{{SamplesPerSecond: 0.4}, {Rank: 1, SamplesPerSecond: 1234.4}}}
	if got := Table(nil, slow); !strings.Contains(got, " 0.4000 ") || !strings.Contains(got, " 1234 ") {
		t.Errorf("samples/s of slow ranks: got\n%s", got)
	}
	s.Bottleneck.Step, s.Bottleneck.Parts.Useful = 0.112, 0.07
	if got := UseRows(s); len(got) != 1 || got[0].Value != "The cluster did 63 % of what it could." {
		t.Errorf("got %v", got)
	}
	if got := UseRows(nil); got != nil {
		t.Errorf("without records: got %v", got)
	}
	if got := SummaryRows(nil); got != nil {
		t.Errorf("without records: got %v", got)
	}
	c := &Console{run: assembly.New(new(config.Config), session.Options{})}
	c.run.Data = &parts.Opened{Name: "synthetic_image"}
	if got := c.results(train.Result{LastLoss: 2, Steps: 3}); got[0].Value != "synthetic_image" ||
		got[1].Value != "2.0000 after 3 steps, 0.00 epochs" {
		t.Errorf("got %v", got)
	}
	for first, trained := range map[string]train.Trained{"": {Steps: 110, Samples: 440, Time: 11 * time.Second},
		"from step 101: ": {Steps: 10, Samples: 40, Time: time.Second}} {
		got := c.results(train.Result{Steps: 110, Samples: 40, TrainTime: time.Second, Trained: trained})
		for _, row := range got[len(got)-2:] {
			if value, found := strings.CutPrefix(row.Value, "from step 101: "); found != (first != "") ||
				!strings.ContainsAny(value[:1], "0123456789") {
				t.Errorf("%d of 110 steps counted: %s: got %q, want %q first", trained.Steps, row.Name, row.Value,
					first)
			}
		}
	}
}

// The last row about the balance must contain the decision's reason why its estimate and the busy times differ.
func TestTheBalanceSaysWhyItsFiguresDiffer(t *testing.T) {
	s := &analysis.Summary{Ranks: 2, ShareOfOracle: 1, ShareOfOracleLow: 0.98, ShareOfOracleHigh: 1,
		ShareOfOracleMean: 1, Imbalance: 0.8, ShareOfOracleDisagreement: "rank 0 is busy for 1.8 of 8.0 ms"}
	for _, row := range SummaryRows(s) {
		if row.Name == "balance" && strings.HasSuffix(row.Value,
			" at the end (rank 0 is busy for 1.8 of 8.0 ms), load imbalance 80.0 %") {
			return
		}
	}
	t.Errorf("got %v, want a row that says why", SummaryRows(s))
}

func TestTheGainNamesItsSteps(t *testing.T) {
	unknown := analysis.Number(show.NaN)
	for want, s := range map[string]*analysis.Summary{
		"1.50 times faster than equal shares (1.40 to 1.60), on the measured step-time curves, over 80 % of the steps": {
			Gain: 1.5, GainLow: 1.4, GainHigh: 1.6, GainPart: 0.8},
		"unknown: rank 1 was not measured": {Gain: unknown, GainLow: unknown, GainHigh: unknown,
			GainUnknown: "rank 1 was not measured"},
		"": {Gain: unknown, GainLow: unknown, GainHigh: unknown},
	} {
		s.Ranks = 2
		got := ""
		for _, row := range SummaryRows(s) {
			if row.Name == "gain" {
				got = row.Value
			}
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
