package inference

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/lab"
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

// openSaved finds the checkpoint of an image model and reads its settings. An empty path selects the checkpoint of the
// run that -c describes. The caller must call CloseAll on the returned model.
func openSaved(a *cli.App, path string, f *savedFlags) (*savedModel, error) {
	m, err := findSaved(a, path, f)
	if err != nil {
		return nil, err
	}
	if m.readsText() {
		m.classes = m.textClasses()
	} else if _, err = parts.BuildClassifier(&m.run.Process.Cfg.Model); err != nil {
		err = fmt.Errorf("%s: %w", m.checkpoint.Path, err)
	} else {
		m.classes, err = m.countClasses()
	}
	switch {
	case err != nil || f.names == "":
	case m.classes == 0:
		err = exit.Usagef("--class-names: %s predicts tokens and has no classes", m.checkpoint.Path)
	default:
		err = m.nameClasses(f.names)
	}
	if err != nil {
		m.run.Process.CloseAll()
		return nil, err
	}
	return m, nil
}

// findSaved does the same as openSaved for any type of model.
func findSaved(a *cli.App, path string, f *savedFlags) (_ *savedModel, err error) {
	if f.batch < 0 {
		return nil, exit.Usagef("--batch-size: got %d, want at least 1", f.batch)
	}
	if err := checkOverrides(a); err != nil {
		return nil, err
	}
	opts, err := a.Options(discovery.Assignment{WorldSize: 1}, a.Quieter(), "")
	if err != nil {
		return nil, err
	}
	r := assembly.New(nil, opts) // the configuration is set after the checkpoint is open
	if r.Process.Opts.Lab.Setup, err = lab.Find(a.Env.Lookup); err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	m := &savedModel{run: r}
	defer func() {
		if err != nil {
			r.Process.CloseAll()
		}
	}()
	if path == "" {
		if a.File == "" {
			return nil, exit.Usagef("got no checkpoint, want a checkpoint's folder, a run, or -c FILE")
		}
		cfg, err := a.Read()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(cfg.Experiment.OutputDir, cfg.Experiment.Name)
	} else if path, err = a.RunPath(path); err != nil {
		return nil, err
	}
	if m.checkpoint, err = findCheckpoint(path, f.best,
		func(err error) { r.Process.Opts.Log.Warn(err.Error()) }); err != nil {
		return nil, err
	}
	r.Process.Later(m.checkpoint.Close)
	if m.averaged = f.ema; f.ema && !m.checkpoint.Averaged() {
		return nil, exit.Usagef("--ema: %s has no averaged weights, because it was trained without ema.decay",
			m.checkpoint.Path)
	}
	if r.Process.Cfg, err = savedSettings(a, m.checkpoint); err != nil {
		return nil, err
	}
	a.WarnOfSuperseded(r.Process.Cfg)
	if m.trained, _, err = parts.TrainedOn(m.checkpoint.Path, &m.checkpoint.State); err != nil {
		return nil, err
	}
	if m.trained.Name == "" && m.checkpoint.State.Step == 0 {
		given := func(key string) bool {
			return a.File != "" || slices.ContainsFunc(a.Overrides, func(o config.Override) bool {
				return o.Key == key
			})
		}
		m.trained.Apply(&r.Process.Cfg.Data, given)
		m.prepared = given("data.image_size") || given("data.mean") || given("data.std")
		m.imported, m.noData = true, !given("data.dataset") &&
			r.Process.Cfg.Data.Dataset == parts.Defaults().Data.Dataset
	}
	return m, nil
}

// findCheckpoint opens the checkpoint that path names. If best is true, path names a run, and findCheckpoint opens the
// best checkpoint of that run.
func findCheckpoint(path string, best bool, warn func(error)) (*checkpoint.Checkpoint, error) {
	if !best {
		return parts.OpenCheckpoint(path, warn)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, exit.Usagef("--best: there is no run in %s; hetero-train runs lists the runs", path)
	}
	if filepath.Base(path) != "checkpoints" {
		path = filepath.Join(path, "checkpoints")
	}
	path = filepath.Join(path, "best")
	c, err := parts.OpenCheckpoint(path, warn)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.Usagef("--best: there is no %s: the run has not evaluated yet, or checkpoint.best is off",
			path)
	}
	return c, err
}

