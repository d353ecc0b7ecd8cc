package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// network is what a model consists of, known without a device.
type network struct {
	tensors []checkpoint.Info // f32: parameters, then running statistics
	head    string            // the layer whose outputs are the classes
}

// describeNetwork builds the model's graph for one image.
func describeNetwork(m *config.Model, classes, imageSize int) (n network, err error) {
	build := buildModel(m)
	var net *nn.Net
	g, err := graph.Build(func(g *graph.Graph) {
		net = &nn.Net{Graph: g, Compute: tensor.F32}
		g.Output("logits", build(net, g.Input("images", tensor.F32, 1, 3, imageSize, imageSize), classes))
	})
	if err != nil {
		return n, fmt.Errorf("model %s on images of %d pixels (data.image_size): %w", m.Name, imageSize, err)
	}
	for _, list := range [][]*graph.Value{g.Params, g.States} {
		for _, v := range list {
			n.tensors = append(n.tensors, checkpoint.Tensor{Name: v.Name, DType: tensor.F32, Shape: v.Shape}.Info())
		}
	}
	n.head = net.Head
	return n, nil
}

// initFrom loads the weights to start from. The other ranks get rank 0's before the first step.
func (j *Run) initFrom() error {
	m := j.cfg.Model
	if m.InitFrom == "" || !j.team.leads() || j.folder.Checkpoint != nil {
		return nil
	}
	f, err := openWeights(m.InitFrom, func(err error) { j.opts.logOf(componentCheckpoint).Warn(err.Error()) })
	if err != nil {
		return fmt.Errorf("model.init_from: %w", err)
	}
	defer f.Close()
	model, _ := j.replica.Tensors()
	infos := make([]checkpoint.Info, len(model))
	for i, t := range model {
		infos[i] = t.Info()
	}
	own, err := describeNetwork(&m, 1, j.cfg.Data.ImageSize) // for its head alone: no class is looked at
	if err != nil {
		return err
	}
	fit, err := weights.Match(f.File, infos, weights.Options{Head: own.head, InitOf: m.InitHead})
	if err != nil {
		return fmt.Errorf("model.init_from: %w", err)
	}
	if err := j.replica.FillWeights(fit.ReadInto); err != nil {
		return fmt.Errorf("model.init_from: %w", err)
	}
	fresh, why := fit.Replaced()
	j.opts.logOf(componentCheckpoint).Info("weights to start from", "file", f.Path(), "tensors", len(infos)-len(fresh), "notes", strings.Join(fit.Notes(), "; "))
	if len(fresh) > 0 {
		j.opts.logOf(componentCheckpoint).Warn("the classifier starts with random weights (model.init_head)", "layer", own.head, "why", why)
	}
	return nil
}

// weightsFile is an open safetensors file, by itself or within a checkpoint.
type weightsFile struct {
	*checkpoint.File
	close io.Closer
}

// Close closes what was opened.
func (w weightsFile) Close() error { return w.close.Close() }

// openWeights opens the weights that path means: a safetensors file, or what openCheckpoint finds.
func openWeights(path string, warn func(error)) (weightsFile, error) {
	if isWeightsFile(path) {
		f, err := checkpoint.OpenFile(path)
		return weightsFile{f, f}, err
	}
	c, err := openCheckpoint(path, warn)
	if err != nil {
		return weightsFile{}, err
	}
	return weightsFile{c.Model, c}, nil
}

// isWeightsFile tells a safetensors file from the folder of a checkpoint and from the files that name one.
func isWeightsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && (info.Size() > 256 || filepath.Ext(path) == ".safetensors")
}

// openCheckpoint opens the checkpoint that path means (experiment.FindCheckpoint) and warns of newer ones that it had to skip. A path
// that does not exist, or holds no checkpoint, is a usage error.
func openCheckpoint(path string, warn func(error)) (*checkpoint.Checkpoint, error) {
	c, skipped, err := experiment.FindCheckpoint(path)
	for _, s := range skipped {
		warn(errors.New(s.String()))
	}
	switch {
	case errors.Is(err, checkpoint.ErrNone): // says that there is none
		return nil, usageError("%s: %w", path, err)
	case errors.Is(err, os.ErrNotExist):
		return nil, usageError("%s: no checkpoint: %w", path, err)
	}
	return c, err
}
