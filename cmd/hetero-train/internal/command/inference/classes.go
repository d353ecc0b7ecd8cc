package inference

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/hetero-train/hetero-train/engine/task"
)

// describeClasses sets those fields of an evaluation that depend on the predictions for each class. It warns of classes
// that the model never predicts.
func (m *savedModel) describeClasses(r *Evaluation, c *task.Confusion, byClass bool) {
	f1, macro := c.F1(), c.MacroF1()
	r.F1, r.MacroF1 = &f1, &macro
	if byClass {
		r.ByClass = c.ByClass(m.classNames())
	}
	if m.ranking != nil {
		if ofClass, mean, known := m.ranking.AveragePrecision(); known {
			r.AveragePrecision = &mean
			for i := range r.ByClass {
				if ap := ofClass[i]; !math.IsNaN(ap) {
					r.ByClass[i].AveragePrecision = &ap
				}
			}
		}
	}
	if never := c.Never(); len(never) > 0 {
		m.run.Process.Opts.Log.Warn(task.DescribeNever(never, m.classNames()))
	}
}

// f1 returns the F1 score as text, with a separator before it.
func (r Evaluation) f1() string {
	text := fmt.Sprintf(" | F1 %.4f", *r.F1)
	if r.MacroF1 != nil && *r.MacroF1 != *r.F1 { // true only with two classes
		text += fmt.Sprintf(" | macro F1 %.4f", *r.MacroF1)
	}
	return text
}

// writeClasses prints one line for each class.
func (r Evaluation) writeClasses(w io.Writer) {
	if r.ByClass == nil {
		return
	}
	title, ap := "", ""
	if r.AveragePrecision != nil {
		title = fmt.Sprintf(" %9s", "AP")
	}
	fmt.Fprintf(w, "%9s %9s %9s %9s %9s%s  %s\n", "samples", "predicted", "precision", "recall", "F1", title, "class")
	for _, c := range r.ByClass {
		if title != "" {
			ap = fmt.Sprintf(" %9s", "none")
		}
		if c.AveragePrecision != nil {
			ap = fmt.Sprintf(" %9.4f", *c.AveragePrecision)
		}
		fmt.Fprintf(w, "%9d %9d %9.4f %9.4f %9.4f%s  %s\n", c.Samples, c.Predicted, c.Precision, c.Recall, c.F1, ap,
			cmp.Or(c.Name, strconv.Itoa(c.Class)))
	}
}