// ofTraining lists the tables of the configuration whose keys affect only training.
var ofTraining = []string{"augment", "optimizer", "schedule", "parallel", "balance", "profile", "checkpoint",
	"dashboard", "metrics", "notify", "tracking", "lab", "nccl"}

// checkOverrides refuses settings on the command line that have no effect without training.
func checkOverrides(a *cli.App) error {
	for _, o := range a.Overrides {
		if table, _, _ := strings.Cut(o.Key, "."); slices.Contains(ofTraining, table) {
			return exit.Usagef("%s: this command does not train, so %s has no effect: leave it out", o.Origin, o.Key)
		}
	}
	return nil
}

// savedSettings returns the settings of -c FILE. Without -c, it returns the settings in the checkpoint. --set and other
// flags override these settings.
func savedSettings(a *cli.App, c *checkpoint.Checkpoint) (*config.Config, error) {
	if a.File != "" {
		return a.Read()
	}
	const advice = "; give the settings with -c FILE"
	if c.State.Config == "" {
		return nil, exit.Usagef("%s has no settings, so its model is unknown%s", c.Path, advice)
	}
	cfg, err := parseSaved(a, c.Path, c.State.Config)
	switch {
	case err == nil:
		return cfg, nil
	case readable(a, c.State.Config):
		return nil, typedWrong(a, err)
	}
	return nil, exit.With(exit.Usage, fmt.Errorf("%s: its settings cannot be read%s:\n%w", c.Path, advice, err))
}

// parseSaved parses the settings in a checkpoint. If a flag selects another data set, it ignores the keys that describe
// the data set of the training run. The program wrote the settings, so each key has its own line.
func parseSaved(a *cli.App, name, text string) (*config.Config, error) {
	cfg, err := config.Parse(name, []byte(text), a.Env.Catalog, a.Overrides...)
	stored, bad := config.Parse(name, []byte(text), a.Env.Catalog)
	chosen := ""
	for _, o := range a.Overrides {
		if o.Key == "data.dataset" {
			chosen = strings.Trim(o.Value, `"'`)
		}
	}
	if chosen == "" || bad != nil || stored.Data.Dataset == chosen {
		return cfg, err
	}
	lines, table := strings.Split(text, "\n"), ""
	for i, line := range lines {
		if strings.HasPrefix(line, "[") {
			table = line
		}
		if table == "[data]" && strings.HasPrefix(line, "vocabulary =") {
			// The key would be valid for the other data set, but that has another number of tokens.
			lines[i] = ""
		}
	}
	if wrong := new(config.Error); errors.As(err, &wrong) {
		for _, f := range wrong.Faults {
			if f.Foreign && f.Origin == name && strings.HasPrefix(f.Key, "data.") && f.Line > 0 {
				lines[f.Line-1] = ""
			}
		}
	}
	return config.Parse(name, []byte(strings.Join(lines, "\n")), a.Env.Catalog, a.Overrides...)
}

// readable reports whether the settings are valid without the overrides of the command line.
func readable(a *cli.App, settings string) bool {
	_, err := config.Parse("", []byte(settings), a.Env.Catalog)
	return err == nil
}

// typedWrong returns the error for flags that make the valid settings of a checkpoint invalid. The error names the
// flags.
func typedWrong(a *cli.App, err error) error {
	if !a.Overrode(err) {
		var typed []string
		for _, o := range a.Overrides {
			typed = append(typed, o.Origin)
		}
		err = fmt.Errorf("the settings of the checkpoint do not fit %s:\n%w", strings.Join(typed, ", "), err)
	}
	return exit.With(exit.Usage, err)
}

// countClasses returns the number of classes of the model. It uses the first known of these numbers: the number in the
// settings, of the class names in the checkpoint, of the outputs of the last layer.
func (m *savedModel) countClasses() (int, error) {
	if n := m.run.Process.Cfg.Model.NumClasses; n > 0 {
		return n, nil
	}
	if n := len(m.trained.Classes); n > 0 {
		return n, nil
	}
	for _, name := range []string{"fc.bias"} { // last layer of every built-in classifier
		if t, ok := m.checkpoint.Model.Info(name); ok && len(t.Shape) == 1 {
			return t.Shape[0], nil
		}
	}
	return 0, exit.Usagef("%s: the number of classes is unknown: set it with --set model.num_classes=N",
		m.checkpoint.Path)
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
