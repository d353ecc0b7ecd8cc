package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// modelFlags are the flags that select the model of a benchmark. All other settings have the defaults of a run.
type modelFlags struct {
	deviceFlags
	model      string
	image      int
	classes    int
	length     int // number of tokens in a sample of text
	vocabulary int
	dropout    float64
	changed    func(flag string) bool // reports whether a flag was given; nil: none was given
	batch      int
	optimizer  string // "auto", "sgd" or "adamw"
	precision  string
	steps      int
	warmup     int
	accumulate int
	trace      string // path of the timeline; "" for none
	traceSteps int
}

func (f *modelFlags) add(cmd *cobra.Command, env session.Environment) {
	f.deviceFlags.add(cmd, env)
	f.addModel(cmd)
	cmd.Flags().IntVar(&f.batch, "batch-size", 32, "samples per step")
	cmd.Flags().StringVar(&f.precision, "precision", "auto",
		"element type of activations and gradients: `auto|f32|bf16|fp16`")
	cmd.Flags().IntVar(&f.steps, "steps", 10, "number of steps to time")
	cmd.Flags().IntVar(&f.warmup, "warmup", 2, "number of steps before the timed steps")
}

// addModel adds the flags that all benchmarks of a model have.
func (f *modelFlags) addModel(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.model, "model", "resnet50", "name of the model")
	cmd.Flags().IntVar(&f.image, "image-size", 224, "height and width of the images, pixels")
	cmd.Flags().IntVar(&f.classes, "classes", 1000, "number of classes")
	cmd.Flags().IntVar(&f.length, "seq-len", 0,
		"tokens per sample of a language model; 0: number of positions of the published model")
	cmd.Flags().IntVar(&f.vocabulary, "vocabulary", 0,
		"vocabulary size of a language model; 0: that of the published model")
	cmd.Flags().Float64Var(&f.dropout, "dropout", 0.1, "dropout of a language model, 0 to 1")
	f.changed = cmd.Flags().Changed
	cmd.Flags().StringVar(&f.optimizer, "optimizer", "auto",
		"update rule; auto: adamw for language models, sgd with momentum for other models: `auto|sgd|adamw`")
	cmd.Flags().IntVar(&f.accumulate, "grad-accumulation", 1, "micro-batches per step")
}

// benchmark is an open model with its data.
type benchmark struct {
	flags     *modelFlags
	config    *config.Config
	precision tensor.DType
	device    device.Device
	replica   *replica.Replica
	loader    replica.Batches
	memory    int64 // memory that a training run may use on this device, in bytes
	setup     time.Duration
	progress  func(done int) // called after each step, including warm-up steps; may be nil
	close     []func() error
}

func (b *benchmark) closeAll() error {
	var errs []error
	for i := len(b.close) - 1; i >= 0; i-- {
		errs = append(errs, b.close[i]())
	}
	return errors.Join(errs...)
}

