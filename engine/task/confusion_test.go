package task

import (
	"math"
	"testing"
)

// The expected values are those of sklearn.metrics.f1_score, with average="macro" for three classes.
func TestMacroF1AndClassesThatAreNeverPredicted(t *testing.T) {
	c := NewConfusion(4)
	for i, label := range []int{0, 0, 0, 1, 2} { // class 3 has no samples
		c.Count(label, []int{0, 0, 2, 0, 2}[i])
	}
	if got, want := c.MacroF1(), (4.0/6+0+2.0/3)/3; math.Abs(got-want) > 1e-15 {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := c.Never(); len(got) != 1 || got[0] != 1 {
		t.Errorf("got %v, want class 1", got)
	}
	if got, want := DescribeNever([]int{1, 7}, []string{"a", "b"}), `the model predicts no sample as one of 2 classes that have samples: "b", class 7`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	two := NewConfusion(2)
	for i, label := range []int{0, 0, 0, 0, 1} {
		two.Count(label, []int{0, 0, 0, 0, 0}[i])
	}
	if f1, macro := two.F1(), two.MacroF1(); f1 != 0 || math.Abs(macro-4.0/9) > 1e-15 { // 8/9 and 0
		t.Errorf("got F1 %v and macro F1 %v, want 0 and 0.444", f1, macro)
	}
}

func TestF1(t *testing.T) {
	for _, c := range []struct {
		classes           int
		labels, predicted []int
		want              float64
	}{
		{2, []int{0, 1, 1, 0, 1}, []int{0, 1, 0, 1, 1}, 2.0 / 3},
		{2, []int{0, 0, 0}, []int{0, 0, 0}, 0},
		{2, []int{1, 1}, []int{1, 1}, 1},
		{2, nil, nil, 0},
		{3, []int{0, 1, 2, 2, 1}, []int{0, 2, 2, 1, 1}, (1 + 0.5 + 0.5) / 3},
		{3, []int{0, 0, 1}, []int{0, 1, 1}, (2.0/3 + 2.0/3) / 2}, // class 2 does not occur
		{3, []int{0, 1}, []int{-1, 1}, 0.5},                      // a target whose scores are not finite is a miss
	} {
		confusion := NewConfusion(c.classes)
		for i, label := range c.labels {
			confusion.Count(label, c.predicted[i])
		}
		if got := confusion.F1(); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%v as %v: got %v, want %v", c.labels, c.predicted, got, c.want)
		}
		confusion.Reset()
		if got := confusion.F1(); got != 0 {
			t.Errorf("after Reset: got %v, want 0", got)
		}
	}
}
