package checkpoints

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/task/images"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/engine/weights"
)

const importLong = `Convert weights from another program for use in a hetero-train model.

PATH is a .safetensors file, or a folder that save_pretrained of transformers wrote. Its tensor names must match the model that -c,
--model or --set selects. ResNets use torchvision's names. The command removes the prefixes that wrappers add to names (module.,
_orig_mod., model., state_dict.) and skips batch counters. Use --rename to change other names, and --drop to leave out
tensors that the model does not need. The command converts weights to f32.

GPT-2 uses the names of transformers, with or without "transformer.". If the file stores weights transposed, as transformers
does (Conv1D), the command transposes them back. It ignores buffers and copies of tied parameters. A folder needs no --model: config.json
selects the model and its sizes. With --format hf a file also needs a config.json next to it. If -c or --set states another size
than config.json, the command lists the differences (exit code 2).

For a model in several files, PATH is the folder, or the file model.safetensors.index.json.

If tensor names or shapes still differ, the command lists the differences (exit code 2). It refuses NaN and infinite values (exit
code 3).

If --output ends in .safetensors, the command writes a file for model.init_from. Otherwise it writes a folder with a checkpoint of
step 0, which --resume and all commands for checkpoints accept.`

const importExample = `  hetero-train checkpoint import theirs.safetensors --model resnet50 --output resnet50.safetensors
  hetero-train checkpoint import theirs.safetensors -c configs/resnet50.toml --output imported
  hetero-train checkpoint import gpt2-folder --output imported
  hetero-train checkpoint import theirs.safetensors --model resnet18 --output r18.safetensors \
    --rename '^backbone\.=' --rename '^classifier\.1\.=fc.'
  hetero-train checkpoint import moco.safetensors --model resnet50 --num-classes 10 --output r50.safetensors \
    --drop '^queue' --drop '^encoder_k\.' --rename '^encoder_q\.='`

type importFlags struct {
	output, head string
	format       string
	renames      []string
	drops        []string
	force        bool
}

func newCheckpointImport(a *cli.App) *cobra.Command {
	f := new(importFlags)
	cmd := &cobra.Command{Use: "import PATH", Short: "Convert weights from another program for use in hetero-train",
		Long: importLong, Example: importExample, Args: cli.Exactly("a .safetensors file or a folder of transformers")}
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", "",
		"`PATH` to write: a .safetensors file, or the folder of a checkpoint")
	flags.Var(&cli.KeyFlag{App: a, Flag: "model", Key: "model.name", Kind: "string"}, "model",
		"`NAME` of the model (model.name), instead of -c FILE")
	flags.Var(&cli.KeyFlag{App: a, Flag: "num-classes", Key: "model.num_classes", Kind: "int"}, "num-classes",
		"number of outputs of the classifier (model.num_classes); default: as in the weights file")
	flags.StringVar(&f.head, "head", weights.HeadAuto,
		"classifier to use, that of the file or a new one: `auto|keep|new` (model.init_head)")
	flags.StringArrayVar(&f.renames, "rename", nil, "replace a regular expression in tensor names: `PATTERN=REPLACEMENT`, where $1 is the first group; repeatable, applied in order")
	flags.StringArrayVar(&f.drops, "drop", nil, "leave out the tensors whose names in the file match a regular expression: `REGEXP`; repeatable, applied before --rename")
	flags.StringVar(&f.format, "format", "auto", "format of PATH: `auto|hf`; hf: of transformers, with config.json")
	flags.BoolVar(&f.force, "force", false, "replace the file if it exists")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return exit.Classify(cmd.Context(), f.run(cmd.Context(), a, args[0]))
	}
	return cmd
}

