package inference

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/task/images"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// savedFlags are the flags that select a checkpoint, and the device, precision and batch size for running its model.
type savedFlags struct {
	best  bool
	ema   bool
	batch int
	json  bool
	names string // file with the names of the classes

	byClass bool // flag of command eval: print the results of each class
}

// add adds the flags to a command. A flag that sets a key overrides the setting of the checkpoint.
func (f *savedFlags) add(cmd *cobra.Command, a *cli.App) {
	f.addSource(cmd, a)
	cmd.Flags().IntVar(&f.batch, "batch-size", 0, "samples per batch; 0: the micro-batch size of the training run")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object per line")
	cmd.Flags().StringVar(&f.names, "class-names", "",
		"`FILE` with one class name per line, in the order of the model's outputs; default: the names in the checkpoint")
}

// addSource adds only the flags that select the weights, the device and the precision.
func (f *savedFlags) addSource(cmd *cobra.Command, a *cli.App) {
	cmd.Flags().BoolVar(&f.best, "best", false, "use the best checkpoint of the run instead of the newest")
	cmd.Flags().BoolVar(&f.ema, "ema", false,
		"use the averaged weights; the checkpoint contains them if the run set ema.decay")
	a.AddKeyFlag(cmd, "device", "device.kind", "string", "device to compute on")
	a.AddKeyFlag(cmd, "threads", "device.threads", "int", "threads of a CPU device")
	a.AddKeyFlag(cmd, "precision", "train.precision", "string", "element type of the activations")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return cli.CompleteCheckpoint(a.Env.Catalog, cmd, typed)
	}
}

// savedModel is a trained model that is rebuilt from a checkpoint, without other files of the run.
type savedModel struct {
	run        *assembly.Run
	checkpoint *checkpoint.Checkpoint
	trained    parts.Trained // description of the training data, perhaps without the classes
	classes    int           // number of classes of the model
	averaged   bool          // --ema is set: evaluate the averaged weights
	imported   bool          // the checkpoint comes from "checkpoint import" and does not describe its training data
	prepared   bool          // the user specified how images are prepared
	noData     bool          // the user selected no data set, so the settings contain the default data set
	predictor  *replica.Predictor
	ranking    *task.Ranking // scores of an evaluation with independent classes; otherwise nil
}

// class returns the name of the class with a label.
func (m *savedModel) class(label int) string {
	if label < len(m.trained.Classes) {
		return m.trained.Classes[label]
	}
	return "class " + strconv.Itoa(label)
}

// samplesAtOnce returns the batch size: --batch-size if it is set, otherwise the micro-batch size of the training run.
func (m *savedModel) samplesAtOnce(f *savedFlags) int {
	if f.batch > 0 {
		return f.batch
	}
	m.run.Process.Cfg.Train.SetMicroBatches(assembly.MicroBatchesOf(&m.checkpoint.State))
	return max(m.run.Process.Cfg.Data.BatchSize/m.run.Process.Cfg.Train.MicroBatches(), 1)
}

// open opens the device and loads the weights, for batches of n samples. The normalization own of the data set is used
// if the checkpoint contains none.
func (m *savedModel) open(ctx context.Context, n int, own data.Normalization) error {
	if err := m.openDevice(ctx); err != nil {
		return err
	}
	if m.trained.Std != ([3]float32{}) {
		own = data.Normalization{Mean: m.trained.Mean, Std: m.trained.Std}
	}
	m.logPreprocessing(own)
	norm := parts.Normalization(m.run.Process.Cfg.Data, own)
	model, err := parts.BuildClassifier(&m.run.Process.Cfg.Model)
	if err != nil {
		return err
	}
	size := m.run.Process.Cfg.Data.ImageSize
	return m.load(replica.Options{
		Task: images.Classify{Model: model, Classes: m.classes, Independent: m.trained.MultiLabel, Size: size,
			Mean: norm.Mean, Std: norm.Std},
		BatchSize: n}, fmt.Sprintf("images of %d pixels (data.image_size)", size))
}

// load makes the predictor on the open device, and loads the weights. The text samples describes the samples of the
// model.
func (m *savedModel) load(o replica.Options, samples string) (err error) {
	o.Compute = m.run.Rank.Precision
	m.predictor, err = replica.NewPredictor(m.run.Rank.Device, o)
	if errors.As(err, new(*replica.MemoryError)) {
		return exit.With(exit.Device, fmt.Errorf("%w; lower --batch-size", err))
	}
	if err != nil {
		return fmt.Errorf("model %s on %s: %w", m.run.Process.Cfg.Model.Name, samples, err)
	}
	m.run.Process.Later(m.predictor.Close)
	if m.averaged {
		return m.predictor.LoadAverages(m.checkpoint)
	}
	return m.predictor.LoadWeights(m.checkpoint.Model)
}

