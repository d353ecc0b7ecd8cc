package inference

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/images"
)

const predictLong = `Classify images with a trained model, and print the most probable classes with their probabilities.

For a model of images, FILE is an image file, a folder, or "-", which reads one image from standard input. For a folder, the command reads all images in it and in
its subfolders. It crops and normalises images as evaluation does. It reports unreadable images on standard error and skips them;
the exit code is then 3.

For a model of text, FILE has one text per line, and "-" reads standard input. Empty lines are skipped. If the model
classifies pairs of texts, separate the two texts with a tab. A BERT without a classifier prints the most likely tokens for each [MASK];
GPT-2 prints those for the next token. The command reports lines without a prediction on standard error; the exit code is then 3.

CHECKPOINT and RUN select the checkpoint as for eval. A checkpoint contains the class names of its data set. Imported
weights may have none. For these the command prints class numbers, or the names in the file that --class-names gives.`

const predictExample = `  hetero-train predict experiments/resnet50 cat.jpg dog.png
  hetero-train predict experiments/resnet50 photos/ --top 1
  hetero-train predict experiments/resnet50 --best --json photos/ | jq -r .top[0].class
  hetero-train predict experiments/resnet50/checkpoints/step-00000780 - < cat.jpg
  hetero-train predict experiments/bert_classify --best reviews.txt`

// NewPredict returns command predict, which classifies images.
func NewPredict(a *cli.App) *cobra.Command {
	f := new(predictFlags)
	cmd := &cobra.Command{Use: "predict (CHECKPOINT | RUN) FILE...",
		Short: "Classify images or texts with a trained model", Long: predictLong, Example: predictExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exit.Usagef("predict: got %d arguments, want a checkpoint or a run, then images, folders, text files, or - for standard input",
					len(args))
			}
			return nil
		}}
	f.add(cmd, a)
	cmd.Flags().IntVar(&f.top, "top", 5, "number of classes or tokens to print per image or text")
	cmd.Flags().StringVar(&f.vocab, "vocab", "",
		"`FILE` with the WordPiece vocabulary of a model of text; default: data.vocab_file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.top < 1 {
			return exit.Usagef("--top: got %d, want at least 1", f.top)
		}
		m, err := openSaved(a, args[0], &f.savedFlags)
		if err != nil {
			return exit.Classify(cmd.Context(), err)
		}
		defer m.run.Process.CloseAll()
		predict := m.predict
		if m.readsText() {
			predict = m.predictText
		} else if f.vocab != "" {
			return exit.Usagef("--vocab: model %s reads images", m.run.Process.Cfg.Model.Name)
		}
		return exit.Classify(cmd.Context(), predict(cmd.Context(), f, cmd.InOrStdin(), args[1:]))
	}
	return cmd
}

// Prediction is the output for one image.
type Prediction struct {
	File  string  `json:"file"`
	Top   []guess `json:"top,omitempty"`   // most probable classes, in descending order of probability
	Error string  `json:"error,omitempty"` // reason why the image is unreadable
}

// predict classifies all images and writes the results in the order of the images.
func (m *savedModel) predict(ctx context.Context, f *predictFlags, stdin io.Reader, args []string) error {
	inputs, err := imagesOf(ctx, stdin, args, m.run.Process.Cfg.Data.FollowLinks, m.run.Process.Opts.Log)
	if err != nil {
		return err
	}
	set := &lenient{Dataset: images.Unlabelled(inputs, parts.DecodeOptions(m.run.Process.Cfg.Data)),
		failed: map[int]error{}}
	n := min(m.samplesAtOnce(&f.savedFlags), set.Len())
	if err := m.open(ctx, n, parts.UsualNormalization(m.run.Process.Opts.Env.Catalog,
		cmp.Or(m.trained.Name, m.run.Process.Cfg.Data.Dataset))); err != nil {
		return err
	}
	_, view := parts.Transforms(m.run.Process.Cfg.Data)
	var sets *data.LabelSets
	if m.trained.MultiLabel {
		sets = &data.LabelSets{Names: m.classNames(), Sets: [][]int32{nil}} // the labels are unknown
	}
	samples := data.Images{Dataset: set, Sets: sets, Transform: view}
	loader, err := m.run.NewLoader(data.Options{Samples: samples, BatchSize: n,
		Evaluate: true, Workers: m.run.Process.Cfg.Data.Workers})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(m.run.Process.Opts.Env.Stdout)
	for {
		b, err := loader.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		err = m.show(out, f, b, inputs, set)
		b.Release()
		if err = errors.Join(err, out.Flush()); err != nil {
			return err
		}
	}
	if len(set.failed) > 0 {
		return exit.With(exit.Data, fmt.Errorf("%d of %d images could not be read", len(set.failed), len(inputs)))
	}
	return nil
}

