package parts

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Network describes a model independently of a device.
type Network struct {
	Tensors []checkpoint.Info // parameters, then running statistics, all f32
	Head    string            // name of the last layer, which has one output per class
}

// DescribeNetwork builds the graph of an image model for a batch of one image.
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

// DescribeText builds the graph of a text model for a sample of one token. The model is a classifier if classes is
// above 0; otherwise it predicts tokens. Sizes that the user has not set are those of the published model.
func DescribeText(m *config.Model, classes int) (n Network, err error) {
	learns, err := PublishedTask(m, classes)
	if err != nil {
		return n, err
	}
	var net *nn.Net
	g, err := graph.Build(func(g *graph.Graph) {
		net = &nn.Net{Graph: g, Compute: tensor.F32}
		g.Output("loss", learns.Graph(net, 1, false).Loss)
	})
	if err != nil {
		return n, fmt.Errorf("model %s: %w", m.Name, err)
	}
	n.add(g)
	n.Head = net.Head
	return n, nil
}

// PublishedTask returns the learning task of a text model for samples of one token. The weights do not depend on the
// length of the samples. Sizes that the user has not set are those of the published model.
func PublishedTask(m *config.Model, classes int) (task.Task, error) {
	vocabulary, positions := 1, 1
	if t, ok := m.Options.(Transformer); ok {
		vocabulary, positions = t.Published()
	}
	splits := &TokenSplits{Length: 1, Masked: Masks(m), Pairs: Pairs(m)}
	return splits.Task(m, TextTask{Vocabulary: vocabulary, Positions: positions, Classes: classes})
}

// add appends the parameters and running statistics of a graph to n.
func (n *Network) add(g *graph.Graph) {
	for _, list := range [][]*graph.Value{g.Params, g.States} {
		for _, v := range list {
			n.Tensors = append(n.Tensors, checkpoint.Tensor{Name: v.Name, DType: tensor.F32, Shape: v.Shape}.Info())
		}
	}
}

// weightsFile is an open safetensors file, either a separate file or a part of a checkpoint.
type weightsFile struct {
	*checkpoint.File
	About Trained // description of the training data, if it is known
	close io.Closer
}

// Close closes the file or the checkpoint.
func (w weightsFile) Close() error { return w.close.Close() }

// OpenWeights opens the weights at path. The path names a safetensors file, a folder of the library transformers, or a
// checkpoint in any form that OpenCheckpoint accepts.
func OpenWeights(path string, warn func(error)) (weightsFile, error) {
	if file, ok, err := TransformersFile(path); err != nil {
		return weightsFile{}, err
	} else if ok {
		path = file
	}
	if IsWeightsFile(path) {
		f, err := checkpoint.OpenFile(path)
		if err != nil {
			return weightsFile{}, err
		}
		about, err := Described(f)
		if err != nil {
			return weightsFile{}, errors.Join(err, f.Close())
		}
		return weightsFile{f, about, f}, nil
	}
	c, err := OpenCheckpoint(path, warn)
	if err != nil {
		return weightsFile{}, err
	}
	trained, _, err := TrainedOn(c.Path, &c.State)
	if err != nil {
		return weightsFile{}, errors.Join(err, c.Close())
	}
	return weightsFile{c.Model, trained, c}, nil
}

// IsWeightsFile reports whether path is a safetensors file or an index of such files. It returns false for a checkpoint
// folder, and for a small file that names a checkpoint.
func IsWeightsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && (info.Size() > 256 || filepath.Ext(path) == ".safetensors" ||
		strings.HasSuffix(path, checkpoint.IndexSuffix))
}

// OpenCheckpoint opens the checkpoint that experiment.FindCheckpoint finds for path. It calls warn for each newer
// checkpoint that it skipped, and if the run of the checkpoint diverged. A path that does not exist or contains no
// checkpoint is a usage error.
func OpenCheckpoint(path string, warn func(error)) (*checkpoint.Checkpoint, error) {
	c, skipped, err := experiment.FindCheckpoint(path)
	for _, s := range skipped {
		warn(errors.New(s.String()))
	}
	switch {
	case errors.Is(err, checkpoint.ErrNone): // the error already states that there is no checkpoint
		return nil, exit.Usagef("%s: %w", path, err)
	case errors.Is(err, os.ErrNotExist):
		return nil, exit.Usagef("%s: no checkpoint: %w", path, err)
	}
	if err == nil {
		if text := Diverged(c.Path); text != "" {
			warn(errors.New(text))
		}
	}
	return c, err
}

// Diverged returns a warning if the run of a checkpoint ended because its loss was not finite, otherwise "". The
// weights of such a run may be finite but useless.
func Diverged(checkpointPath string) string {
	r, err := experiment.ReadResult(filepath.Dir(filepath.Dir(checkpointPath)))
	if err != nil || r.Superseded || r.Exit != exit.Diverged {
		return ""
	}
	return fmt.Sprintf(
		"%s: its run diverged: the loss was not finite after step %d; run eval before you use these weights",
		checkpointPath, r.Steps)
}
