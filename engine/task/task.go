package task

import (
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
)

// Labels is the name of the graph input for the labels of the targets, and of the batch field with the same contents:
// (N, Targets), i32. A target whose label is below 0 does not count.
const Labels = "labels"

// Task determines what a replica learns.
type Task interface {
	// Graph declares the inputs of n samples, and appends the forward pass to net.Graph. An input has the name of a
	// field of the batch. net.Training distinguishes training from evaluation. The trainer has already declared
	// net.IDs, net.Key and the inputs of the trainer. Graph sets Outputs.Logits only if the parameter logits is true.
	Graph(net *nn.Net, n int, logits bool) Outputs
	// Targets returns the number of targets of a sample, including targets that do not count.
	Targets() int
	Report() Report
}

// Shortener is implemented by tasks whose samples have positions.
type Shortener interface {
	// Shorten returns the same task for samples of fewer positions. The argument must be smaller than the number of
	// positions of the task. The parameters of the model stay the same.
	Shorten(positions int) Task
}

// Outputs contains the results of a forward pass over n samples with T targets each.
type Outputs struct {
	Loss *graph.Value // (n·T), in the type of parameters; 0 where the label is below 0
	// (n·T), i32: number of classes with a higher score than the label; -1 where the label is below 0
	Position *graph.Value
	Logits   *graph.Value // (n·T, classes); nil unless requested

	// A further target of each sample, whose label is 0 or more; nil unless Report.SampleTarget is set.
	SampleLoss     *graph.Value // (n), in the type of parameters; 0 for samples that only fill up a batch
	SamplePosition *graph.Value // (n), i32: as Position
}

// Report describes how results of a task are shown.
type Report struct {
	Metrics []Metric // metrics in addition to the loss; the first one determines the best evaluation
	Unit    string   // unit of throughput, such as "img"
	Units   int      // number of units of a sample: 1 for an image, or its number of tokens
	// RateKey is the machine-readable name of the throughput.
	RateKey string
	// Classes is the number of classes of the Confusion that an evaluation fills; 0: no Confusion.
	Classes int
	// Independent states that a sample may have any number of the classes. It then has a target for each class, with
	// the label 1 or 0.
	Independent bool
	// SampleTarget states that each sample has one further target. The loss is then the mean over the targets plus the
	// mean over the samples.
	SampleTarget bool
}

// Score contains means over the targets of a set of samples.
type Score struct {
	Loss       float64
	Top1, Top5 float64 // fractions of the targets whose label has the highest, or one of the 5 highest, scores
	F1         float64 // F1 of an evaluation that fills a Confusion
	MacroF1    float64 // mean of the F1 of all classes, of such an evaluation

	// Values of the further targets of samples; 0 unless Report.SampleTarget is set.
	SampleLoss float64 // part of Loss
	SampleTop1 float64
}

// Metric is a number that is computed from a Score.
type Metric struct {
	Key     string // machine-readable name, such as "top1"
	Title   string // name in texts, such as "top-1"
	Percent bool   // the value is a fraction and is shown in percent
	// Evaluated states that the metric is known only for evaluations, because it needs a Confusion.
	Evaluated bool
	Less      bool // a smaller value is better
	Of        func(Score) float64
}

