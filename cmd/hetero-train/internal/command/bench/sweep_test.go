package bench

import (
	"slices"
	"testing"
)

// points returns points of batches 1, 2, 4, … with these rates in samples/s.
func points(rates ...float64) (list []*point) {
	for i, rate := range rates {
		p := &point{Batch: 1 << i}
		p.add([]float64{float64(p.Batch) / rate})
		list = append(list, p)
	}
	return list
}

func TestTheKneeIsTheSmallestBatchNearTheBestThroughput(t *testing.T) {
	for _, c := range []struct {
		rates      []float64
		best, knee int
	}{
		{[]float64{100}, 1, 1},
		{[]float64{100, 200, 400, 800}, 8, 8},
		{[]float64{100, 190, 199, 200}, 8, 2},
		{[]float64{100, 189, 199, 200}, 8, 4},
		{[]float64{100, 200, 150, 100}, 2, 2},
		{[]float64{200, 100, 200}, 1, 1},
	} {
		one := &curve{Points: points(c.rates...)}
		if one.conclude(); one.Best != c.best || one.Knee != c.knee {
			t.Errorf("%v: got best %d and knee %d, want %d and %d", c.rates, one.Best, one.Knee, c.best, c.knee)
		}
	}
}

func TestASweepEndsWhereThroughputStopsGrowing(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		ends  bool
	}{
		{[]float64{100}, false},
		{[]float64{100, 90}, false}, // one slower batch size may be a disturbed measurement
		{[]float64{100, 90, 110}, false},
		{[]float64{100, 90, 80}, true},
		{[]float64{100, 101, 101.9}, true},
		{[]float64{100, 101, 102.1}, false},
		{[]float64{100, 200, 90, 190}, true},
		{[]float64{0.05}, true}, // 20 s per step
	} {
		if got := (&curve{Points: points(c.rates...)}).over(); (got != "") != c.ends {
			t.Errorf("%v: got %q, want an end: %v", c.rates, got, c.ends)
		}
	}
}

func TestAPointKeepsTheSpreadOfItsRounds(t *testing.T) {
	p := &point{Batch: 10}
	p.add([]float64{1, 2, 9})
	p.add([]float64{4, 4, 4})
	p.add([]float64{3, 3, 3})
	if p.Low != 2 || p.High != 4 || p.Seconds != 3 || p.Rate != 10.0/3 || p.Steps != 9 || p.Rounds != 3 {
		t.Errorf("got %+v, want medians 2 to 4 and 3 over all steps", *p)
	}
}

func TestSizesDouble(t *testing.T) {
	s := &sweep{flags: &sweepFlags{mostBatch: 20}}
	if got := slices.Collect(s.sizes()); !slices.Equal(got, []int{1, 2, 4, 8, 16}) {
		t.Errorf("got %v", got)
	}
	s.flags.batches = []int{3, 9}
	if got := slices.Collect(s.sizes()); !slices.Equal(got, []int{3, 9}) {
		t.Errorf("got %v, want the given sizes", got)
	}
}
