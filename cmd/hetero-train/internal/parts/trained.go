package parts

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
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
	Words     string `json:"words,omitempty"`     // digest of the WordPiece vocabulary
}

// wordsOf returns a digest of a WordPiece vocabulary, for [Trained].
func wordsOf(w *tokenizer.WordPiece) string {
	sum := w.VocabularySum()
	return hex.EncodeToString(sum[:8])
}

// CheckWords returns an error if a WordPiece vocabulary is not that of the training. key is the flag or the key that
// selects the vocabulary.
func (t Trained) CheckWords(words *tokenizer.WordPiece, key string) error {
	return t.checkWords(wordsOf(words), key)
}

func (t Trained) checkWords(words, key string) error {
	if words == "" || t.Words == "" || words == t.Words {
		return nil
	}
	return exit.Usagef("%s: the vocabulary differs from that of the training (digest %s, want %s), so each token would mean another word: want the vocab.txt of the training", key, words, t.Words)
}

// CheckSplits is CheckWords for the vocabulary of a data set.
func (t Trained) CheckSplits(s *TokenSplits) error { return t.checkWords(s.Words, "data.vocab_file") }

// besideWeights describes the vocabulary and the classes of the weights in a folder of transformers.
func besideWeights(file string) (t Trained, err error) {
	if filepath.Base(file) != transformersWeights {
		return t, nil
	}
	settings, err := TransformersSettings(file)
	if bert, ok := settings.(*weights.BERTSettings); !ok {
		return t, nil // no config.json, or that of another program
	} else if bert.Classifies() {
		t.Classes = bert.Classes()
	}
	if vocabulary := filepath.Join(filepath.Dir(file), "vocab.txt"); err == nil && isFile(vocabulary) {
		words, err := tokenizer.OpenWordPiece(vocabulary, false) // the digest does not depend on the case
		if err != nil {
			return t, err
		}
		t.Words = wordsOf(words)
	}
	return t, err
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

// Described returns what is known about the training of the weights in file. The checkpoint or the folder of transformers
// that contains the file has priority over the metadata of the file, because users edit config.json and vocab.txt.
func Described(file *checkpoint.File) (t Trained, err error) {
	folder := filepath.Dir(file.Path())
	if state, peeked := checkpoint.PeekState(folder); peeked == nil {
		t, _, err = TrainedOn(folder, &state)
	} else {
		t, err = besideWeights(file.Path())
	}
	if !weights.Named(t.Classes) {
		t.Classes = weights.ClassesOf(file)
	}
	t.Words = cmp.Or(t.Words, file.Metadata()[wordsKey])
	return t, err
}

// wordsKey is the key of a safetensors file's metadata that contains the digest of the WordPiece vocabulary.
const wordsKey = "vocabulary"

// AddTo adds the names of the classes and the digest of the vocabulary to the metadata of a safetensors file.
func (t Trained) AddTo(metadata map[string]string) {
	if len(t.Classes) > 0 {
		metadata[weights.ClassesKey] = weights.EncodeClasses(t.Classes)
	}
	if t.Words != "" {
		metadata[wordsKey] = t.Words
	}
}
