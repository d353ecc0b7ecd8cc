package assembly

import (
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// InitFrom loads the initial weights. Before the first step, rank 0 sends its weights to the other ranks.
func (r *Run) InitFrom() error {
	m := r.Cfg.Model
	if m.InitFrom == "" || !r.Team.Leads() || r.Folder.Checkpoint != nil {
		return nil
	}
	f, err := parts.OpenWeights(m.InitFrom, func(err error) { r.Opts.LogOf(logs.ComponentCheckpoint).Warn(err.Error()) })
	if err != nil {
		return fmt.Errorf("model.init_from: %w", err)
	}
	defer f.Close()
	if t := r.Data.Tokens; t != nil && parts.IsFolder(m.InitFrom) { // config.json, if the folder has one, describes the weights in the format of Hugging Face Transformers
		settings, err := parts.TransformersSettings(f.Path())
		if err == nil {
			err = parts.CheckTransformers(f.Path(), settings, &m, t.Vocabulary, t.Length)
		}
		if err != nil {
			return fmt.Errorf("model.init_from: %w", err)
		}
	}
	model, _ := r.Replica.Tensors()
	infos := make([]checkpoint.Info, len(model))
	for i, t := range model {
		infos[i] = t.Info()
	}
	// Only the name of the classifier is used, so the number of classes has no effect.
	var own parts.Network
	if r.Data.Tokens == nil {
		own, err = parts.DescribeNetwork(&m, 1, r.Cfg.Data.ImageSize)
	} else {
		own, err = parts.DescribeText(&m, len(r.Data.Classes()))
	}
	if err != nil {
		return err
	}
	fit, err := weights.Match(f.File, infos, weights.Options{Head: own.Head, InitOf: m.InitHead})
	if err != nil {
		return fmt.Errorf("model.init_from: %w", err)
	}
	if err := r.Replica.FillWeights(fit.ReadInto); err != nil {
		return fmt.Errorf("model.init_from: %w", err)
	}
	fresh, why := fit.Replaced()
	r.Opts.LogOf(logs.ComponentCheckpoint).Info("initial weights", "file", f.Path(), "tensors", len(infos)-len(fresh), "notes", strings.Join(fit.Notes(), "; "))
	if len(fresh) > 0 {
		r.Opts.LogOf(logs.ComponentCheckpoint).Warn("the classifier starts with random weights (model.init_head)", "layer", own.Head, "why", why)
	}
	return nil
}
