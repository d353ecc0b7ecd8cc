package assembly

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// classes returns the number of classes of the model: model.num_classes, or that of the data set if the key is 0.
func (r *Run) classes() (int, error) {
	have, want := len(r.Data.Classes()), r.Process.Cfg.Model.NumClasses
	if want == 0 || r.Data.Tokens != nil && have == 0 {
		return have, nil
	}
	if want < have {
		return 0, exit.Usagef("model.num_classes: data set %s has %d classes (got %d, want 0 or at least %d)",
			r.Data.Name, have, want, have)
	}
	return want, nil
}

// balanced is the value of train.class_weights with which balancedWeights computes the weights.
const balanced = "balanced"

// weighClasses sets the factor of the loss for each class (train.class_weights). The data set must be open.
func (r *Run) weighClasses() error {
	texts, names := r.Process.Cfg.Train.ClassWeights, r.Data.Classes()
	if len(texts) == 0 {
		return nil
	}
	if len(names) == 0 {
		return exit.Usagef("train.class_weights: data set %s has no classes", r.Data.Name)
	}
	if r.Data.Sets != nil {
		return exit.Usagef("train.class_weights: the images of %s have several labels each, and their loss has no weights of classes: leave the key out",
			r.Data.Name)
	}
	if parts.Mixing(r.Process.Cfg.Augment).Enabled() {
		return exit.Usagef("train.class_weights: a mixed image has two classes, so weights cannot be combined with augment.mixup and augment.cutmix")
	}
	outputs, err := r.classes()
	if err != nil {
		return err
	}
	if slices.Equal(texts, []string{balanced}) {
		r.weights = r.balancedWeights(len(names))
	} else if r.weights, err = statedWeights(texts, names); err != nil {
		return err
	}
	for len(r.weights) < outputs { // outputs that have no class in the data set
		r.weights = append(r.weights, 1)
	}
	r.Process.Opts.LogOf(logs.ComponentData).Info("weights of the classes in the loss (train.class_weights)", "weights",
		describeWeights(names, r.weights))
	return nil
}

// If a rank computes in f16, weightsFit returns an error for a weight that is infinite in f16. With such a weight, the
// gradients of the class would be infinite, and the run would skip every step with this class.
func (r *Run) weightsFit() error {
	if !r.Rank.ScalesLoss() || len(r.weights) == 0 {
		return nil
	}
	most := slices.Max(r.weights)
	if tensor.F16FromF32(float32(most))&0x7c00 != 0x7c00 {
		return nil
	}
	return exit.Usagef("train.class_weights: got the weight %g, want at most 65504 because a rank computes in fp16: choose smaller weights, or another train.precision",
		most)
}

// balancedWeights returns, for each class, (number of samples) / (number of classes · number of samples of this class).
// A class without samples has the weight 1, and the number of classes does not include it.
func (r *Run) balancedWeights(classes int) []float64 {
	counts, total, used := make([]int, classes), 0, 0
	label := func(i int) int { return r.Data.Train.Label(i) }
	total, _ = r.Data.Counts()
	if t := r.Data.Tokens; t != nil {
		label = data.Unskipped(t.Train).(interface{ Label(i int) int }).Label // labelled texts implement Label
	}
	for i := range total {
		if counts[label(i)]++; counts[label(i)] == 1 {
			used++
		}
	}
	weights := make([]float64, classes)
	for i, n := range counts {
		if weights[i] = 1; n > 0 {
			weights[i] = float64(total) / (float64(used) * float64(n))
		}
	}
	return weights
}

// statedWeights parses texts of the form NAME=WEIGHT. Classes without such a text have the weight 1.
func statedWeights(texts, names []string) ([]float64, error) {
	weights, given := make([]float64, len(names)), map[string]bool{}
	for i := range weights {
		weights[i] = 1
	}
	for _, text := range texts {
		at := strings.LastIndex(text, "=")
		if at < 0 {
			return nil, exit.Usagef("train.class_weights: got %q, want [%q] or NAME=WEIGHT for each class", text,
				balanced)
		}
		name := text[:at]
		weight, err := strconv.ParseFloat(text[at+1:], 64)
		class := slices.Index(names, name)
		switch {
		case err != nil || !(weight >= 0) || weight > math.MaxFloat32:
			return nil, exit.Usagef("train.class_weights: %q: got the weight %q, want a number from 0", text,
				text[at+1:])
		case class < 0:
			return nil, exit.Usagef("train.class_weights: the data set has no class %q; nearest: %s", name,
				strings.Join(config.Nearest(name, names, 3), ", "))
		case given[name]:
			return nil, exit.Usagef("train.class_weights: class %q appears twice", name)
		}
		weights[class], given[name] = weight, true
	}
	if slices.Max(weights) == 0 {
		return nil, exit.Usagef("train.class_weights: all weights are 0, so there is nothing to learn")
	}
	return weights, nil
}

// describeWeights formats the weights of the first few classes.
func describeWeights(names []string, weights []float64) string {
	const most = 8
	var texts []string
	for i, name := range names[:min(len(names), most)] {
		texts = append(texts, fmt.Sprintf("%s=%.4g", name, weights[i]))
	}
	if len(names) > most {
		texts = append(texts, "…")
	}
	return strings.Join(texts, ", ")
}
