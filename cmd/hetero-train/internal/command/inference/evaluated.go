package inference

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
)

// Values of --split.
const (
	splitAuto  = "auto" // "all" if the command line sets data.path and not data.val_path; otherwise "val"
	splitVal   = "val"
	splitTrain = "train"
	splitAll   = "all"
)

var splits = []string{splitAuto, splitVal, splitTrain, splitAll}

// openEvaluated opens the data set, and returns the split to evaluate. If the command line names only a folder of data,
// the split is its evaluation part. If the names in the folder do not distinguish parts, the split contains all
// samples. If the folder contains the data of the training run, the split contains only the samples that were held out.
func (m *savedModel) openEvaluated(ctx context.Context, a *cli.App, split string) (string, error) {
	typed := func(key string) bool {
		return slices.ContainsFunc(a.Overrides, func(o config.Override) bool { return o.Key == key })
	}
	whole, held := split == splitAll, false
	if split == splitAuto {
		split = splitVal
		if typed("data.path") && !typed("data.val_path") {
			moved, err := m.holdsTrained(ctx)
			if err != nil {
				return "", err
			}
			split = splitAll
			if moved {
				split = splitVal
				held = true
			}
		}
	}
	if split == splitAll {
		d := &m.run.Process.Cfg.Data
		d.All, d.ValPath = true, ""
		for key, limit := range map[string]*int{"data.num_samples": &d.NumSamples,
			"data.samples_per_class": &d.SamplesPerClass} {
			if !typed(key) && d.Path != "" {
				// The limits are those of the training run. Without a path, the number describes synthetic data.
				*limit = 0
			}
		}
	}
	cfg := m.run.Process.Cfg
	var err error
	if m.run.Data, err = parts.OpenData(ctx, cfg, cfg.Data.CorruptLimit, m.run.Process.Opts.Log); err != nil {
		return "", err
	}
	m.run.Process.Later(m.run.Data.Close)
	part, _ := m.run.Data.EvalFrom()
	same := m.run.Data.Splits.Same || m.run.Data.Tokens != nil && m.run.Data.Tokens.Same
	if whole && !same && m.run.Data.HasEval() {
		return "", exit.Usagef("--split all: %s has several parts, and an evaluation covers one of them: use --split val (%s) or --split train, or give the folder of a part with --set data.path=FOLDER",
			cmp.Or(m.run.Process.Cfg.Data.Path, "data set "+m.run.Data.Name),
			cmp.Or(part, "the samples for evaluation"))
	}
	if split == splitAll && part != "" && !same && m.run.Data.HasEval() {
		// The names of folders or files distinguish parts, so evaluate only the evaluation part.
		split = splitVal
	}
	if held {
		advice := "--split all evaluates all samples"
		if part != "" {
			advice = "--split train evaluates the training samples"
		}
		m.run.Process.Opts.Log.Warn(
			"the data are those of the training run, so the command evaluates the samples that were held out; "+advice,
			"path", m.run.Process.Cfg.Data.Path)
	}
	return split, nil
}

// holdsTrained reports whether the data set is the one with which the model was trained. It returns false for data that
// cannot be opened as training data.
func (m *savedModel) holdsTrained(ctx context.Context) (bool, error) {
	identity := assembly.IdentityOf(&m.checkpoint.State)
	if identity == "" {
		return false, nil
	}
	set, err := parts.OpenData(ctx, m.run.Process.Cfg, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		return false, ctx.Err()
	}
	defer set.Close() // no error: the data set was only read
	have, err := set.Print(ctx)
	return have.Digest == identity, err
}

// noSamples returns the error for a split without samples.
func (m *savedModel) noSamples() error {
	return exit.Usagef("the data set %s has no held-out samples: set data.val_path or data.val_fraction, or use --split all or --split train",
		m.run.Data.Name)
}

// describe sets those fields of an evaluation that say which samples of the data set were evaluated.
func (m *savedModel) describe(r *Evaluation, split string) {
	train, eval := m.run.Data.Counts()
	origin, _ := m.run.Data.EvalFrom()
	r.Split, r.Path, r.Of = split, m.run.Process.Cfg.Data.Path, m.run.Data.Total()
	if d := &m.run.Process.Cfg.Data; d.Path != "" && !m.readsText() {
		r.limited = limits(d, max(train, eval))
	}
	switch {
	case split == splitTrain:
		r.Part = "training samples"
	case origin != "":
		r.Part = origin
	case m.run.Process.Cfg.Data.Path != "":
		r.Part = fmt.Sprintf("held out of training (data.val_fraction = %v)", m.run.Process.Cfg.Data.ValFraction)
	}
	if m.run.Process.Cfg.Data.ValPath != "" && split != splitTrain {
		r.Path, r.Of, r.Part = m.run.Process.Cfg.Data.ValPath, eval, "all samples"
	}
}

// limits names the keys that limit the data set to a part of its files, or returns "" if no key does. The number
// largest is that of the samples in the larger part.
func limits(d *config.Data, largest int) string {
	var keys []string
	for key, limit := range map[string]int{"data.num_samples": d.NumSamples,
		"data.samples_per_class": d.SamplesPerClass, "data.max_classes": d.MaxClasses} {
		if limit > 0 && limit <= largest {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, ", ")
}

// samplesLine describes the evaluated samples, for example "6 of 14 images of photos, part validation, valid/".
func (r *Evaluation) samplesLine() string {
	unit := "images"
	if r.Length > 0 {
		unit = "samples"
	}
	line := fmt.Sprintf("%d of %d %s", r.Samples, cmp.Or(r.Of, r.Samples), unit)
	if r.limited != "" {
		line = fmt.Sprintf("%d %s", r.Samples, unit)
	}
	if r.Path != "" {
		line += " of " + r.Path
	}
	if r.Part != "" {
		line += ", " + r.Part
	}
	if r.limited != "" {
		line += fmt.Sprintf(" (%s limits the set to %d)", r.limited, r.Of)
	}
	return line
}
