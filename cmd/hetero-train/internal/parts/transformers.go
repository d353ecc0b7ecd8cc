package parts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// Transformer is implemented by the options of models that Hugging Face's library transformers also has.
type Transformer interface {
	LanguageOptions
	// Published returns the sizes of the tables of tokens and positions: those of the keys, or of the published model.
	Published() (vocabulary, positions int)
	// Tables returns the names of the tables of tokens and positions.
	Tables() (tokens, positions string)
	// Settings returns the contents of config.json for a model with tables of these sizes, unless keys state others.
	Settings(vocabulary, positions int) weights.Settings
	// Adopt sets the sizes that no key states to those of config.json.
	Adopt(weights.Settings)
}

// TransformersFile returns the file of weights of a folder of transformers: a folder with config.json that is no
// checkpoint.
func TransformersFile(path string) (file string, ok bool, err error) {
	if !IsFolder(path) || experiment.IsCheckpoint(path) || !isFile(filepath.Join(path, weights.SettingsFile)) {
		return "", false, nil
	}
	file = filepath.Join(path, "model.safetensors")
	switch {
	case isFile(file):
		return file, true, nil
	case isFile(file + ".index.json"):
		return "", false, exit.Usagef("%s has its weights in several files, want one model.safetensors: save it with max_shard_size=\"100GB\"", path)
	}
	return "", false, exit.Usagef("%s has %s, but no model.safetensors: save the model with safe_serialization=True", path, weights.SettingsFile)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// TableSizes returns the numbers of tokens and positions of a file of weights.
func TableSizes(t Transformer, f *checkpoint.File) (vocabulary, positions int, err error) {
	rows := func(name string) int {
		i, ok := f.Info(name)
		if (!ok || len(i.Shape) != 2 || i.Shape[0] == 0) && err == nil {
			err = &checkpoint.CorruptError{Path: f.Path(), Reason: fmt.Sprintf("it has no table %s of two dimensions", name)}
		}
		if err != nil {
			return 0
		}
		return i.Shape[0]
	}
	tokens, at := t.Tables()
	return rows(tokens), rows(at), err
}

// TransformersSettings reads the config.json next to a file of weights; nil if there is none.
func TransformersSettings(file string) (weights.Settings, error) {
	s, err := weights.ReadSettings(filepath.Join(filepath.Dir(file), weights.SettingsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return s, err
}

// CheckTransformers compares a config.json with a model whose tables have these sizes. Models that transformers lacks
// fit any.
func CheckTransformers(file string, s weights.Settings, m *config.Model, vocabulary, positions int) error {
	t, ok := m.Options.(Transformer)
	if s == nil || !ok {
		return nil
	}
	return weights.CompareSettings(filepath.Join(filepath.Dir(file), weights.SettingsFile), s, t.Settings(vocabulary, positions))
}
