package parts

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// Transformer is implemented by the options of models that the Python library transformers (Hugging Face) also has.
type Transformer interface {
	LanguageOptions
	// Published returns the number of rows of the token table and of the position table in the published model. A key
	// that the user has set has priority.
	Published() (vocabulary, positions int)
	// Tables returns the tensor names of the token table and of the position table.
	Tables() (tokens, positions string)
	// Settings returns the contents of config.json for a model whose tables have these numbers of rows. Keys that the
	// user has set have priority.
	Settings(vocabulary, positions int) weights.Settings
	// Adopt sets the keys for sizes to the sizes in config.json, except keys that the user has set.
	Adopt(weights.Settings)
}

// Names of files in which the library transformers stores weights. The index lists the files of a large model.
const (
	transformersWeights = "model.safetensors"
	transformersIndex   = "model" + checkpoint.IndexSuffix
)

// TransformersFile returns the path of the weights or of their index in a folder that the library transformers has
// saved. Such a folder contains config.json and is not a checkpoint of this program. For other paths, ok is false.
func TransformersFile(path string) (file string, ok bool, err error) {
	if !IsFolder(path) || experiment.IsCheckpoint(path) || !isFile(filepath.Join(path, weights.SettingsFile)) {
		return "", false, nil
	}
	for _, name := range []string{transformersWeights, transformersIndex} {
		if file = filepath.Join(path, name); isFile(file) {
			return file, true, nil
		}
	}
	return "", false, exit.Usagef("%s has %s, but no model.safetensors: save the model with safe_serialization=True",
		path, weights.SettingsFile)
}

// TableSizes returns the number of rows of the token table and of the position table in a file of weights.
func TableSizes(t Transformer, f *checkpoint.File) (vocabulary, positions int, err error) {
	rows := func(name string) int {
		i, ok := f.Info(name)
		if (!ok || len(i.Shape) != 2 || i.Shape[0] == 0) && err == nil {
			err = &checkpoint.CorruptError{
				Path: f.Path(), Reason: fmt.Sprintf("it has no two-dimensional tensor %s", name)}
		}
		if err != nil {
			return 0
		}
		return i.Shape[0]
	}
	tokens, at := t.Tables()
	return rows(tokens), rows(at), err
}

// TransformersSettings reads the config.json in the folder of a file of weights. It returns nil if the folder has no
// config.json, or if the config.json describes an image model.
func TransformersSettings(file string) (weights.Settings, error) {
	s, err := weights.ReadSettings(filepath.Join(filepath.Dir(file), weights.SettingsFile))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, weights.ErrTimm) {
		return nil, nil
	}
	return s, err
}

// keysOf maps settings in config.json to the corresponding keys of this program.
var keysOf = map[string]string{
	"model_type": "model.name",
	"n_layer":    "model.layers", "num_hidden_layers": "model.layers",
	"n_head": "model.heads", "num_attention_heads": "model.heads",
	"n_embd": "model.embedding_size", "hidden_size": "model.embedding_size",
	"n_positions": "model.positions", "max_position_embeddings": "model.positions",
	"vocab_size":        "model.vocabulary_size",
	"intermediate_size": "model.inner_size", "n_inner": "model.inner_size",
	"hidden_act": "model.activation", "activation_function": "model.activation",
	"layer_norm_eps": "model.norm_eps", "layer_norm_epsilon": "model.norm_eps",
	"type_vocab_size": "model.segments",
}

// CheckTransformers compares the settings s in config.json with the configured model, whose tables have these numbers
// of rows. It returns nil for a model that the library transformers does not have. If settings differ, the error is a
// *checkpoint.MismatchError with the corresponding keys.
func CheckTransformers(file string, s weights.Settings, m *config.Model, vocabulary, positions int) error {
	t, ok := m.Options.(Transformer)
	if s == nil || !ok {
		return nil
	}
	err := weights.CompareSettings(filepath.Join(filepath.Dir(file), weights.SettingsFile), s,
		t.Settings(vocabulary, positions))
	if different := new(checkpoint.MismatchError); errors.As(err, &different) {
		for i := range different.Differences {
			d := &different.Differences[i]
			if key, ok := keysOf[d.Name]; ok {
				d.Name = fmt.Sprintf("%s (%s)", key, d.Name)
			}
		}
		slices.SortFunc(different.Differences, func(a, b checkpoint.Difference) int {
			return cmp.Compare(a.Name, b.Name)
		})
	}
	return err
}
