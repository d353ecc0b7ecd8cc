package inference

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/task"
)

// Evaluation is the output of command eval.
type Evaluation struct {
	Program    string `json:"program"`
	Checkpoint string `json:"checkpoint"`
	Step       int64  `json:"step"`
	Epoch      int64  `json:"epoch"` // epoch of the last step, counted from 0 as in the log of the training
	Model      string `json:"model"`
	Parameters int64  `json:"parameters"`
	Dataset    string `json:"dataset"`
	Split      string `json:"split"`
	Path       string `json:"path,omitempty"` // value of data.path or data.val_path
	// origin of the samples: a part of the data set, or samples held out of training
	Part string `json:"part,omitempty"`
	// number of samples of the data set, without parts that are not used
	Of       int               `json:"samples_of"`
	limited  string            // keys that limit the data set to a part of its files
	Averaged bool              `json:"averaged"`       // true if the averaged weights were evaluated
	Note     string            `json:"note,omitempty"` // condition that a reader of the results must know
	Samples  int               `json:"samples"`
	Classes  int               `json:"classes"`
	Loss     experiment.Number `json:"loss"` // mean loss; null if it is not finite
	Top1     float64           `json:"top1"` // accuracy: fraction of the samples, or of all pairs of sample and label
	Top5     *float64          `json:"top5,omitempty"`
	// MultiLabel is true if a sample may belong to any number of classes. In this case, there is no Top5.
	MultiLabel bool `json:"multi_label,omitempty"`
	// AveragePrecision is the mean over the classes that have samples. It is set if MultiLabel is true.
	AveragePrecision *float64 `json:"mean_average_precision,omitempty"`
	Seconds          float64  `json:"seconds"`
	PerSecond        float64  `json:"samples_per_second"`
	Device           string   `json:"device"`
	Precision        string   `json:"precision"`
	BatchSize        int      `json:"batch_size"`

	// The following fields are set for classifiers.
	F1      *float64            `json:"f1,omitempty"`
	MacroF1 *float64            `json:"macro_f1,omitempty"`
	ByClass []task.ClassFigures `json:"by_class,omitempty"` // set with --by-class

	// The following fields are set for text. Targets is the number of evaluated predictions: of tokens, or of labels.
	Targets    int                `json:"targets,omitempty"`
	Length     int                `json:"sequence_length,omitempty"` // number of tokens of a sample, with padding
	Perplexity *experiment.Number `json:"perplexity,omitempty"`
	// NextSentence is the fraction of the pairs of texts that the model classifies correctly.
	NextSentence *float64 `json:"next_sentence,omitempty"`
}

// fault returns an error if the mean loss is not finite.
func (r Evaluation) fault() error {
	if loss := float64(r.Loss); !math.IsNaN(loss) && !math.IsInf(loss, 0) {
		return nil
	}
	return exit.With(exit.Diverged, fmt.Errorf("%s: the mean loss is not finite, so the other figures mean nothing: evaluate an earlier checkpoint, or train again with a smaller optimizer.lr",
		r.Checkpoint))
}
