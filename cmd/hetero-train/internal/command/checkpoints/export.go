package checkpoints

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/weights"
)

const exportLong = `Write the weights of a checkpoint as one .safetensors file, or as a folder of the Python library transformers.

For ResNets the tensors have torchvision's names, so PyTorch can load the file with load_state_dict(strict=True). The file includes
PyTorch's batch counters of batch normalization (num_batches_tracked).

With --format hf the command writes a folder for from_pretrained of transformers: model.safetensors, config.json and the files of the
tokenizer. GPT-2 and BERT have this format. The tokenizer is that of the training data. If it is unknown, or its vocabulary is
missing, the command warns and writes no tokenizer; --tokenizer and --vocab state it. ResNets have this format too, as timm reads it;
preprocessor_config.json states how images are prepared.

If a value is NaN, infinite or too large for the element type, the command reports an error and writes no file.`

const exportExample = `  hetero-train checkpoint export experiments/run --output resnet50.safetensors
  hetero-train checkpoint export experiments/run/checkpoints/best --output resnet50.safetensors --dtype bf16
  hetero-train checkpoint export experiments/run --output resnet50.safetensors --ema
  hetero-train checkpoint export experiments/gpt2 --format hf --output gpt2-folder`

// exportTypes are the element types that --dtype accepts.
var exportTypes = map[string]tensor.DType{"f32": tensor.F32, "bf16": tensor.BF16, "fp16": tensor.F16}

type exportFlags struct {
	output, dtype, format string
	ema, force            bool
	tokenizer, vocab      string
}

func newCheckpointExport(a *cli.App) *cobra.Command {
	f := new(exportFlags)
	cmd := &cobra.Command{Use: "export PATH", Short: "Write the weights of a checkpoint as a .safetensors file",
		Long: exportLong, Example: exportExample}
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", "", "`PATH` to write: a .safetensors file; with --format hf a folder")
	flags.StringVar(&f.format, "format", "torch", "format of PATH: `torch|hf`; hf: a folder for transformers")
	flags.StringVar(&f.dtype, "dtype", "f32", "element type of weights and running statistics: `f32|bf16|fp16`")
	flags.BoolVar(&f.ema, "ema", false,
		"export the averaged weights and statistics ([ema]) instead of those of the last step")
	flags.BoolVar(&f.force, "force", false, "replace the file if it exists")
	flags.StringVar(&f.tokenizer, "tokenizer", "", "tokenizer of the model, with --format hf: `"+
		strings.Join(tokenizer.Names, "|")+"`; default: tokenizer of the training data")
	flags.StringVar(&f.vocab, "vocab", "",
		"`FILE` with the WordPiece vocabulary, with --format hf; default: vocabulary of the training data")
	return a.OnePath(cmd, "a checkpoint or a run", func(path string) error { return f.run(cmd.Context(), a, path) })
}

func (f *exportFlags) run(ctx context.Context, a *cli.App, path string) error {
	to, ok := exportTypes[f.dtype]
	if !ok {
		return exit.Usagef("checkpoint export: --dtype: got %q, want f32, bf16 or fp16", f.dtype)
	}
	output, err := f.target()
	if err != nil {
		return err
	}
	if f.format != "hf" && (f.tokenizer != "" || f.vocab != "") {
		return exit.Usagef("checkpoint export: --tokenizer, --vocab: have an effect with --format hf only")
	}
	c, err := parts.OpenCheckpoint(path, a.Warn)
	if err != nil {
		return err
	}
	defer c.Close()
	read := c.Model.ReadInto
	if f.ema {
		if read = c.ReadAverage; !c.Averaged() {
			return exit.Usagef(
				"checkpoint export: --ema: %s has no averaged weights, because its run had ema.decay = 0", c.Path)
		}
	}
	tensors, err := exported(c.Model, read, to, c.State.Step)
	if err != nil {
		return err
	}
	metadata := map[string]string{"format": "pt", "program": c.State.Program,
		"step": strconv.FormatInt(c.State.Step, 10)}
	trained, _, err := parts.TrainedOn(c.Path, &c.State)
	if err != nil {
		return err
	}
	cfg, err := config.Parse(c.Path, []byte(c.State.Config), a.Env.Catalog)
	if err == nil {
		metadata["model"] = cfg.Model.Name
	}
	trained.AddTo(metadata)
	if f.format == "hf" {
		if err != nil {
			return exit.With(exit.Usage,
				fmt.Errorf("checkpoint export: --format hf: the settings of %s cannot be read: %w", c.Path, err))
		}
		files, err := f.folderFiles(a, cfg, c.Model, trained, metadata)
		if err != nil {
			return err
		}
		toConv1D(tensors)
		if err := f.writeFiles(files); err != nil {
			return err
		}
	}
	if err := writeTensors(ctx, output, tensors, metadata); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Env.Stdout, "%s: %d tensors in %s of %s, step %d\n", f.output, len(tensors), f.dtype, c.Path,
		c.State.Step)
	return err
}

// target checks that the file of weights can be written, and returns its path.
func (f *exportFlags) target() (string, error) {
	switch f.format {
	case "torch":
		if err := checkOutput(f.output, f.force); err != nil {
			return "", exit.Usagef("checkpoint export: --output: %w", err)
		}
		return f.output, nil
	case "hf":
		check := checkFolder
		if f.force && parts.IsFolder(f.output) {
			check = func(string) error { return nil }
		}
		if err := check(f.output); err != nil {
			return "", exit.Usagef("checkpoint export: --output: %w", err)
		}
		return filepath.Join(f.output, "model.safetensors"), nil
	}
	return "", exit.Usagef("checkpoint export: --format: got %q, want torch or hf", f.format)
}

// exported returns the tensors of a model's file with the element type of the parameter to. It adds the batch counters
// of PyTorch, which no computation uses. The function read reads the values of a tensor into dst.
func exported(f *checkpoint.File, read func(name string, dst []byte) error, to tensor.DType,
	steps int64) ([]checkpoint.Tensor, error) {
	var out []checkpoint.Tensor
	for _, t := range f.Tensors() {
		if !t.DType.IsFloat() {
			return nil, &checkpoint.CorruptError{
				Path: f.Path(), Reason: fmt.Sprintf("tensor %q: got %s, want real numbers", t.Name, t.Wire)}
		}
		src := make([]byte, t.Bytes())
		if err := read(t.Name, src); err != nil {
			return nil, err
		}
		dst := checkpoint.Tensor{Name: t.Name, DType: to, Shape: t.Shape,
			Data: make([]byte, t.Shape.Elements()*to.Size())}
		if err := weights.Convert(dst.Data, to, src, t.DType); err != nil {
			return nil, exit.With(exit.Data, fmt.Errorf("%s: tensor %q: %w", f.Path(), t.Name, err))
		}
		out = append(out, dst)
		if layer, ok := strings.CutSuffix(t.Name, ".running_mean"); ok {
			count := binary.LittleEndian.AppendUint64(nil, uint64(steps))
			out = append(out, checkpoint.Tensor{Name: layer + ".num_batches_tracked", DType: tensor.I64,
				Shape: tensor.Shape{}, Data: count})
		}
	}
	return out, nil
}

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
