package checkpoints

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// checkOutput returns an error for an unusable output path. It is called before any input is read.
func checkOutput(path string, force bool) error {
	if filepath.Ext(path) != ".safetensors" {
		return fmt.Errorf("got %q, want a name that ends in .safetensors", path)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	case err == nil && !force:
		return fmt.Errorf("%s exists: replace it with --force", path)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	if dir := filepath.Dir(path); !parts.IsFolder(dir) {
		return fmt.Errorf("there is no folder %s", dir)
	}
	return nil
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

// writeTensors writes a safetensors file. At any moment, path names either the previous file or the complete new file.
func writeTensors(ctx context.Context, path string, tensors []checkpoint.Tensor, metadata map[string]string) (
	err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return exit.With(exit.FolderCode(err), err)
	}
	defer func() {
		if err != nil {
			err = exit.With(exit.IO,
				errors.Join(fmt.Errorf("write %s: %w", path, err), ignoreMissing(os.Remove(f.Name()))))
		}
	}()
	err = checkpoint.Write(stoppable{ctx, f}, tensors, metadata)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// stoppable is a writer that fails after its context has ended.
type stoppable struct {
	ctx context.Context
	io.Writer
}

// Write implements io.Writer.
func (s stoppable) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.Writer.Write(p)
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
