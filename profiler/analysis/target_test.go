package analysis

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// lossOver returns a trial with the losses of successive steps, each of which takes seconds.
func lossOver(name, key string, seconds float64, losses ...float64) *Trial {
	t := newTrial(name, "records")
	t.Status, t.Steps = "finished", int64(len(losses))
	c := Curve{Key: key}
	for i, loss := range losses {
		c.Points = append(c.Points, TrialPoint{int64(i + 1), Number(seconds * float64(i+1)), Number(loss)})
	}
	t.Curves = []Curve{c}
	return t
}

// falling returns n losses. The first is first, and each further one is smaller by fall.
func falling(n int, first, fall float64) (list []float64) {
	for i := range n {
		list = append(list, first-fall*float64(i))
	}
	return list
}

func TestTimeToALossThatAllRunsReach(t *testing.T) {
	slow := lossOver("slow", lossCurve, 2, falling(50, 5, 0.05)...)
	fast := lossOver("fast", lossCurve, 1, falling(100, 5, 0.05)...)
	s, err := CompareTrials([]*Trial{slow, fast})
	if err != nil {
		t.Fatal(err)
	}
	// The mean of the last 20 losses of the slow run is 5 - 0.05 x 39.5 = 3.025. The fast run reaches it after 50
	// steps, too.
	if s.Target == nil || s.Target.Curve != lossCurve || math.Abs(float64(s.Target.Loss)-3.03) > 1e-9 ||
		slow.TimeToLoss != 100 || fast.TimeToLoss != 50 {
		t.Errorf("got %+v, %v s and %v s, want a loss of 3.03, 100 s and 50 s", s.Target, slow.TimeToLoss,
			fast.TimeToLoss)
	}
	var text strings.Builder
	if err := s.Print(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "time to training loss 3.030") ||
		!strings.Contains(text.String(), "50.00 s (0.50x)") {
		t.Errorf("got\n%s", text.String())
	}
}

// The target must not be a loss of a run that diverged.
func TestARunThatDivergedHasNoTimeToALoss(t *testing.T) {
	good, bad := lossOver("good", lossCurve, 2, falling(50, 5, 0.05)...), lossOver("bad", lossCurve, 1, 5, 9.55e28)
	bad.Status, bad.diverged = "failed", true
	s, err := CompareTrials([]*Trial{good, bad})
	if err != nil {
		t.Fatal(err)
	}
	text := s.Report(nil)
	if s.Target == nil || s.Target.Loss > 4 || good.TimeToLoss != 100 || !math.IsNaN(float64(bad.TimeToLoss)) ||
		!strings.Contains(text, "Run bad diverged") {
		t.Errorf("got %+v, %v s and %v s, want the loss of the other run\n%s", s.Target, good.TimeToLoss,
			bad.TimeToLoss, text)
	}
	if got := Digits(9.55e28); got != "9.550e+28" {
		t.Errorf("got %s, want an exponent", got)
	}
}

// A run of another program may have only losses of evaluations. A run that diverges reaches no target.
func TestTimeToALossOfEvaluations(t *testing.T) {
	a, b := lossOver("a", evalPrefix+"loss", 1, 3, 2, 1), lossOver("b", evalPrefix+"loss", 1, 3, 1, 0.5)
	a.Curves = append(a.Curves, Curve{Key: lossCurve, Points: []TrialPoint{{1, 1, 9}}})
	s, err := CompareTrials([]*Trial{a, b})
	if err != nil {
		t.Fatal(err)
	}
	if s.Target == nil || s.Target.Curve != evalPrefix+"loss" || s.Target.Loss != 1 || a.TimeToLoss != 3 ||
		b.TimeToLoss != 2 {
		t.Errorf("got %+v, %v s and %v s, want an evaluation loss of 1, 3 s and 2 s", s.Target, a.TimeToLoss,
			b.TimeToLoss)
	}
	none := lossOver("none", lossCurve, 1)
	if s, err = CompareTrials([]*Trial{lossOver("c", lossCurve, 1, 2), none}); err != nil || s.Target != nil {
		t.Errorf("a run without losses: got %+v and error %v, want no target", s.Target, err)
	}
}

// The page shows a Sheet. It must have the same tables as the output on a terminal.
func TestASheetHasTheTablesOfPrint(t *testing.T) {
	none, hybrid := pair(t)
	s, err := CompareTrials(trials(t, none, hybrid))
	if err != nil {
		t.Fatal(err)
	}
	sheet := s.Sheet()
	var text strings.Builder
	if err := s.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, row := range slices.Concat(sheet.Results, sheet.Settings) {
		if !slices.ContainsFunc(strings.Split(text.String(), "\n"), func(line string) bool {
			return strings.Join(strings.Fields(line), " ") == strings.Join(row, " ")
		}) {
			t.Errorf("got the row %q, want one of\n%s", row, text.String())
		}
	}
	if want := []string{"policy=none", "policy=hybrid"}; !slices.Equal(sheet.Labels, want) {
		t.Errorf("got labels %q, want %q", sheet.Labels, want)
	}
}
