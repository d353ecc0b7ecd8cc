package inference

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/task"
)

const evalLong = `Evaluate a trained model on the samples held out of training. Images: loss, top-1 and top-5 accuracy, and images per second. Text:
loss, perplexity and accuracy over the predicted tokens. Labelled texts: loss and accuracy. Images and labelled texts also have F1: that
of the second class if there are two classes, otherwise the mean over the classes. Images with several labels have the accuracy and the
micro F1 over all labels in place of these. --by-class prints figures of each class.

CHECKPOINT is the folder of one checkpoint. RUN is the folder of a run; the command then evaluates the newest valid checkpoint of
this run. Without an argument, -c FILE selects the run of that file.

The checkpoint contains the settings of the model and the data. Use --set and flags to change single settings. With data.path, the
command evaluates all samples at that path. If the names of folders or files there state parts (train, val, test), it evaluates the
evaluation part. If the data are those of the training run, it evaluates the samples that were held out. --split overrides this
choice. --split all is an error if the data have a training part and an evaluation part, because an evaluation covers one part.
If you give both an argument and -c FILE, the settings of FILE replace the settings in the checkpoint.

A note states how many of the evaluated samples have the content of training samples, as in a changed copy of the training data. The
checkpoint has hashes of some training images or labelled texts for this purpose.

If you use the device, precision and batch size of the training run, the results are bit-equal to those of its own evaluations. If
the training run evaluated averaged weights (ema.decay, ema.evaluate), add --ema to get the same results.`

const evalExample = `  hetero-train eval experiments/resnet50
  hetero-train eval experiments/resnet50 --best --json
  hetero-train eval experiments/resnet50 --by-class            with precision and recall of each class
  hetero-train eval experiments/resnet50 --ema                 with averaged weights
  hetero-train eval experiments/resnet50/checkpoints/step-00000780 --precision f32
  hetero-train eval -c configs/resnet50.toml --split train
  hetero-train eval experiments/resnet50 --set data.path=/data/other --batch-size 256
  hetero-train eval experiments/bert --best --set data.val_path=test.tsv`

// NewEval returns command eval, which evaluates a checkpoint.
func NewEval(a *cli.App) *cobra.Command {
	f := new(savedFlags)
	var split string
	cmd := &cobra.Command{Use: "eval [CHECKPOINT | RUN]", Short: "Evaluate a trained model", Long: evalLong,
		Example: evalExample, Args: cli.AtMostOne}
	f.add(cmd, a)
	cmd.Flags().StringVar(&split, "split", splitAuto, "samples to evaluate: `auto|val|train|all`; val: the held-out samples or the evaluation part; train: the training samples, without augmentation; all: all samples, or the evaluation part of a folder with parts; auto: all with --set data.path, otherwise val")
	cmd.Flags().BoolVar(&f.byClass, "by-class", false,
		"also print samples, predictions, precision, recall and F1 of each class")
	cli.MustComplete(
		cmd.RegisterFlagCompletionFunc("split", cobra.FixedCompletions(splits, cobra.ShellCompDirectiveNoFileComp)))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(splits, split) {
			return exit.Usagef("--split: got %q, want auto, val, train or all", split)
		}
		m, err := openSaved(a, cli.First(args), f)
		if err != nil {
			return exit.Classify(cmd.Context(), err)
		}
		defer m.run.Process.CloseAll()
		if m.checkpoint.Averaged() && m.run.Process.Cfg.EMA.Evaluate && !m.averaged {
			m.run.Process.Opts.Log.Warn("the training run evaluated averaged weights, but these results are for the trained weights; add --ema to evaluate the averages",
				"checkpoint", m.checkpoint.Path)
		}
		evaluate := m.evaluate
		if m.readsText() {
			evaluate = m.evaluateText
		}
		r, err := evaluate(cmd.Context(), a, f, split)
		if err != nil {
			return exit.Classify(cmd.Context(), err)
		}
		if f.json {
			err = show.JSON(a.Env.Stdout, r)
		} else {
			err = r.write(a.Env.Stdout)
		}
		return cmp.Or(err, r.fault())
	}
	return cmd
}