// show classifies the images of a batch and writes one line for each image.
func (m *savedModel) show(w io.Writer, f *predictFlags, b *data.Batch, inputs []images.Input, set *lenient) error {
	labels := data.Values[int32](b, data.Labels)
	for i := range labels {
		labels[i] = -1 // -1: no label
	}
	if _, err := m.predictor.Run(b); err != nil {
		return err
	}
	probabilities := make([]float64, m.classes)
	for i := range b.N {
		p := Prediction{File: inputs[b.IDs[i]].Name}
		if err := set.fault(int(b.IDs[i])); err != nil {
			p.Error = err.Error()
		} else {
			if err := m.predictor.Probabilities(i, probabilities); err != nil {
				return fmt.Errorf("%s: %w", m.checkpoint.Path, err)
			}
			p.Top = m.named(best(probabilities, f.top))
		}
		if err := p.write(w, m.run.Process.Opts.Log, f.json); err != nil {
			return err
		}
	}
	return nil
}

func (p Prediction) write(w io.Writer, log *slog.Logger, asJSON bool) error {
	switch {
	case asJSON:
		return show.JSON(w, p)
	case p.Error != "":
		log.Warn(p.Error)
		return nil
	}
	_, err := fmt.Fprintf(w, "%s: %s\n", show.Foreign(p.File), rankedClasses(p.Top))
	return err
}

// imagesOf expands the arguments to a list of images. An argument is an image file, a folder, or "-" for standard
// input. If followLinks is true, links may leave their folder.
func imagesOf(ctx context.Context, stdin io.Reader, args []string, followLinks bool,
	log *slog.Logger) ([]images.Input, error) {
	var inputs []images.Input
	piped := false
	for _, arg := range args {
		info, err := os.Stat(arg)
		switch {
		case arg == "-" && piped:
			return nil, exit.Usagef("predict: got - twice, want it once: standard input contains one image")
		case arg == "-":
			piped = true
			contents, err := io.ReadAll(io.LimitReader(stdin, images.MaxFileBytes+1))
			if err != nil {
				return nil, exit.With(exit.Data, fmt.Errorf("read an image from standard input: %w", err))
			}
			if len(contents) > images.MaxFileBytes {
				return nil,
					exit.With(exit.Data,
						fmt.Errorf("standard input: got more than %d bytes, want an image of at most this size",
							images.MaxFileBytes))
			}
			inputs = append(inputs, images.Input{Name: "-", Contents: append([]byte{}, contents...)})
		case err != nil:
			return nil, exit.Usagef("predict: %w", err)
		case info.IsDir():
			names, note, err := images.List(ctx, arg, followLinks)
			if err != nil {
				return nil, exit.With(exit.Data, err)
			}
			if note != "" {
				log.Warn("predict: "+note, "folder", arg)
			}
			if len(names) == 0 {
				return nil, exit.Usagef("predict: folder %s has no image files (%s)", arg, images.EndingsText)
			}
			for _, name := range names {
				inputs = append(inputs, images.Input{Name: name})
			}
		case !info.Mode().IsRegular():
			return nil, notAFile(arg, info.Mode())
		default:
			inputs = append(inputs, images.Input{Name: arg})
		}
	}
	return inputs, nil
}

// lenient is a data set that replaces each unreadable image by a black image and records the error.
type lenient struct {
	data.Dataset
	mu     sync.Mutex
	failed map[int]error
}

// NewReader implements [data.Dataset].
func (l *lenient) NewReader() (data.Reader, error) {
	r, err := l.Dataset.NewReader()
	if err != nil {
		return nil, err
	}
	return &lenientReader{r, l}, nil
}

// fault returns the error with which the read of sample i failed, or nil.
func (l *lenient) fault(i int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed[i]
}

type lenientReader struct {
	data.Reader
	set *lenient
}

// Read implements [data.Reader].
func (r *lenientReader) Read(i int, sizer data.Sizer, img *data.Image) error {
	err := r.Reader.Read(i, sizer, img)
	if err == nil || data.Exhausted(err) {
		return err
	}
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	r.set.failed[i] = err
	*img = data.Image{Pix: make([]byte, 3), Width: 1, Height: 1, FullWidth: 1, FullHeight: 1}
	return nil
}
