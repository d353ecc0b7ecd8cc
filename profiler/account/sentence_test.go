package account

import (
	"os"
	"strings"
	"testing"
)

// The tests of the dashboard's page expect the same sentences for the same accounts.
func TestTheSentenceIsThatOfThePage(t *testing.T) {
	page, err := os.ReadFile("../dashboard/ui/src/first.test.ts")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		useful, step float64
		ranks        int
		running      bool
		want         string
	}{
		{0.07, 0.112, 2, true, "The cluster does 63 % of what it could."},
		{0.11, 0.112, 2, false, "The cluster did 98 % of what it could."},
	} {
		got := Sentence(test.useful, test.step, test.ranks, test.running)
		if got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
		if !strings.Contains(string(page), test.want) {
			t.Errorf("first.test.ts does not contain %q", test.want)
		}
	}
	for want, fraction := range map[string]float64{"100 %": 1, "99 %": 0.994, "63 %": 0.625, "10 %": 0.0996,
		"9.9 %": 0.099, "0.50 %": 0.005, " 0 %": 0} {
		if got := Sentence(fraction, 1, 2, false); !strings.Contains(got, want) {
			t.Errorf("fraction %v: got %q, want %q", fraction, got, want)
		}
	}
	if got := Sentence(0.99, 1, 1, false); got != "The rank did 99 % of what it could." {
		t.Errorf("got %q", got)
	}
	if got := Sentence(0, 0, 2, false); got != "" {
		t.Errorf("without a step time: got %q", got)
	}
}