// open builds the model on the device, with a small data set in memory.
func (f *modelFlags) open(ctx context.Context) (_ *benchmark, err error) {
	if f.trace != "" && f.traceSteps < 1 {
		return nil, exit.Usagef("bench train: --trace-steps: got %d, want at least 1", f.traceSteps)
	}
	started := time.Now()
	b := &benchmark{flags: f}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.closeAll())
		}
	}()
	const most = 1_000_000 // maximum number of steps, because the time of each step is kept in memory
	if f.steps > most || f.warmup > most {
		return nil, exit.Usagef("bench: got --steps %d and --warmup %d, want at most %d of each", f.steps, f.warmup,
			most)
	}
	if f.steps < 1 || f.warmup < 0 || f.batch < 1 || f.accumulate < 1 || f.batch%f.accumulate != 0 {
		return nil, exit.Usagef("bench: got --steps %d, --warmup %d, --batch-size %d and --grad-accumulation %d, want --steps and --batch-size of at least 1, --warmup of at least 0, and a --grad-accumulation that divides --batch-size",
			f.steps, f.warmup, f.batch, f.accumulate)
	}
	if b.device, err = f.deviceFlags.open(); err != nil {
		return nil, err
	}
	b.close = append(b.close, b.device.Close)
	cfg, err := f.settings()
	if err != nil {
		return nil, err
	}
	b.config = cfg
	a := assembly.New(cfg, session.Options{Log: slog.New(slog.DiscardHandler)})
	a.Rank.Device = b.device
	if a.Data, err = f.samples(ctx, cfg); err != nil {
		return nil, err
	}
	var samples data.Samples = data.Images{
		Dataset: a.Data.Train, Transform: data.Transform{Crop: data.PadCrop, Size: f.image}}
	if a.Data.Tokens != nil {
		samples = a.Data.Tokens.Train
	}
	if a.Rank.Precision, err = devices.Precision(f.precision, b.device.Info()); err != nil {
		return nil, err
	}
	if err := a.Rank.SettlePrecision(ctx, nil); err != nil {
		return nil, err
	}
	b.precision, b.memory = a.Rank.Precision, a.Rank.MemoryBytes()
	options, err := a.ReplicaOptions()
	if err != nil {
		return nil, err
	}
	options.Host = a.HostMemory()
	if b.replica, err = replica.New(b.device, options); err != nil {
		return nil, err
	}
	b.close = append(b.close, b.replica.Close)
	loader, err := data.NewLoader(data.Options{Samples: samples,
		Seed: 1, BatchSize: f.batch, Accumulation: f.accumulate, Workers: 1})
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	b.loader, b.close = loader, append(b.close, loader.Close)
	b.setup = time.Since(started)
	return b, nil
}

// settings returns the configuration of a run according to the flags.
func (f *modelFlags) settings() (*config.Config, error) {
	all := [][3]string{{"--model", "model.name", f.model}, {"--batch-size", "data.batch_size", strconv.Itoa(f.batch)},
		{"--precision", "train.precision", f.precision},
		{"--grad-accumulation", "train.grad_accumulation", strconv.Itoa(f.accumulate)}}
	of := [][3]string{{"--classes", "model.num_classes", strconv.Itoa(f.classes)},
		{"--image-size", "data.image_size", strconv.Itoa(f.image)}}
	others := []string{"seq-len", "vocabulary", "dropout"}
	optimizer, err := f.update()
	if err != nil {
		return nil, err
	}
	all = append(all, optimizer...)
	if f.text() {
		vocabulary, positions, err := f.published()
		if err != nil {
			return nil, err
		}
		f.length, f.vocabulary = cmp.Or(f.length, positions), cmp.Or(f.vocabulary, vocabulary)
		// The embedding tables have the sizes of the published model, even if the samples use only a part of them.
		all = append(all, [3]string{"--model", "model.positions", strconv.Itoa(max(f.length, positions))},
			[3]string{"--model", "model.vocabulary_size", strconv.Itoa(max(f.vocabulary, vocabulary))},
			[3]string{"--model", "data.dataset", "synthetic_text"},
			[3]string{"--batch-size", "data.num_samples", strconv.Itoa(2 * f.batch)})
		of = [][3]string{{"--seq-len", "data.sequence_length", strconv.Itoa(f.length)},
			{"--vocabulary", "data.vocabulary", strconv.Itoa(f.vocabulary)},
			{"--dropout", "model.dropout", strconv.FormatFloat(f.dropout, 'g', -1, 64)}}
		others = []string{"classes", "image-size"}
	}
	for _, flag := range others {
		if f.changed != nil && f.changed(flag) {
			return nil, exit.Usagef("--%s: model %s does not use this flag", flag, f.model)
		}
	}
	var settings []config.Override
	for _, s := range append(all, of...) {
		settings = append(settings, config.Override{Origin: s[0], Key: s[1], Value: s[2]})
	}
	return config.Load("", f.env.Catalog, settings...)
}

// published returns the number of rows of the token table and of the position table in the published model.
func (f *modelFlags) published() (vocabulary, positions int, err error) {
	cfg, err := config.Load("", f.env.Catalog, config.Override{Origin: "--model", Key: "model.name", Value: f.model},
		config.Override{Origin: "--model", Key: "data.dataset", Value: "synthetic_text"})
	if err != nil {
		return 0, 0, err
	}
	if t, ok := cfg.Model.Options.(parts.Transformer); ok {
		vocabulary, positions = t.Published()
		return vocabulary, positions, nil
	}
	return 0, 0, exit.Usagef("model %s has no published sizes: set --seq-len and --vocabulary", f.model)
}