// The metrics of the tasks.
var (
	Top1           = Metric{Key: "top1", Title: "top-1", Percent: true, Of: func(s Score) float64 { return s.Top1 }}
	Top5           = Metric{Key: "top5", Title: "top-5", Percent: true, Of: func(s Score) float64 { return s.Top5 }}
	Accuracy       = Metric{Key: "top1", Title: "accuracy", Percent: true, Of: func(s Score) float64 { return s.Top1 }}
	MaskedAccuracy = Metric{Key: "top1", Title: "masked accuracy", Percent: true, Of: func(s Score) float64 {
		return s.Top1
	}}
	LabelAccuracy = Metric{Key: "top1", Title: "label accuracy", Percent: true, Of: func(s Score) float64 {
		return s.Top1
	}}
	F1         = Metric{Key: "f1", Title: "F1", Evaluated: true, Of: func(s Score) float64 { return s.F1 }}
	MicroF1    = Metric{Key: "f1", Title: "micro F1", Evaluated: true, Of: func(s Score) float64 { return s.F1 }}
	Perplexity = Metric{Key: "perplexity", Title: "perplexity", Less: true, Of: func(s Score) float64 {
		return math.Exp(s.Loss - s.SampleLoss)
	}}
	MacroF1 = Metric{Key: "macro_f1", Title: "macro F1", Evaluated: true, Of: func(s Score) float64 {
		return s.MacroF1
	}}
	Loss         = Metric{Key: "loss", Title: "loss", Less: true, Of: func(s Score) float64 { return s.Loss }}
	NextSentence = Metric{Key: "next_sentence", Title: "next sentence", Percent: true, Of: func(s Score) float64 {
		return s.SampleTop1
	}}
)

// NewConfusion returns a Confusion without targets for the classes of the task.
func (r Report) NewConfusion() *Confusion {
	c := NewConfusion(r.Classes)
	c.Independent = r.Independent
	return c
}

// Best returns the metric that determines the best evaluation, unless the user chooses another one.
func (r Report) Best() Metric { return r.Metrics[0] }

// OfStep returns the first metric that is known for each step, not only for evaluations.
func (r Report) OfStep() Metric {
	for _, m := range r.Metrics {
		if !m.Evaluated {
			return m
		}
	}
	return Loss
}

// Choices returns all metrics that can determine the best evaluation: Metrics, the loss, and the F1 of classes.
func (r Report) Choices() []Metric {
	all := append(slices.Clone(r.Metrics), Loss)
	for _, m := range []Metric{F1, MacroF1} {
		if r.Classes > 0 && !r.shows(m.Key) {
			all = append(all, m)
		}
	}
	return all
}

// Showing returns the report with the metric of Choices that has the given key added to Metrics, so that each
// evaluation reports it.
func (r Report) Showing(key string) Report {
	if m := r.Named(key); m.Key != Loss.Key && !r.shows(m.Key) {
		r.Metrics = append(slices.Clone(r.Metrics), m)
	}
	return r
}

// shows reports whether one of Metrics has the given key.
func (r Report) shows(key string) bool {
	return slices.ContainsFunc(r.Metrics, func(m Metric) bool { return m.Key == key })
}

// Named returns the metric of Choices with the given key, or Best if there is none.
func (r Report) Named(key string) Metric {
	choices := r.Choices()
	if at := slices.IndexFunc(choices, func(m Metric) bool { return m.Key == key }); at >= 0 {
		return choices[at]
	}
	return r.Best()
}

// Texts returns all metrics as texts with their titles; see Metric.Text.
func (r Report) Texts(s Score, digits int) (texts []string) {
	for _, m := range r.Metrics {
		texts = append(texts, m.Text(m.Of(s), digits))
	}
	return texts
}

// Recorded are the metrics in files of runs that reports can name, in the order in which reports print them.
var Recorded = []Metric{Top1, Top5, Perplexity, F1, MacroF1, Loss}

// TextOf returns a value from the files of a run with the title of its metric; see Metric.Text. Files of runs are
// untrusted, so an unknown key is quoted.
func TextOf(key string, v float64) string {
	for _, m := range Recorded {
		if m.Key == key {
			return m.Text(v, 2)
		}
	}
	return fmt.Sprintf("%q %.4g", key, v)
}

// Better reports whether the value a of the metric is better than b.
func (m Metric) Better(a, b float64) bool {
	if m.Less {
		return a < b
	}
	return a > b
}

// Text returns a value with its title, such as "top-1 76.13 %". The parameter digits is the number of decimal places.
func (m Metric) Text(v float64, digits int) string {
	if m.Percent {
		return fmt.Sprintf("%s %.*f %%", m.Title, digits, 100*v)
	}
	return fmt.Sprintf("%s %.*f", m.Title, digits, v)
}
