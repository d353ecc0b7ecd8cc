package parts

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// DataKey is the key under which a checkpoint stores a [Trained].
const DataKey = "data"

// Trained describes the data that a run trained on. After a fallback, these data differ from the settings. Imported
// weights have no name of a data set.
type Trained struct {
	Name    string `json:"name"`
	Note    string `json:"note"`
	Samples int    `json:"samples"`

	// Properties of the data set that command predict needs. Checkpoints of earlier versions do not have these
	// properties.
	Classes []string   `json:"classes,omitempty"`
	Mean    [3]float32 `json:"mean,omitzero"` // mean of the pixel values, for normalization
	Std     [3]float32 `json:"std,omitzero"`

	Tokenizer string `json:"tokenizer,omitempty"` // name of the tokenizer, if the text files contain the name
}

// TrainedOn returns the description of the training data in the state of the checkpoint at path. known is false if the
// checkpoint has none.
func TrainedOn(path string, state *checkpoint.State) (t Trained, known bool, err error) {
	raw, known := state.Extra[DataKey]
	if !known {
		return t, false, nil
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return t, true, exit.With(exit.Data, fmt.Errorf("%s: description of the training data: %w", path, err))
	}
	return t, true, nil
}

// ClassesOf returns the names of the classes of the weights in file, by number. The names come from the metadata of the
// file, otherwise from the checkpoint that contains the file, otherwise from the config.json next to it.
func ClassesOf(file *checkpoint.File) ([]string, error) {
	if names := weights.ClassesOf(file); names != nil {
		return names, nil
	}
	folder := filepath.Dir(file.Path())
	if state, err := checkpoint.PeekState(folder); err == nil {
		t, _, err := TrainedOn(folder, &state)
		return t.Classes, err
	}
	if filepath.Base(file.Path()) != transformersWeights {
		return nil, nil
	}
	settings, err := TransformersSettings(file.Path())
	if bert, ok := settings.(*weights.BERTSettings); ok && bert.Classifies() {
		return bert.Classes(), err
	}
	return nil, nil // the config.json of another program
}
