package checkpoints

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// folderFiles returns the contents of the files in the same folder as the weights, by name.
func (f *exportFlags) folderFiles(a *cli.App, cfg *config.Config, model *checkpoint.File, trained parts.Trained,
	metadata map[string]string) (map[string][]byte, error) {
	if t, ok := cfg.Model.Options.(parts.Transformer); ok {
		delete(metadata, weights.ClassesKey) // config.json contains the names of the classes
		return f.transformersFiles(a, t, cfg, model, trained)
	}
	outputs := 0
	if head, ok := model.Info("fc.weight"); ok && len(head.Shape) == 2 {
		outputs = head.Shape[0]
	}
	files, err := parts.TimmFiles(cfg, trained, outputs)
	if err == nil && (f.tokenizer != "" || f.vocab != "") {
		err = exit.Usagef("checkpoint export: --tokenizer, --vocab: model %s reads no text", cfg.Model.Name)
	}
	if err == nil && !trained.Known() {
		a.Warn(
			errors.New(
				"the folder gets no preprocessor_config.json, because the weights do not state how images are prepared"))
	}
	return files, err
}

// transformersFiles returns the contents of config.json and of the files of the tokenizer, by name.
func (f *exportFlags) transformersFiles(a *cli.App, t parts.Transformer, cfg *config.Config, model *checkpoint.File,
	trained parts.Trained) (map[string][]byte, error) {
	vocabulary, positions, err := parts.TableSizes(t, model)
	if err != nil {
		return nil, err
	}
	settings := t.Settings(vocabulary, positions)
	setClasses(settings, model, trained.Classes)
	files := map[string][]byte{}
	text, err := f.textOf(cfg, trained, vocabulary)
	switch {
	case err != nil && (f.tokenizer != "" || f.vocab != ""):
		return nil, fmt.Errorf("checkpoint export: %w", err)
	case err != nil:
		a.Warn(fmt.Errorf("the folder gets no tokenizer, so transformers cannot encode texts for the model: %w", err))
	default:
		e := tokenizer.Export{Positions: positions, Framed: settings.WordPiece()}
		if files, err = e.Files(text); err != nil {
			return nil, exit.With(exit.Usage, fmt.Errorf("checkpoint export: %w", err))
		}
		setTokens(settings, text)
	}
	files[weights.SettingsFile] = weights.EncodeSettings(settings)
	return files, nil
}

// textOf returns the tokenizer that the flags name. Without such flags, it returns the tokenizer of the training data.
func (f *exportFlags) textOf(cfg *config.Config, trained parts.Trained, vocabulary int) (tokenizer.Tokenizer, error) {
	if f.tokenizer != "" {
		if parts.Masks(&cfg.Model) && !strings.HasPrefix(f.tokenizer, "wordpiece") {
			return nil, exit.Usagef("--tokenizer: got %s, want wordpiece or wordpiece-cased for model %s", f.tokenizer,
				cfg.Model.Name)
		}
		if was := trained.Encoding(); was.Name != "" && was.Name != f.tokenizer {
			return nil, exit.Usagef("--tokenizer: got %s, but the weights were trained with %s, so equal tokens would mean different texts: leave --tokenizer out",
				f.tokenizer, was)
		}
		trained.Tokenizer = f.tokenizer
	}
	t, err := parts.TokenizerOf(cfg, f.vocab, trained)
	if err == nil && t.Vocabulary() > vocabulary {
		err = exit.Usagef("tokenizer %s has %d tokens, but the vocabulary of the model has only %d", t.Name(),
			t.Vocabulary(), vocabulary)
	}
	return t, err
}

// setClasses stores the class names of a text classifier in settings. The list names is nil if the names are unknown.
func setClasses(settings weights.Settings, f *checkpoint.File, names []string) {
	head, classifies := f.Info("classifier.weight")
	c, ok := settings.(weights.Classifier)
	if !ok || !classifies || len(head.Shape) != 2 {
		return
	}
	if len(names) > head.Shape[0] { // the names belong to other classes
		names = nil
	}
	for i := len(names); i < head.Shape[0]; i++ { // more outputs than known names (model.num_classes)
		names = append(names[:i:i], "LABEL_"+strconv.Itoa(i))
	}
	c.SetClasses(names)
}

// setTokens stores the special tokens in settings.
func setTokens(settings weights.Settings, t tokenizer.Tokenizer) {
	var pad *int
	if w, ok := t.(*tokenizer.WordPiece); ok {
		pad = new(int(w.Specials.Pad))
	}
	settings.SetTokens(int(t.EndOfText()), pad)
}

// toConv1D transposes those weights that the library transformers stores in transposed form.
func toConv1D(tensors []checkpoint.Tensor) {
	for i, t := range tensors {
		if weights.Conv1D(t.Name) && len(t.Shape) == 2 {
			data := make([]byte, len(t.Data))
			weights.Transpose(data, t.Data, t.Shape[0], t.Shape[1], t.DType.Size())
			tensors[i].Data, tensors[i].Shape = data, tensor.Shape{t.Shape[1], t.Shape[0]}
		}
	}
}

// writeFiles creates the folder and writes the files.
func (f *exportFlags) writeFiles(files map[string][]byte) error {
	if err := os.Mkdir(f.output, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return exit.With(exit.FolderCode(err), err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(f.output, name), files[name], 0o644); err != nil {
			return exit.With(exit.IO, err)
		}
	}
	return nil
}
