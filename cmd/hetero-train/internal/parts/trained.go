package parts

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// DataKey is the key under which a checkpoint stores a [Trained].
const DataKey = "data"

// Trained describes the data on which a run was trained. After a fallback, these data differ from the settings. For
// imported weights, the name of the data set is "".
type Trained struct {
	Name    string `json:"name"`
	Note    string `json:"note"`
	Samples int    `json:"samples"`

	// Properties of the data set that command predict needs. Imported weights may lack them.
	Classes    []string `json:"classes,omitempty"`
	MultiLabel bool     `json:"multi_label,omitempty"` // a sample may belong to any number of the classes
	Preprocessing

	// Identity of the tokenizer; see [tokenizer.Identity].
	Tokenizer string `json:"tokenizer,omitempty"`
	Words     string `json:"words,omitempty"`

	Vocabulary int `json:"vocabulary_size,omitempty"` // number of token types in the data
	Length     int `json:"sequence_length,omitempty"` // number of tokens per sample
}

// Preprocessing describes how an evaluation converts an image to an input of the model. Std and ImageSize are 0 if they
// are unknown.
type Preprocessing struct {
	Mean [3]float32 `json:"mean,omitzero"` // mean of the pixel values, for normalization
	Std  [3]float32 `json:"std,omitzero"`

	ImageSize int `json:"image_size,omitempty"` // pixels
	Resize    int `json:"resize,omitempty"`     // shorter side before the centre crop, in pixels; 0: ImageSize
}

// Known reports whether p contains a normalization.
func (p Preprocessing) Known() bool { return p.Std != [3]float32{} }

// PreprocessingOf returns the preprocessing of an evaluation with the settings d. The parameter own is the
// normalization of the data set.
func PreprocessingOf(d config.Data, own data.Normalization) Preprocessing {
	norm := Normalization(d, own)
	_, eval := Transforms(d)
	return Preprocessing{Mean: norm.Mean, Std: norm.Std, ImageSize: eval.Size, Resize: eval.Resize}
}

// Apply changes the settings of the image size in d to those of the training run. It does not change keys for which
// given returns true, nor the normalization.
func (p Preprocessing) Apply(d *config.Data, given func(key string) bool) {
	if p.ImageSize == 0 {
		return
	}
	if !given("data.image_size") {
		d.ImageSize = p.ImageSize
	}
	if !given("data.random_resized_crop") {
		d.RandomResizedCrop = p.Resize > 0
	}
}

// Differs reports whether p and q are both known and not equal.
func (p Preprocessing) Differs(q Preprocessing) bool {
	return p.Known() && q.Known() && p != q
}

// String describes p, for example as "48 pixels, mean [0.1 0.1 0.1], std [0.5 0.5 0.5]".
func (p Preprocessing) String() string {
	text := fmt.Sprintf("mean %v, std %v", p.Mean, p.Std)
	switch {
	case p.Resize > 0:
		return fmt.Sprintf("shorter side scaled to %d pixels, centre of %d pixels, %s", p.Resize, p.ImageSize, text)
	case p.ImageSize > 0:
		return fmt.Sprintf("%d pixels, %s", p.ImageSize, text)
	}
	return text
}

// Encoding returns the identity of the tokenizer.
func (t Trained) Encoding() tokenizer.Identity {
	return tokenizer.Identity{Name: t.Tokenizer, Sum: t.Words}
}

// Encoding returns the identity of the tokenizer.
func (s *TokenSplits) Encoding() tokenizer.Identity {
	return tokenizer.Identity{Name: s.Tokenizer, Sum: s.Words}
}

// setEncoding sets the identity of the tokenizer.
func (t *Trained) setEncoding(i tokenizer.Identity) { t.Tokenizer, t.Words = i.Name, i.Sum }

// CheckWords returns an error if a WordPiece vocabulary differs from that of the training run. The parameter key is the
// flag or the key that selects the vocabulary.
func (t Trained) CheckWords(words *tokenizer.WordPiece, key string) error {
	return t.checkWords(wordsOf(words), key)
}

func (t Trained) checkWords(words, key string) error {
	if words == "" || t.Words == "" || words == t.Words {
		return nil
	}
	return exit.Usagef("%s: the vocabulary differs from that of the training (digest %s, want %s), so each token would mean another word: want the vocab.txt of the training",
		key, words, t.Words)
}

