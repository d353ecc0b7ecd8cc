package inference

import (
	"context"
	"fmt"
	"io"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// evaluateText evaluates a model of text with all samples of a split.
func (m *savedModel) evaluateText(ctx context.Context, a *cli.App, f *savedFlags, split string) (r Evaluation,
	err error) {
	if m.noData {
		return r, exit.Usagef("eval: %s was imported, so it has no data settings: want -c FILE, or --set data.dataset=NAME and --set data.path=PATH",
			m.checkpoint.Path)
	}
	if f.byClass && m.classes == 0 {
		return r, exit.Usagef("--by-class: %s predicts tokens and has no classes: leave the flag out",
			m.checkpoint.Path)
	}
	parts.UseClasses(m.run.Process.Cfg, m.trained.Classes)
	if split, err = m.openEvaluated(ctx, a, split); err != nil {
		return r, err
	}
	t := m.run.Data.Tokens
	set := t.Eval
	if split == splitTrain {
		set = t.Train
	}
	if set == nil {
		return r, m.noSamples()
	}
	if err := m.checkText(t); err != nil {
		return r, err
	}
	n := m.samplesAtOnce(f) // with this batch size, the results are bit-equal to those in training
	if f.batch > 0 {
		n = min(n, set.Len())
	}
	if err := m.openText(ctx, n, t, m.classes == 0); err != nil {
		return r, err
	}
	var confusion *task.Confusion
	if m.classes > 0 {
		confusion = task.NewConfusion(m.classes)
	}
	among := m.watchOverlap(split)
	sums, took, err := m.score(ctx, data.Options{Samples: set, Seed: m.run.Process.Cfg.Experiment.Seed, BatchSize: n,
		Evaluate: true, Workers: m.run.Process.Cfg.Data.Workers}, confusion)
	if err != nil {
		return r, err
	}
	score := sums.Score()
	r = m.evaluation(sums, took, n, among)
	r.Targets, r.Length = sums.Count, t.Length
	m.describe(&r, split)
	if confusion != nil {
		m.describeClasses(&r, confusion, f.byClass)
	} else {
		perplexity := experiment.Number(task.Perplexity.Of(score))
		r.Perplexity = &perplexity
		if t.Pairs {
			r.NextSentence = &score.SampleTop1
		}
	}
	return r, nil
}

// checkText returns an error if the tokens or labels of a data set do not have the same meaning as in training.
func (m *savedModel) checkText(t *parts.TokenSplits) error {
	switch {
	case t.Classes == nil && m.classes > 0:
		return exit.Usagef("%s classifies texts, but data set %s has no classes: want data.dataset=%s",
			m.checkpoint.Path, m.run.Data.Name, parts.LabelledText)
	case t.Classes != nil && m.classes == 0:
		return exit.Usagef("%s predicts tokens and has no classifier, but data set %s has classes", m.checkpoint.Path,
			m.run.Data.Name)
	}
	warning, err := m.trained.CheckSplits(t, m.checkpoint.Path)
	if err != nil {
		return err
	}
	if warning != "" {
		m.run.Process.Opts.Log.Warn(warning)
	}
	numbers, err := m.classNumbers(t.Classes)
	if err == nil && numbers != nil { // UseClasses should have put the labels in the order of the model
		err = exit.Usagef("the classes of the data set have another order than those of %s: data set %s, model %s",
			m.checkpoint.Path, weights.DescribeClasses(t.Classes), weights.DescribeClasses(m.trained.Classes))
	}
	return err
}

// openText opens the device and loads the weights of a model of text, for batches of n samples. If scores is true, the
// model computes losses and no probabilities.
func (m *savedModel) openText(ctx context.Context, n int, t *parts.TokenSplits, scores bool) error {
	vocabulary, positions, err := m.tableSizes()
	if err != nil {
		return err
	}
	if t.Vocabulary > vocabulary || t.Length > positions {
		return exit.Usagef("the data set has a vocabulary of %d tokens and samples of %d positions, want at most the %[4]d tokens and %[5]d positions of the model in %[3]s",
			t.Vocabulary, t.Length, m.checkpoint.Path, vocabulary, positions)
	}
	if err := m.openDevice(ctx); err != nil {
		return err
	}
	learns, err := t.Task(&m.run.Process.Cfg.Model, parts.TextTask{Vocabulary: vocabulary, Positions: positions,
		Classes: m.classes})
	if err != nil {
		return err
	}
	return m.load(replica.Options{Task: learns, BatchSize: n, ScoresOnly: scores}, fmt.Sprintf("%d tokens", t.Length))
}

// writeText prints the results of an evaluation of text.
func (r Evaluation) writeText(w io.Writer) error {
	figures := fmt.Sprintf("accuracy %.2f %%", 100*r.Top1)
	if r.F1 != nil {
		figures += r.f1()
	} else {
		figures = fmt.Sprintf("perplexity %.2f | ", float64(*r.Perplexity)) + figures
	}
	if r.NextSentence != nil {
		figures += fmt.Sprintf(" | next sentence %.2f %%", 100**r.NextSentence)
	}
	_, err := fmt.Fprintf(w, "loss %.4f | %s | %d targets | %.2f s, %.0f tok/s\n", float64(r.Loss), figures, r.Targets,
		r.Seconds, r.PerSecond*float64(r.Length))
	return err
}
