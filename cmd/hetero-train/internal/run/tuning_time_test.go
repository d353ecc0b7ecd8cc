package run

import (
	"testing"

	"github.com/hetero-train/hetero-train/profiler/tuning"
)

func TestADisturbedMeasurementDoesNotChoose(t *testing.T) {
	for _, c := range []struct {
		name        string
		first       []float64 // times of all candidates in the first pass
		again       []float64 // times of the first candidate and of its rival, alternating
		want, shown int
	}{
		{"the first is fastest", []float64{1, 1.1}, nil, 0, 2},
		{"a small gain is confirmed", []float64{1, 1.2, 0.96}, []float64{1.01, 0.95, 1, 0.97}, 2, 7},
		{"a gain below the margin", []float64{1, 0.99}, []float64{1, 0.99, 1, 0.99}, 0, 6},
		{"the first was disturbed", []float64{1.3, 1}, []float64{1, 1, 1.3, 1}, 0, 6},
		{"the rival is disturbed once", []float64{1, 0.9}, []float64{1, 1.4, 1, 0.9}, 1, 6},
	} {
		times, shown := make([][]float64, len(c.first)), []tuning.Timed{{Name: "does not fit"}}
		for i, s := range c.first {
			times[i] = []float64{s / 2, s} // times of the two ranks
			shown = append(shown, tuning.Timed{Seconds: s})
		}
		got, err := confirmed(times, func(i int) error {
			if len(c.again) == 0 {
				t.Fatalf("%s: candidate %d is timed too often", c.name, i)
			}
			times[i], c.again = []float64{c.again[0], c.again[0]}, c.again[1:]
			return nil
		}, &shown)
		if err != nil || got != c.want || len(shown) != c.shown+1 || len(c.again) != 0 {
			t.Errorf("%s: got candidate %d, %d times shown, %d left, %v; want candidate %d, %d times", c.name, got,
				len(shown)-1, len(c.again), err, c.want, c.shown)
		}
	}
}