// update returns the settings of the optimizer. They equal those of scripts/peers/pytorch_step.py, so that both
// programs do equal work. The learning rate does not affect the step times. AdamW has a lower learning rate than SGD,
// because with 0.01 the loss of a transformer becomes NaN.
func (f *modelFlags) update() ([][3]string, error) {
	name := f.optimizer
	if name == "auto" {
		name = map[bool]string{true: "adamw", false: "sgd"}[f.text()]
	}
	// These settings override the defaults of the model.
	set := [][3]string{{"--optimizer", "optimizer.name", name}, {"--optimizer", "train.clip_norm", "0"}}
	switch name {
	case "adamw":
		return append(set,
			[][3]string{{"--optimizer", "optimizer.lr", "0.0001"}, {"--optimizer", "optimizer.weight_decay", "0.1"},
				{"--optimizer", "optimizer.betas", "[0.9, 0.999]"}}...), nil
	case "sgd":
		return append(set, [][3]string{{"--optimizer", "optimizer.lr", "0.01"},
			{"--optimizer", "optimizer.weight_decay", "0.0001"}}...), nil
	}
	return nil, exit.Usagef("--optimizer: got %q, want auto, sgd or adamw", f.optimizer)
}

// text reports whether the samples of the model are tokens.
func (f *modelFlags) text() bool { return f.env.Catalog.SamplesOf(f.model) == config.Tokens }

// samples returns a small data set in memory.
func (f *modelFlags) samples(ctx context.Context, cfg *config.Config) (*parts.Opened, error) {
	if f.text() {
		return parts.OpenData(ctx, cfg, 0, slog.New(slog.DiscardHandler))
	}
	set, err := data.Synthetic(data.SyntheticOptions{Seed: 1, Train: 2 * f.batch, Eval: 1, Classes: min(f.classes, 100),
		Size: f.image})
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return &parts.Opened{Splits: set.Cached(0)}, nil
}

// shape describes the size of a sample, for example "224x224" or "1024 tokens".
func (f *modelFlags) shape() string {
	if f.text() {
		return fmt.Sprintf("%d tokens", f.length)
	}
	return fmt.Sprintf("%dx%d", f.image, f.image)
}

// describeSamples adds the size of a sample to the JSON output.
func (f *modelFlags) describeSamples(out map[string]any) {
	if f.text() {
		out["sequence_length"], out["vocabulary"], out["dropout"] = f.length, f.vocabulary, f.dropout
		return
	}
	out["image_size"], out["classes"] = f.image, f.classes
}

// run trains, and calls visit for every step after the warm-up. The argument took is the time from the start of the
// step to the start of the next step. The result first is the duration of the first step of the warm-up.
func (b *benchmark) run(ctx context.Context, visit func(step replica.StepResult, took time.Duration)) (
	first time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range b.flags.warmup + b.flags.steps {
		begun := time.Now()
		r, err := b.replica.Step(ctx, b.loader, replica.StepOptions{Rate: b.config.Optimizer.LR})
		if err != nil {
			return first, err
		}
		took := time.Since(begun)
		if i == 0 {
			first = took
		}
		if i >= b.flags.warmup {
			visit(r, took)
		}
		if b.progress != nil {
			b.progress(i + 1)
		}
	}
	return first, nil
}

// progressInterval is the minimum time between two progress lines.
const progressInterval = 2 * time.Second

// stepProgress returns a function that prints the number of completed steps, at most once per progressInterval.
func stepProgress(a *cli.App, warmup, steps int) func(done int) {
	a.Progress(fmt.Sprintf("%d warm-up steps, then %d timed steps", warmup, steps))
	said := time.Now()
	return func(done int) {
		if time.Since(said) < progressInterval {
			return
		}
		said = time.Now()
		if done <= warmup {
			a.Progress(fmt.Sprintf("warm-up step %d/%d", done, warmup))
			return
		}
		a.Progress(fmt.Sprintf("step %d/%d", done-warmup, steps))
	}
}
