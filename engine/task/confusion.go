package task

import (
	"fmt"
	"strconv"
	"strings"
)

// Confusion counts the predictions of a classifier by class. All slices have one element for each class.
//
// If Independent is set, a sample may have any number of the classes, and any number of them may be predicted.
type Confusion struct {
	Independent bool

	Hits      []int64 // number of targets of the class that are predicted as this class
	Labels    []int64 // number of targets of the class
	Predicted []int64 // number of targets that are predicted as this class
}

// NewConfusion returns a Confusion without targets.
func NewConfusion(classes int) *Confusion {
	all := make([]int64, 3*classes)
	return &Confusion{Hits: all[:classes], Labels: all[classes : 2*classes], Predicted: all[2*classes:]}
}

// Count adds one target. The parameter predicted is -1 if the scores are not finite.
func (c *Confusion) Count(label, predicted int) {
	c.Labels[label]++
	if predicted < 0 {
		return
	}
	c.Predicted[predicted]++
	if label == predicted {
		c.Hits[label]++
	}
}

// CountIndependent adds one target of a sample whose classes are independent.
func (c *Confusion) CountIndependent(class int, has, predicted bool) {
	if has {
		c.Labels[class]++
	}
	if predicted {
		c.Predicted[class]++
	}
	if has && predicted {
		c.Hits[class]++
	}
}

// Reset removes all targets.
func (c *Confusion) Reset() {
	clear(c.Hits)
	clear(c.Labels)
	clear(c.Predicted)
}

// F1 returns the harmonic mean of precision and recall. With two classes, it is the value of class 1. Otherwise it is
// the mean over the classes that have a target or a prediction. A class without hits has the value 0. If the classes
// are independent, F1 is that of all targets together (micro F1).
func (c *Confusion) F1() float64 {
	if c.Independent {
		hits, all := int64(0), int64(0)
		for i := range c.Hits {
			hits, all = hits+c.Hits[i], all+c.Labels[i]+c.Predicted[i]
		}
		return 2 * float64(hits) / float64(max(all, 1))
	}
	if len(c.Hits) == 2 {
		value, _ := c.of(1)
		return value
	}
	return c.MacroF1()
}

// MacroF1 returns the mean F1 over the classes that have a target or a prediction.
func (c *Confusion) MacroF1() float64 {
	sum, classes := 0.0, 0
	for i := range c.Hits {
		if value, known := c.of(i); known {
			sum += value
			classes++
		}
	}
	if classes == 0 {
		return 0
	}
	return sum / float64(classes)
}

// Never returns the classes that have targets, but are never predicted.
func (c *Confusion) Never() (classes []int) {
	for i, labels := range c.Labels {
		if labels > 0 && c.Predicted[i] == 0 {
			classes = append(classes, i)
		}
	}
	return classes
}

// DescribeNever describes classes that are never predicted. The parameter names contains the names of all classes.
func DescribeNever(never []int, names []string) string {
	const most = 6
	var some []string
	for _, class := range never[:min(len(never), most)] {
		name := strconv.Itoa(class)
		if class < len(names) {
			name = strconv.Quote(names[class])
		}
		some = append(some, name)
	}
	if len(never) > most {
		some = append(some, "…")
	}
	if len(never) == 1 {
		return "the model never predicts class " + some[0] + ", which has samples"
	}
	return fmt.Sprintf("the model never predicts %d classes that have samples: %s", len(never),
		strings.Join(some, ", "))
}

// of returns the F1 of a class. The result known is false if the class has neither targets nor predictions.
func (c *Confusion) of(class int) (value float64, known bool) {
	all := c.Labels[class] + c.Predicted[class]
	if all == 0 {
		return 0, false
	}
	return 2 * float64(c.Hits[class]) / float64(all), true
}

// ClassFigures are the metrics of one class. Precision is 0 if the class is never predicted, and Recall is 0 if it has
// no samples.
type ClassFigures struct {
	Class     int     `json:"class"`
	Name      string  `json:"name,omitempty"`
	Samples   int64   `json:"samples"`
	Predicted int64   `json:"predicted"` // number of samples that are predicted as this class
	Precision float64 `json:"precision"` // fraction of the predictions that are right
	Recall    float64 `json:"recall"`    // fraction of the samples of the class that are predicted as this class
	F1        float64 `json:"f1"`
	// AveragePrecision is known only for independent classes.
	AveragePrecision *float64 `json:"average_precision,omitempty"`
}

// ByClass returns the metrics of all classes. The parameter names contains the names of the classes, or is nil.
func (c *Confusion) ByClass(names []string) []ClassFigures {
	all := make([]ClassFigures, len(c.Hits))
	for i, hits := range c.Hits {
		all[i] = ClassFigures{Class: i, Samples: c.Labels[i], Predicted: c.Predicted[i], Precision: float64(hits) /
			float64(max(c.Predicted[i], 1)), Recall: float64(hits) / float64(max(c.Labels[i], 1))}
		all[i].F1, _ = c.of(i)
		if i < len(names) {
			all[i].Name = names[i]
		}
	}
	return all
}
