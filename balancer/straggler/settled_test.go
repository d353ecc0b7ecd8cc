package straggler

import (
	"slices"
	"testing"
)

func TestAVerdictIsSettledAfterThreeWindows(t *testing.T) {
	const h, s, x = Healthy, SlowType, Sick
	for name, test := range map[string]struct {
		verdicts []Kind
		want     []News
	}{
		"slow type that comes and goes": {[]Kind{s, h, s, s, h, h, s, h, s, s}, nil},
		"slow type":                     {[]Kind{h, s, s, s, s, s, h, s, s, s}, []News{IsSlow}},
		"slow type, then healthy":       {[]Kind{s, s, s, h, h, h, h}, []News{IsSlow}},
		"sick at once, and recovered":   {[]Kind{h, x, x, h, x, h, h, h, h}, []News{IsSick, Recovered}},
		"sick, then slow type":          {[]Kind{x, s, s, s}, []News{IsSick, IsSlow}},
		"healthy from the start":        {[]Kind{h, h, h, h}, nil},
	} {
		var settled Settled
		var got []News
		for i, k := range test.verdicts {
			if news := settled.Add(int64(10*i), k); news != NoNews {
				got = append(got, news)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got the news %v, want %v", name, got, test.want)
		}
	}
}

func TestAKindHasOneName(t *testing.T) {
	for _, k := range []Kind{Healthy, SlowType, Sick} {
		if got, ok := ParseKind(k.String()); !ok || got != k {
			t.Errorf("%v: got %v, %v", k, got, ok)
		}
	}
	if _, ok := ParseKind(""); ok {
		t.Error("no name is a kind")
	}
}