func (f *importFlags) run(ctx context.Context, a *cli.App, path string) error {
	options, err := f.check()
	if err != nil {
		return err
	}
	path, settings, err := f.find(path)
	if err != nil {
		return err
	}
	if a.File == "" && len(a.Overrides) == 0 && settings == nil {
		return exit.Usagef("checkpoint import: got no model, want -c FILE or --model NAME")
	}
	cfg, err := loadSettings(a, settings)
	if err != nil {
		return err
	}
	file, err := checkpoint.OpenFile(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var net parts.Network
	var fit *weights.Fit
	if t, ok := cfg.Model.Options.(parts.Transformer); ok && settings != nil {
		vocabulary, positions := t.Published()
		err = parts.CheckTransformers(path, settings, &cfg.Model, vocabulary, positions)
	} else if settings != nil {
		return exit.Usagef("checkpoint import: %s has the format of the library transformers, which has no model %s; select GPT-2 or BERT with --model",
			path, cfg.Model.Name)
	}
	if err == nil {
		net, fit, err = matchNetwork(file, cfg, options)
	}
	if different := new(checkpoint.MismatchError); errors.As(err, &different) {
		for _, d := range different.Differences {
			fmt.Fprintf(a.Env.Stdout, "%s\n", d)
		}
	}
	if weights.OnlyExtra(err) {
		err = fmt.Errorf("%w\nleave out tensors that the model does not need with --drop REGEXP", err)
	}
	if err != nil {
		return err
	}
	f.log(a, net, fit)
	about, err := imported(file, settings, cfg, fit)
	if err != nil {
		return err
	}
	if filepath.Ext(f.output) == ".safetensors" {
		err = f.writeFile(ctx, net, fit, path, about)
	} else {
		err = f.writeCheckpoint(ctx, cfg, fit, about)
	}
	if err == nil {
		_, err = fmt.Fprintf(a.Env.Stdout, "written: %s\n", f.output)
	}
	return err
}

// find returns the path of the file of weights. The argument path is this file or a folder of the library transformers.
// For a folder, find also returns the contents of config.json, otherwise nil.
func (f *importFlags) find(path string) (file string, s weights.Settings, err error) {
	file, isFolder, err := parts.TransformersFile(path)
	if err != nil {
		return "", nil, err
	}
	if !isFolder {
		file = path
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return "", nil, exit.Usagef("checkpoint import: there is no file %s: %w", path, err)
	case !info.Mode().IsRegular():
		return "", nil,
			exit.Usagef("checkpoint import: %s is not a regular file, want a .safetensors file or a folder of transformers with %s",
				path, weights.SettingsFile)
	case !isFolder && f.format != "hf":
		return file, nil, nil
	}
	s, err = parts.TransformersSettings(file)
	if err == nil && s == nil && f.format == "hf" {
		err = exit.Usagef("checkpoint import: --format hf: there is no %s of transformers next to %s",
			weights.SettingsFile, file)
	}
	return file, s, err
}

// loadSettings loads the configuration. If no flag selects a model, the parameter settings selects it. It also
// determines all sizes that no key sets. For a language model without a configured data set, loadSettings selects
// synthetic_text, which needs no files.
func loadSettings(a *cli.App, settings weights.Settings) (*config.Config, error) {
	name := ""
	set := map[string]bool{}
	for _, o := range a.Overrides {
		if set[o.Key] = true; o.Key == "model.name" {
			name = o.Value
		}
	}
	own := func(key, value string) {
		if a.File == "" && !set[key] {
			a.Overrides = append(a.Overrides, config.Override{Origin: weights.SettingsFile, Key: key, Value: value})
		}
	}
	classes := set["model.num_classes"]
	if settings != nil {
		own("model.name", settings.Model())
		name = cmp.Or(name, settings.Model())
		c, ok := settings.(weights.Classifier)
		classes = classes || ok && c.Classifies()
	}
	at := slices.IndexFunc(a.Env.Catalog.Models, func(k config.Kind) bool { return k.Name == name })
	switch {
	case at < 0 || a.Env.Catalog.Models[at].Samples != config.Tokens:
	case classes:
		own("data.dataset", parts.LabelledText)
	default:
		own("data.dataset", "synthetic_text")
	}
	cfg, err := a.Load()
	if err != nil {
		return nil, err
	}
	if t, ok := cfg.Model.Options.(parts.Transformer); ok && settings != nil {
		t.Adopt(settings)
	}
	return cfg, nil
}

// check converts the flags to the options for matching weights.
func (f *importFlags) check() (o weights.Options, err error) {
	switch o.InitOf = f.head; f.head {
	case weights.HeadAuto, weights.HeadKeep, weights.HeadNew:
	default:
		return o, exit.Usagef("checkpoint import: --head: got %q, want auto, keep or new", f.head)
	}
	if f.format != "auto" && f.format != "hf" {
		return o, exit.Usagef("checkpoint import: --format: got %q, want auto or hf", f.format)
	}
	for _, text := range f.renames {
		r, err := weights.ParseRename(text)
		if err != nil {
			return o, exit.Usagef("checkpoint import: --%w", err)
		}
		o.Renames = append(o.Renames, r)
	}
	if o.Drops, err = weights.ParseDrops(f.drops); err != nil {
		return o, exit.Usagef("checkpoint import: --%w", err)
	}
	if filepath.Ext(f.output) == ".safetensors" {
		err = checkOutput(f.output, f.force)
	} else {
		err = checkFolder(f.output)
	}
	if err != nil {
		err = exit.Usagef("checkpoint import: --output: %w", err)
	}
	return o, err
}

// imported returns what is known about the imported weights: the identity of the tokenizer, the preprocessing and the
// names of the classes. It returns no names if the file contains none, if the classifier is new, or if it has fewer
// outputs than names.
func imported(file *checkpoint.File, settings weights.Settings, cfg *config.Config, fit *weights.Fit) (
	about parts.Trained, err error) {
	known, err := parts.Described(file)
	if err != nil {
		return about, err
	}
	about.Tokenizer, about.Words, about.Preprocessing = known.Tokenizer, known.Words, known.Preprocessing
	if c, ok := settings.(weights.Classifier); ok && weights.Named(c.Classes()) {
		known.Classes = c.Classes()
	}
	if fresh, _ := fit.Replaced(); len(fresh) == 0 && len(known.Classes) <= cfg.Model.NumClasses &&
		weights.Named(known.Classes) {
		about.Classes = known.Classes
	}
	return about, nil
}

func (f *importFlags) log(a *cli.App, net parts.Network, fit *weights.Fit) {
	fresh, why := fit.Replaced()
	fmt.Fprintf(a.Env.Stdout, "imported tensors: %d\n", len(net.Tensors)-len(fresh))
	for _, note := range fit.Notes() {
		fmt.Fprintf(a.Env.Stdout, "%s\n", note)
	}
	if len(fresh) > 0 {
		a.Warn(fmt.Errorf("some layers are not imported and start with random weights (%s): %s",
			strings.Join(fresh, ", "), why))
	}
}

// writeFile writes the converted tensors as f32.
func (f *importFlags) writeFile(ctx context.Context, net parts.Network, fit *weights.Fit, from string,
	about parts.Trained) error {
	var tensors []checkpoint.Tensor
	for _, t := range net.Tensors {
		data := make([]byte, t.Bytes())
		found, err := fit.ReadInto(t, data)
		if err != nil {
			return err
		}
		if found {
			tensors = append(tensors, checkpoint.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: data})
		}
	}
	metadata := map[string]string{"format": "pt", "program": version.Text(), "imported_from": filepath.Base(from)}
	about.AddTo(metadata)
	return writeTensors(ctx, f.output, tensors, metadata)
}

