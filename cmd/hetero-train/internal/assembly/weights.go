package assembly

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// loadsWeights reports whether this rank loads initial weights from a file. Only rank 0 of a run that does not resume
// does so.
func (r *Run) loadsWeights() bool {
	return r.Process.Cfg.Model.InitFrom != "" && r.Rank.Team.Leads() && r.Folder.Checkpoint == nil
}

// CheckInit compares the configured text model with the config.json of model.init_from, if there is one. It needs the
// data but no replica, so that a run with wrong sizes ends before it builds a large model.
func (r *Run) CheckInit() error {
	m, tokens := r.Process.Cfg.Model, r.Data.Tokens
	if tokens == nil || !r.loadsWeights() {
		return nil
	}
	file, ok, err := parts.TransformersFile(m.InitFrom)
	if !ok || err != nil {
		return err // for a file without config.json, InitFrom compares the tensors
	}
	settings, err := parts.TransformersSettings(file)
	if err == nil {
		err = parts.CheckTransformers(file, settings, &m, tokens.Vocabulary, tokens.Length)
	}
	switch {
	case errors.Is(err, weights.ErrProblem):
		return fmt.Errorf("model.init_from: %w", err)
	case errors.As(err, new(*checkpoint.MismatchError)):
		return fmt.Errorf("model.init_from: %w\nset the keys to the values of the file, or select other weights", err)
	case err != nil:
		return fmt.Errorf("model.init_from: %w", err)
	}
	return nil
}

// InitFrom loads the initial weights on rank 0. Before the first step, rank 0 sends its weights to the other ranks.
func (r *Run) InitFrom() error {
	m := r.Process.Cfg.Model
	if !r.loadsWeights() {
		return nil
	}
	f, err := parts.OpenWeights(m.InitFrom, func(err error) {
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Warn(err.Error())
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w\nwant a .safetensors file, a checkpoint, or a folder of transformers, for example from hf download google-bert/bert-base-uncased --local-dir bert-base-uncased",
			err)
	}
	if err != nil {
		return fmt.Errorf("model.init_from: %w", err)
	}
	defer f.Close()
	model, _ := r.Replica.Tensors()
	infos := make([]checkpoint.Info, len(model))
	for i, t := range model {
		infos[i] = t.Info()
	}
	if r.Data.Tokens != nil {
		warning, err := f.About.CheckSplits(r.Data.Tokens, f.Path())
		if err != nil {
			return fmt.Errorf("model.init_from: %s: %w", f.Path(), err)
		}
		if warning != "" {
			r.Process.Opts.LogOf(logs.ComponentCheckpoint).Warn("model.init_from: " + warning)
		}
	}
	// Only own.Head is used, the name of the classifier, so the number of classes (1) has no effect.
	var own parts.Network
	if r.Data.Tokens == nil {
		own, err = parts.DescribeNetwork(&m, 1, r.Process.Cfg.Data.ImageSize)
	} else {
		own, err = parts.DescribeText(&m, len(r.Data.Classes()))
	}
	if err != nil {
		return err
	}
	drops, err := weights.ParseDrops(m.InitDrop)
	if err != nil {
		return fmt.Errorf("model.init_drop: %w", err)
	}
	fit, err := weights.Match(f.File, infos, weights.Options{Head: own.Head, InitOf: m.InitHead, Drops: drops,
		FileClasses: f.About.Classes, Classes: r.Data.Classes()})
	if weights.OnlyExtra(err) {
		return fmt.Errorf(
			"model.init_from: %w\nleave out tensors that the model does not need with model.init_drop = [\"REGEXP\"]",
			err)
	} else if errors.As(err, new(*weights.RenameError)) {
		return fmt.Errorf("model.init_drop: %w", err)
	} else if err != nil {
		return fmt.Errorf("model.init_from: %w", err)
	}
	if err := r.Replica.FillWeights(fit.ReadInto); err != nil {
		return fmt.Errorf("model.init_from: %w", err)
	}
	if now := parts.PreprocessingOf(r.Process.Cfg.Data, r.Data.Normalization); r.Data.Tokens == nil &&
		f.About.Differs(now) {
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Warn(
			"the weights of model.init_from were trained on images that were prepared in another way", "then",
			f.About.Preprocessing.String(), "now", now.String())
	}
	fresh, why := fit.Replaced()
	r.Process.Opts.LogOf(logs.ComponentCheckpoint).Info("initial weights", "file", f.Path(), "tensors",
		len(infos)-len(fresh), "notes", strings.Join(fit.Notes(), "; "))
	if fit.ByNumber() {
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Warn(byNumber(f.About.Classes)+": its outputs are used in the order of the data set's classes; model.init_head = \"new\" starts with another classifier",
			"file", f.Path(), "classes", weights.DescribeClasses(r.Data.Classes()))
	}
	r.warnOfMeaning(&f.About, f.Path(), own.Head, fresh)
	if len(fresh) > 0 {
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Warn("some layers start with random weights (model.init_head)",
			"tensors", strings.Join(fresh, ", "), "why", why)
	}
	return nil
}

// warnOfMeaning warns if the classifier was trained with one class per image and the data set has several labels per
// image, or the reverse. Its outputs then have another meaning. The parameter fresh names the tensors that the file did
// not provide.
func (r *Run) warnOfMeaning(about *parts.Trained, path, head string, fresh []string) {
	was, is := about.MultiLabel, r.Data.Sets != nil
	if r.Data.Tokens != nil || about.Name == "" || was == is {
		return
	}
	texts := map[bool]string{true: "several labels per image", false: "one class per image"}
	what := "its classifier is kept, and its first outputs may be far off; model.init_head = \"new\" starts with a random one"
	if slices.ContainsFunc(fresh, func(name string) bool { return strings.HasPrefix(name, head) }) {
		what = "its classifier is not used"
	}
	r.Process.Opts.LogOf(logs.ComponentCheckpoint).Warn("the weights of model.init_from were trained with "+texts[was]+
		", and the data set has "+texts[is]+": "+what, "file", path)
}

// byNumber returns the reason why the classes of a file and of the data set cannot be compared by name. The parameter
// names has the class names in the file.
func byNumber(names []string) string {
	if weights.Named(names) {
		return "the labels of the data set are numbers, so they cannot be compared with the names of the classes in the file"
	}
	return "the classifier of the file has no names of classes"
}