// CheckSplits returns an error if a data set and the training data were tokenized by different tokenizers. If nothing
// proves that the tokenizers are equal, it returns a warning instead. The argument path names the weights or the
// checkpoint.
func (t Trained) CheckSplits(s *TokenSplits, path string) (warning string, err error) {
	was, now := t.Encoding(), s.Encoding()
	if was.Name == now.Name || was.Name == "" { // two WordPiece vocabularies
		if err := t.checkWords(s.Words, "data.vocab_file"); err != nil {
			return "", err
		}
	}
	return compareEncodings(path, was, "data.path", now,
		"convert the text with the tokenizer of the training: hetero-train data tokenize --tokenizer NAME")
}

// CheckTokenizer returns an error if the tokenizer now differs from that of the training. The parameter key is the flag
// that selects it, and path names the weights or the checkpoint.
func (t Trained) CheckTokenizer(key string, now tokenizer.Tokenizer, path string) error {
	id := tokenizer.IdentityOf(now.Name(), now.VocabularySum())
	_, err := compareEncodings(path, t.Encoding(), key, id, "leave the flag out, or name the tokenizer of the training")
	return err
}

// besideWeights describes the tokenizer and the classes of weights that the library transformers has saved. It reads
// the other files in the folder of the weights.
func besideWeights(file string) (t Trained, err error) {
	if name := filepath.Base(file); name != transformersWeights && name != transformersIndex {
		return t, nil
	}
	settings, err := TransformersSettings(file)
	if settings == nil {
		return t, nil // no config.json, or a config.json of another program
	}
	if !settings.WordPiece() {
		encoding, err := tokenizer.InFolder(filepath.Dir(file))
		t.setEncoding(encoding)
		return t, err
	}
	if c, ok := settings.(weights.Classifier); ok && c.Classifies() {
		t.Classes = c.Classes()
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

// TrainedOn returns the description of the training data in the state of the checkpoint at path. The result known is
// false if the checkpoint contains no description.
func TrainedOn(path string, state *checkpoint.State) (t Trained, known bool, err error) {
	raw, known := state.Extra[DataKey]
	if !known {
		return t, false, nil
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return t, true, exit.With(exit.Data, fmt.Errorf("%s: description of the training data: %w", path, err))
	}
	t.Tokenizer = tokenizer.Named(t.Tokenizer)
	return t, true, nil
}

// Described describes the training data of the weights in file. It leaves out what is unknown. The checkpoint or the
// transformers folder around the file has priority over the file's metadata, because users edit config.json and
// vocab.txt.
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
	inFile := tokenizer.Identity{Name: tokenizer.Named(file.Metadata()[tokenizerKey]), Sum: file.Metadata()[wordsKey]}
	if own := t.Encoding(); !own.Known() || own.Name == "" && own.Sum == inFile.Sum { // the name states the case
		t.setEncoding(inFile)
	}
	t.MultiLabel = t.MultiLabel || file.Metadata()[multiLabelKey] == "true"
	if !t.Known() {
		t.Preprocessing = preprocessingIn(file)
	}
	return t, err
}

// preprocessingIn returns the preprocessing in the metadata of a file. It ignores invalid values, because other
// programs may use the key for another purpose.
func preprocessingIn(file *checkpoint.File) (p Preprocessing) {
	const mostPixels = 1 << 16
	text := file.Metadata()[preprocessingKey]
	if json.Unmarshal([]byte(text), &p) != nil || slices.Min(p.Std[:]) <= 0 || p.ImageSize < 1 ||
		p.ImageSize > mostPixels || p.Resize < 0 || p.Resize > 2*mostPixels {
		return Preprocessing{}
	}
	return p
}

// Keys of a safetensors file's metadata.
const (
	tokenizerKey     = "tokenizer"     // name in a tokenizer.Identity
	wordsKey         = "vocabulary"    // digest in a tokenizer.Identity
	preprocessingKey = "preprocessing" // JSON of a Preprocessing
	multiLabelKey    = "multi_label"   // "true": a sample may belong to any number of the classes
)

// AddTo adds properties of the training data to the metadata of a safetensors file. They are the class names and
// MultiLabel, the identity of the tokenizer, and the preprocessing.
func (t Trained) AddTo(metadata map[string]string) {
	if len(t.Classes) > 0 {
		metadata[weights.ClassesKey] = weights.EncodeClasses(t.Classes)
	}
	if t.Tokenizer != "" {
		metadata[tokenizerKey] = t.Tokenizer
	}
	if t.Words != "" {
		metadata[wordsKey] = t.Words
	}
	if t.MultiLabel {
		metadata[multiLabelKey] = "true"
	}
	if t.Known() {
		text, err := json.Marshal(t.Preprocessing)
		if err != nil {
			panic(err) // unreachable: the numbers are finite
		}
		metadata[preprocessingKey] = string(text)
	}
}
