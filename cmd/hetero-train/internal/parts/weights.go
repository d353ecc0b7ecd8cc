package parts

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Network describes a model independently of a device.
type Network struct {
	Tensors []checkpoint.Info // f32: parameters, then running statistics
	Head    string            // layer whose outputs are the classes
}

// DescribeNetwork builds the model's graph for one image.
func DescribeNetwork(m *config.Model, classes, imageSize int) (n Network, err error) {
	build, err := BuildClassifier(m)
	if err != nil {
		return n, err
	}
	var net *nn.Net
	g, err := graph.Build(func(g *graph.Graph) {
		net = &nn.Net{Graph: g, Compute: tensor.F32}
		g.Output("logits", build(net, g.Input("images", tensor.F32, 1, 3, imageSize, imageSize), classes))
	})
	if err != nil {
		return n, fmt.Errorf("model %s on images of %d pixels (data.image_size): %w", m.Name, imageSize, err)
	}
	n.add(g)
	n.Head = net.Head
	return n, nil
}

// DescribeLanguage builds the graph of a language model for one position. Sizes that its keys do not state are those of
// the published model.
func DescribeLanguage(m *config.Model) (n Network, err error) {
	vocabulary, positions := 1, 1
	if t, ok := m.Options.(Transformer); ok {
		vocabulary, positions = t.Published()
	}
	build, err := BuildLanguage(m, vocabulary, positions)
	if err != nil {
		return n, err
	}
	g, err := graph.Build(func(g *graph.Graph) {
		g.Output("rows", build(&nn.Net{Graph: g, Compute: tensor.F32}, models.Tokens{Tokens: g.Input("tokens", tensor.I32, 1, 1)}).Rows)
	})
	if err != nil {
		return n, fmt.Errorf("model %s: %w", m.Name, err)
	}
	n.add(g)
	return n, nil
}

// add lists the tensors of a graph.
func (n *Network) add(g *graph.Graph) {
	for _, list := range [][]*graph.Value{g.Params, g.States} {
		for _, v := range list {
			n.Tensors = append(n.Tensors, checkpoint.Tensor{Name: v.Name, DType: tensor.F32, Shape: v.Shape}.Info())
		}
	}
}

// weightsFile is an open safetensors file, alone or in a checkpoint.
type weightsFile struct {
	*checkpoint.File
	close io.Closer
}

// Close closes the file or the checkpoint.
func (w weightsFile) Close() error { return w.close.Close() }

// OpenWeights opens the weights at path: a safetensors file, a folder of transformers, or a checkpoint that
// OpenCheckpoint finds.
func OpenWeights(path string, warn func(error)) (weightsFile, error) {
	if file, ok, err := TransformersFile(path); err != nil {
		return weightsFile{}, err
	} else if ok {
		path = file
	}
	if IsWeightsFile(path) {
		f, err := checkpoint.OpenFile(path)
		return weightsFile{f, f}, err
	}
	c, err := OpenCheckpoint(path, warn)
	if err != nil {
		return weightsFile{}, err
	}
	return weightsFile{c.Model, c}, nil
}

// IsWeightsFile distinguishes a safetensors file from the folder of a checkpoint and from files that name a checkpoint.
func IsWeightsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && (info.Size() > 256 || filepath.Ext(path) == ".safetensors")
}

// OpenCheckpoint opens the checkpoint that path names (experiment.FindCheckpoint) and warns of newer ones that it
// skipped. A missing path, or a path without a checkpoint, is a usage error.
func OpenCheckpoint(path string, warn func(error)) (*checkpoint.Checkpoint, error) {
	c, skipped, err := experiment.FindCheckpoint(path)
	for _, s := range skipped {
		warn(errors.New(s.String()))
	}
	switch {
	case errors.Is(err, checkpoint.ErrNone): // the error already says that there is no checkpoint
		return nil, exit.Usagef("%s: %w", path, err)
	case errors.Is(err, os.ErrNotExist):
		return nil, exit.Usagef("%s: no checkpoint: %w", path, err)
	}
	return c, err
}

func IsFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