// evaluate evaluates the model with all samples of a split.
func (m *savedModel) evaluate(ctx context.Context, a *cli.App, f *savedFlags, split string) (r Evaluation, err error) {
	if m.noData {
		return r, exit.Usagef("eval: %s was imported, so it has no data settings: want -c FILE, or --set data.dataset=NAME and, for images, --set data.path=DIR",
			m.checkpoint.Path)
	}
	if split, err = m.openEvaluated(ctx, a, split); err != nil {
		return r, err
	}
	set := m.run.Data.Eval
	if split == splitTrain {
		set = m.run.Data.Train
	}
	if set == nil {
		return r, m.noSamples()
	}
	numbers, err := m.classNumbers(m.run.Data.Classes())
	if err != nil {
		return r, err
	}
	sets, err := m.labelSets(m.run.Data.Sets, numbers)
	if err != nil {
		return r, err
	}
	if numbers != nil && sets == nil {
		set = data.Relabelled(set, m.trained.Classes, numbers)
	}
	n := min(m.samplesAtOnce(f), set.Len())
	if f.batch == 0 {
		n = m.samplesAtOnce(f) // with the batch size of training, the results are bit-equal
	}
	if err := m.open(ctx, n, m.run.Data.Normalization); err != nil {
		return r, err
	}
	_, view := parts.Transforms(m.run.Process.Cfg.Data)
	among := m.watchOverlap(split)
	confusion := task.Report{Classes: m.classes, Independent: sets != nil}.NewConfusion()
	if sets != nil {
		m.ranking = task.NewRanking(m.classes)
	}
	sums, took, err := m.score(ctx, data.Options{Samples: data.Images{Dataset: set, Sets: sets, Transform: view},
		Seed: m.run.Process.Cfg.Experiment.Seed, BatchSize: n, Evaluate: true, Workers: m.run.Process.Cfg.Data.Workers},
		confusion)
	if err != nil {
		return r, err
	}
	r = m.evaluation(sums, took, n, among)
	m.describe(&r, split)
	m.describeClasses(&r, confusion, f.byClass)
	if r.MultiLabel = sets != nil; r.MultiLabel {
		r.Top5 = nil
	}
	return r, nil
}

func (r Evaluation) write(w io.Writer) error {
	fmt.Fprintf(w, "%s: step %d, epoch %d | %s, %.2f million parameters%s\n", r.Checkpoint, r.Step, r.Epoch, r.Model,
		float64(r.Parameters)/1e6, show.Classes(r.Classes))
	weights := ""
	if r.Averaged {
		weights = ", averaged weights"
	}
	fmt.Fprintf(w, "%s, %s: %s | batches of %d, %s on %s%s\n", r.Dataset, r.Split, r.samplesLine(), r.BatchSize,
		r.Precision, r.Device, weights)
	var err error
	if r.Length > 0 {
		err = r.writeText(w)
	} else if r.MultiLabel {
		ap := ""
		if r.AveragePrecision != nil {
			ap = fmt.Sprintf(" | mAP %.4f", *r.AveragePrecision)
		}
		_, err = fmt.Fprintf(w, "loss %.4f%s | micro F1 %.4f | macro F1 %.4f | label accuracy %.2f %% | %.2f s, %.0f img/s\n",
			float64(r.Loss), ap, *r.F1, *r.MacroF1, 100*r.Top1, r.Seconds, r.PerSecond)
	} else {
		_, err = fmt.Fprintf(w, "loss %.4f | top-1 %.2f %% | top-5 %.2f %%%s | %.2f s, %.0f img/s\n", float64(r.Loss),
			100*r.Top1, 100*(*r.Top5), r.f1(), r.Seconds, r.PerSecond)
	}
	r.writeClasses(w)
	if r.Note != "" {
		_, err = fmt.Fprintf(w, "NOTE %s\n", r.Note)
	}
	return err
}
