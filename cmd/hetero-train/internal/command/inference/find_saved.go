package inference

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/lab"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/engine/weights"
)

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

const mostNameBytes = 64 << 20 // maximum size of the file of class names, bytes

// nameClasses reads the class names from file, unless file is "".
func (m *savedModel) nameClasses(file string) error {
	if file == "" {
		return nil
	}
	text, err := regular.Read(file, mostNameBytes)
	if err != nil {
		return exit.Usagef("--class-names: %w", err)
	}
	names := strings.Split(strings.TrimRight(string(text), "\r\n"), "\n")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	if len(names) != m.classes {
		return exit.Usagef("--class-names: %s has %d lines, want one for each of the model's %d classes", file,
			len(names), m.classes)
	}
	if weights.Named(m.trained.Classes) && !slices.Equal(names, m.trained.Classes) {
		m.run.Process.Opts.Log.Warn("--class-names replaces the names of the model's classes", "model",
			weights.DescribeClasses(m.trained.Classes), "file", weights.DescribeClasses(names))
	}
	m.trained.Classes = names
	return nil
}