// logPreprocessing warns if images are prepared differently than in training. It also warns if neither the weights nor
// the user specifies how images were prepared in training.
func (m *savedModel) logPreprocessing(own data.Normalization) {
	used := parts.PreprocessingOf(m.run.Process.Cfg.Data, own)
	switch {
	case m.trained.Differs(used):
		m.run.Process.Opts.Log.Warn("images are prepared in another way than in the training", "training",
			m.trained.Preprocessing.String(), "now", used.String())
	case m.imported && !m.trained.Known() && !m.prepared:
		m.run.Process.Opts.Log.Warn("the imported weights do not state how the training prepared images: set data.image_size, data.mean, data.std and data.random_resized_crop, or give -c FILE",
			"now", used.String())
	}
}

// openDevice opens the device and chooses the element type of the activations.
func (m *savedModel) openDevice(ctx context.Context) error {
	if err := m.run.Rank.OpenDevice(ctx); err != nil {
		return err
	}
	if info := m.run.Rank.Device.Info(); info.Modelled {
		return exit.Usagef("device %s is simulated and computes no values: all results would be zero", info.Name)
	}
	before, err := compute.TypesOf(&m.checkpoint.State)
	if err != nil {
		return err
	}
	return m.run.Rank.SettlePrecision(ctx, before)
}

// labelSets converts the labels of images that may have several labels to the numbers of the model. It returns nil if
// each image has one class. The argument numbers is the result of classNumbers.
func (m *savedModel) labelSets(of *data.LabelSets, numbers []int) (*data.LabelSets, error) {
	switch {
	case (of != nil) != m.trained.MultiLabel:
		texts := map[bool]string{true: "several labels per image", false: "one class per image"}
		return nil, exit.Usagef("the model of %s was trained with %s, but the data set has %s", m.checkpoint.Path,
			texts[m.trained.MultiLabel], texts[of != nil])
	case of == nil:
		return nil, nil
	}
	if numbers == nil {
		for label := range of.Names {
			numbers = append(numbers, label)
		}
	}
	return of.Relabelled(m.classNames(), numbers), nil
}

// classNumbers compares the classes of a data set with those of the model, by name. It returns the model's number for
// each class of the data set, or nil if the numbers are equal. If the names of the model's classes are unknown, it
// warns and assumes equal numbers.
func (m *savedModel) classNumbers(have []string) ([]int, error) {
	want := m.trained.Classes
	switch {
	case have == nil || slices.Equal(have, want):
		return nil, nil
	case weights.Named(want) && weights.Named(have), weights.Numbers(want) && weights.Numbers(have):
		at, missing, ok := weights.Locate(have, want)
		if !ok {
			return nil, exit.Usagef("the model of %s has no class %q, which the data set has; the classes of the model are %s, those of the data set are %s",
				m.checkpoint.Path, missing, weights.DescribeClasses(want), weights.DescribeClasses(have))
		}
		if len(have) < len(want) {
			m.run.Process.Opts.Log.Warn(
				fmt.Sprintf("the data set has %d of the %d classes of the model; the model chooses among all classes",
					len(have), len(want)), "data", weights.DescribeClasses(have))
		}
		if weights.InOrder(at) {
			return nil, nil
		}
		return at, nil
	case len(have) > m.classes:
		return nil, exit.Usagef("the data set has %d classes, the model of %s has %d, and the names of the classes are unknown; the classes of the data set are %s; name those of the model with --class-names FILE",
			len(have), m.checkpoint.Path, m.classes, weights.DescribeClasses(have))
	case len(have) != m.classes:
		return nil, exit.Usagef("the data set has %d classes, but the model of %s has %d outputs without names, so the labels would not match; name them with --class-names FILE",
			len(have), m.checkpoint.Path, m.classes)
	}
	m.run.Process.Opts.Log.Warn("the classes are compared by number only, because the names are unknown: name the model's classes with --class-names FILE",
		"data", weights.DescribeClasses(have), "model", weights.DescribeClasses(m.classNames()))
	return nil, nil
}

// classNames returns the names of all classes of the model.
func (m *savedModel) classNames() []string {
	names := make([]string, m.classes)
	for i := range names {
		names[i] = m.class(i)
	}
	return names
}

// readsText reports whether the model reads tokens.
func (m *savedModel) readsText() bool { return m.run.Process.Cfg.Model.Samples == config.Tokens }

// textClasses returns the number of classes of a text classifier. It returns 0 if the model predicts tokens.
func (m *savedModel) textClasses() int {
	if head, ok := m.checkpoint.Model.Info("classifier.bias"); ok && len(head.Shape) == 1 {
		return head.Shape[0]
	}
	return 0
}

// tableSizes returns the numbers of rows of the token table and of the position table. A model of another module has
// its own tables; for such a model, tableSizes returns the sizes of the training data.
func (m *savedModel) tableSizes() (vocabulary, positions int, err error) {
	if t, ok := m.run.Process.Cfg.Model.Options.(parts.Transformer); ok {
		return parts.TableSizes(t, m.checkpoint.Model)
	}
	if m.trained.Vocabulary == 0 || m.trained.Length == 0 {
		return 0, 0, exit.Usagef("%s does not state the vocabulary size and the sequence length of its model %s: want a checkpoint that a training saved",
			m.checkpoint.Path, m.run.Process.Cfg.Model.Name)
	}
	return m.trained.Vocabulary, m.trained.Length, nil
}