// writeCheckpoint writes a checkpoint of step 0. It contains the state of an optimizer before its first step.
func (f *importFlags) writeCheckpoint(ctx context.Context, cfg *config.Config, fit *weights.Fit, about parts.Trained) (
	err error) {
	dev, err := devices.Open(reference.Driver{}.Kind(), devices.Alone(0))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	learns, err := learnt(cfg)
	if err != nil {
		return err
	}
	options := replica.Options{Task: learns, Compute: tensor.F32,
		BatchSize: 1, Accumulation: 1, Seed: cfg.Experiment.Seed, Optimizer: assembly.OptimizerOptions(cfg),
		Freeze: nn.Freeze{Patterns: cfg.Model.Freeze, Layers: cfg.Model.FreezeLayers}}
	target, err := replica.New(dev, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if err := target.FillWeights(fit.ReadInto); err != nil {
		return err
	}
	store, err := checkpoint.Open(f.output, checkpoint.Options{Keep: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	model, optimizer := target.Tensors()
	state := checkpoint.State{Program: version.Text(), Seed: cfg.Experiment.Seed, Config: string(cfg.TOML()),
		Optimizer: checkpoint.OptimizerState{Name: cfg.Optimizer.Name, Scalars: map[string]checkpoint.Float{
			"steps": 0}}, Counters: map[string]int64{}}
	if len(about.Classes) > 0 || about.Encoding().Known() {
		text, err := json.Marshal(about)
		if err != nil {
			return err
		}
		state.Extra = map[string]json.RawMessage{parts.DataKey: text}
	}
	_, err = store.Save(ctx, checkpoint.Snapshot{State: state, Model: model, Optimizer: optimizer})
	return err
}

// learnt returns the task of the configured model.
func learnt(cfg *config.Config) (task.Task, error) {
	if cfg.Model.Samples == config.Tokens {
		return parts.PublishedTask(&cfg.Model, textClasses(cfg))
	}
	network, err := parts.BuildClassifier(&cfg.Model)
	return images.Classify{Model: network, Classes: cfg.Model.NumClasses, Size: cfg.Data.ImageSize,
		Std: [3]float32{1, 1, 1}}, err
}
