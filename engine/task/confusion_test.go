package task

import (
	"math"
	"slices"
	"testing"
)

// The expected values are those of sklearn.metrics.f1_score. For three classes, average is "macro".
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
	if got, want := DescribeNever([]int{1, 7}, []string{"a", "b"}),
		`the model never predicts 2 classes that have samples: "b", 7`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := DescribeNever([]int{1}, []string{"a", "b"}),
		`the model never predicts class "b", which has samples`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want := ClassFigures{Class: 0, Name: "a", Samples: 3, Predicted: 3, Precision: 2.0 / 3,
		Recall: 2.0 / 3, F1: 2.0 / 3}
	if got := c.ByClass([]string{"a"}); len(got) != 4 ||
		got[0] != want || got[1] != (ClassFigures{Class: 1, Samples: 1}) {
		t.Errorf("got %+v, want %+v first", got, want)
	}
	two := NewConfusion(2)
	for i, label := range []int{0, 0, 0, 0, 1} {
		two.Count(label, []int{0, 0, 0, 0, 0}[i])
	}
	if f1, macro := two.F1(), two.MacroF1(); f1 != 0 || math.Abs(macro-4.0/9) > 1e-15 { // F1 of the classes: 8/9 and 0
		t.Errorf("got F1 %v and macro F1 %v, want 0 and 0.444", f1, macro)
	}
}

// If the user names a metric, every evaluation must report it. The choices must contain it only once.
func TestReportsShowTheNamedMetric(t *testing.T) {
	r := Report{Metrics: []Metric{Accuracy, F1}, Classes: 2}
	keys := func(metrics []Metric) (all []string) {
		for _, m := range metrics {
			all = append(all, m.Key)
		}
		return all
	}
	for _, key := range []string{"auto", "f1", "loss", "unknown"} {
		if got := keys(r.Showing(key).Metrics); !slices.Equal(got, []string{"top1", "f1"}) {
			t.Errorf("%s: got %v, want no further metric", key, got)
		}
	}
	shown := r.Showing("macro_f1").Showing("macro_f1")
	if got := keys(shown.Metrics); !slices.Equal(got, []string{"top1", "f1", "macro_f1"}) {
		t.Errorf("got %v, want macro_f1 at the end", got)
	}
	if got := keys(shown.Choices()); !slices.Equal(got, []string{"top1", "f1", "macro_f1", "loss"}) ||
		shown.Best().Key != "top1" {
		t.Errorf("got the choices %v and the best %s", got, shown.Best().Key)
	}
}

func TestValuesFromFilesHaveTheTitlesOfTheirMetrics(t *testing.T) {
	for key, want := range map[string]string{"top1": "top-1 50.00 %", "": `"" 0.5`, "top5": "top-5 50.00 %",
		"macro_f1": "macro F1 0.50", "\x1b[2J": `"\x1b[2J" 0.5`} {
		if got := TextOf(key, 0.5); got != want {
			t.Errorf("%q: got %s, want %s", key, got, want)
		}
	}
}

// The expected values are those of sklearn.metrics.f1_score with average="micro" and "macro". The labels are
// [[1,0,1],[0,1,0],[1,1,0],[0,0,0]], and the predictions are [[1,0,0],[0,1,1],[1,0,0],[0,0,0]].
func TestF1OfIndependentClasses(t *testing.T) {
	c := Report{Classes: 3, Independent: true}.NewConfusion()
	for i, row := range [][3]int{{1, 0, 1}, {0, 1, 0}, {1, 1, 0}, {0, 0, 0}} {
		for class, predicted := range [][3]int{{1, 0, 0}, {0, 1, 1}, {1, 0, 0}, {0, 0, 0}}[i] {
			c.CountIndependent(class, row[class] == 1, predicted == 1)
		}
	}
	if micro, macro := c.F1(), c.MacroF1(); math.Abs(micro-2.0/3) > 1e-15 || math.Abs(macro-(1+2.0/3)/3) > 1e-15 {
		t.Errorf("got micro F1 %v and macro F1 %v, want 0.667 and 0.556", micro, macro)
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
		{3, []int{0, 1}, []int{-1, 1}, 0.5},                      // a target without finite scores is a miss
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
