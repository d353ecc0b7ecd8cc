package workload

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// For GPUs of a single type, Mixed must return the measured speed of this type.
func TestMixedOfOneTypeEqualsAlone(t *testing.T) {
	s := Default()
	for kind, k := range s.Speeds.Kinds {
		for typ := range k.Types {
			for _, n := range []int{2, 4, 8} {
				counts := make([]int, 3)
				counts[typ] = n
				for _, spread := range []bool{false, true} {
					got, ok := s.Speeds.Mixed(kind, counts, spread)
					want := s.Speeds.Alone(kind, typ, n, spread)
					if ok != (k.Batch > 0) || ok && math.Abs(got/want-1) > 1e-9 {
						t.Errorf("kind %d, %d GPUs of type %d: got %v, %v, want %v", kind, n, typ, got, ok, want)
					}
				}
			}
		}
	}
}

// A mixed gang must be faster than a gang of its slowest type, and slower than a gang of its fastest type.
func TestMixedLiesBetweenItsTypes(t *testing.T) {
	s := Default()
	for kind, k := range s.Speeds.Kinds {
		if k.Batch == 0 {
			continue
		}
		mixed, ok := s.Speeds.Mixed(kind, []int{2, 2, 0}, true)
		fast, slow := s.Speeds.Alone(kind, Volta, 4, true), s.Speeds.Alone(kind, Turing, 4, true)
		if !ok || mixed <= slow || mixed >= fast {
			t.Errorf("kind %d: got %v, %v, want a speed between %v and %v", kind, mixed, ok, slow, fast)
		}
	}
}

func TestTableInterpolates(t *testing.T) {
	table := &Table{Kinds: []Rates{{Types: [][]Rate{{{1, 10, 10}, {2, 20, 15}, {4, 30, 0}}}}}}
	if err := table.Build(1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n      int
		spread bool
		want   float64
	}{{1, false, 10}, {2, true, 15}, {3, false, 25}, {3, true, 0}, {4, false, 30}, {4, true, 0}, {5, false, 0},
		{0, false, 0}} {
		if got := table.Alone(0, 0, c.n, c.spread); got != c.want {
			t.Errorf("Alone of %d GPUs, spread %v: got %v, want %v", c.n, c.spread, got, c.want)
		}
	}
}

func TestTableIsChecked(t *testing.T) {
	good := [][]Rate{{{1, 10, 10}}}
	for name, table := range map[string]*Table{
		"types":      {Kinds: []Rates{{}}},
		"negative":   {Kinds: []Rates{{Types: [][]Rate{{{1, -1, 1}}}}}},
		"NaN":        {Kinds: []Rates{{Types: [][]Rate{{{1, math.NaN(), 1}}}}}},
		"descending": {Kinds: []Rates{{Types: [][]Rate{{{2, 1, 1}, {1, 1, 1}}}}}},
		"curve":      {Kinds: []Rates{{Types: good, Curves: []divide.Curve{{}}}}},
		"curves":     {Kinds: []Rates{{Types: good, Curves: []divide.Curve{nil, nil}}}},
		"pair kind":  {Kinds: []Rates{{Types: good}}, Pairs: []Pair{{Other: 1, GPUs: 1, Speed: 1, OtherSpeed: 1}}},
		"pair speed": {Kinds: []Rates{{Types: good}}, Pairs: []Pair{{GPUs: 1, Speed: math.Inf(1), OtherSpeed: 1}}},
	} {
		if err := table.Build(1); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// A cluster with two GPUs of each of two types runs a gang of four. There, the speed of four GPUs of one type cannot be
// measured, so Mixed must not need it.
func TestMixedNeedsNoSpeedsThatCannotBeMeasured(t *testing.T) {
	curve := func(seconds float64) divide.Curve {
		return divide.Curve{{Samples: 16, Seconds: seconds / 2}, {Samples: 64, Seconds: 2 * seconds}}
	}
	rates := func(spread float64) [][]Rate {
		return [][]Rate{{{1, 10, 10}, {2, 16, spread}}, {{1, 10, 10}, {2, 16, spread}}}
	}
	both := []divide.Curve{curve(0.1), curve(0.1)}
	for _, c := range []struct {
		name  string
		table Table
		want  float64 // steps/s
		typ   int
		lacks string
	}{
		{"spread", Table{Kinds: []Rates{{Types: rates(8), Batch: 32, Curves: both}}, Have: []int{2, 2}},
			4 / (0.1 + (2.0/8 - 0.1)), -1, ""},
		{"packed", Table{Kinds: []Rates{{Types: rates(0), Batch: 32, Curves: both}}, Have: []int{2, 2}},
			4 / (0.1 + (2.0/16 - 0.1)), -1, ""},
		{"measurable", Table{Kinds: []Rates{{Types: rates(8), Batch: 32, Curves: both}}, Have: []int{4, 2}}, 0, 0,
			"speed on 4 GPUs of several machines"},
		{"unknown cluster", Table{Kinds: []Rates{{Types: rates(8), Batch: 32, Curves: both}}}, 0, 0,
			"speed on 4 GPUs of several machines"},
		{"no batch", Table{Kinds: []Rates{{Types: rates(8), Curves: both}}, Have: []int{2, 2}}, 0, -1, "batch"},
		{"no curve", Table{Kinds: []Rates{{Types: rates(8), Batch: 32, Curves: []divide.Curve{curve(0.1), nil}}},
			Have: []int{2, 2}}, 0, 1, "curve"},
		{
			"no speed on one GPU",
			Table{Kinds: []Rates{{Types: [][]Rate{{{1, 10, 10}}, {{2, 16, 8}}}, Batch: 32, Curves: both}},
				Have: []int{2, 2}}, 0, 1, "speed on 1 GPU"},
	} {
		if err := c.table.Build(2); err != nil {
			t.Fatal(err)
		}
		got, ok := c.table.Mixed(0, []int{2, 2}, true)
		if ok != (c.want > 0) || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, ok, c.want)
		}
		if typ, what := c.table.Lacks(0, []int{2, 2}, true); typ != c.typ || what != c.lacks {
			t.Errorf("%s: got type %d lacks %q, want type %d, %q", c.name, typ, what, c.typ, c.lacks)
		}
	}
}
