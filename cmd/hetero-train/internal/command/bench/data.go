package bench

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	imagejpeg "image/jpeg"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/jpeg"
	"github.com/hetero-train/hetero-train/engine/platform"
)

const benchDataLong = `Measure how fast training images are read, decoded and augmented, without training.

Without --path, the command makes 64 JPEG files of 500x375 pixels and reads those. It never caches decoded images, although a
training run caches small ones. The value "images per core and second" is the number of images divided by the CPU time of this
process, so other programs do not affect it.`

// imageFlags are the flags that describe the images of bench data and their augmentation.
type imageFlags struct {
	catalog       config.Catalog
	dataset, path string
	size          int
	batch         int
	workers       int
	crop          string
	flip          bool
	augment       []string
	seconds       float64
	json          bool
}

// usualAugmentation contains the settings that --augment selects.
var usualAugmentation = map[string][][2]string{
	"randaugment": {{"randaugment_ops", "2"}},
	"jitter":      {{"brightness", "0.4"}, {"contrast", "0.4"}, {"saturation", "0.4"}, {"hue", "0.1"}},
	"erase":       {{"erase_prob", "0.25"}, {"erase_mode", "pixel"}},
	"mixup":       {{"mixup", "0.2"}},
	"cutmix":      {{"cutmix", "1.0"}},
}

func newBenchData(a *cli.App) *cobra.Command {
	f := &imageFlags{catalog: a.Env.Catalog}
	cmd := &cobra.Command{Use: "data", Short: "Measure reading, decoding and augmentation of images",
		Long: benchDataLong, Args: cli.NoArguments,
		Example: `  hetero-train bench data
  hetero-train bench data --path ~/flowers --workers 4 --augment randaugment,erase,mixup --json`}
	flags := cmd.Flags()
	flags.StringVar(&f.dataset, "dataset", "images", "`name` of the data set (data.dataset)")
	flags.StringVar(&f.path, "path", "", "`folder` or archive with the images (data.path)")
	flags.IntVar(&f.size, "image-size", 224, "height and width of the images, pixels")
	flags.IntVar(&f.batch, "batch-size", 64, "samples per batch")
	flags.IntVar(&f.workers, "workers", 0, "number of goroutines that decode; 0: one per CPU")
	flags.StringVar(&f.crop, "crop", "resized", "method of cropping: `resized|centre|padded`")
	flags.BoolVar(&f.flip, "flip", true, "mirror images with probability 1/2; no effect with a centre crop")
	flags.StringSliceVar(&f.augment, "augment", nil,
		"comma-separated `list` of augmentations: randaugment, jitter, erase, mixup, cutmix")
	flags.Float64Var(&f.seconds, "seconds", 3, "time to measure, seconds")
	flags.BoolVar(&f.json, "json", false, "print one JSON object on one line of standard output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := f.run(cmd.Context())
		if err != nil {
			return err
		}
		if f.json {
			return show.JSON(a.Env.Stdout, r.facts())
		}
		return r.print(a)
	}
	return cmd
}

// dataResult is the output of command bench data.
type dataResult struct {
	images, encodedBytes int64
	wall, cpu            time.Duration
	perImage             [4]float64 // time per image and stage in ns, in the order of stageNames
	workers, size        int
	decoder              string
}

var stageNames = [4]string{"read", "decode", "resample", "augment"}

func (f *imageFlags) run(ctx context.Context) (_ dataResult, err error) {
	if !(f.seconds > 0 && f.seconds <= 3600) {
		return dataResult{}, exit.Usagef("--seconds: got %g, want above 0, at most 3600", f.seconds)
	}
	var closing closers
	defer func() { err = errors.Join(err, closing.close()) }()
	cfg, err := f.config(&closing)
	if err != nil {
		return dataResult{}, err
	}
	splits, err := parts.OpenSplits(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return dataResult{}, err
	}
	closing.add(splits.Close)
	stages := new(data.Stages)
	view, _ := parts.Transforms(cfg.Data)
	view.Augment = parts.Augmentation(cfg.Augment, parts.Normalization(cfg.Data, splits.Normalization))
	if f.workers == 0 {
		f.workers = runtime.GOMAXPROCS(0)
	}
	loader, err := data.NewLoader(data.Options{Samples: data.Images{Dataset: splits.Train, Transform: view,
		Mix: parts.Mixing(cfg.Augment), Stages: stages}, Seed: 1,
		BatchSize: f.batch, Workers: f.workers, Depth: benchDepth})
	if err != nil {
		return dataResult{}, exit.With(exit.Usage, err)
	}
	closing.add(loader.Close)
	// Warm up: the buffers grow to their final size, and the files enter the page cache.
	if err := consume(ctx, loader, min(f.seconds, 1), 1); err != nil {
		return dataResult{}, err
	}
	return f.measure(ctx, loader, stages)
}

// config converts the flags to the configuration of a run.
func (f *imageFlags) config(closing *closers) (*config.Config, error) {
	path := f.path
	if path == "" && f.dataset == "images" {
		dir, err := os.MkdirTemp("", "hetero-train-bench-")
		if err != nil {
			return nil, err
		}
		closing.add(func() error { return os.RemoveAll(dir) })
		if err := makePhotos(dir); err != nil {
			return nil, err
		}
		path = dir
	}
	settings := []config.Override{{Origin: "--dataset", Key: "data.dataset", Value: f.dataset},
		{Origin: "--path", Key: "data.path", Value: path},
		{Origin: "--path", Key: "data.val_fraction", Value: "0"}, {Origin: "--image-size", Key: "data.image_size",
			Value: fmt.Sprint(f.size)}, {Origin: "--batch-size", Key: "data.batch_size", Value: fmt.Sprint(f.batch)}}
	crop, ok := map[string][2]string{"resized": {"true", "0"}, "centre": {"false", "0"},
		"padded": {"false", "4"}}[f.crop]
	if !ok {
		return nil, exit.Usagef("--crop: got %q, want resized, centre or padded", f.crop)
	}
	settings = append(settings, config.Override{Origin: "--crop", Key: "data.random_resized_crop", Value: crop[0]},
		config.Override{Origin: "--crop", Key: "data.crop_padding", Value: crop[1]},
		config.Override{Origin: "--flip", Key: "data.flip", Value: fmt.Sprint(f.flip && f.crop != "centre")})
	for _, name := range f.augment {
		keys, ok := usualAugmentation[strings.TrimSpace(name)]
		if !ok {
			return nil, exit.Usagef("--augment: got %q, want randaugment, jitter, erase, mixup or cutmix", name)
		}
		for _, k := range keys {
			settings = append(settings, config.Override{Origin: "--augment", Key: "augment." + k[0], Value: k[1]})
		}
	}
	return config.Load("", f.catalog, settings...)
}

func (f *imageFlags) measure(ctx context.Context, loader *data.Loader, stages *data.Stages) (dataResult, error) {
	r := dataResult{workers: f.workers, size: f.size, decoder: jpeg.InUse().Name}
	read := func() [6]int64 {
		return [6]int64{stages.Read.Load(), stages.Decode.Load(), stages.Resample.Load(), stages.Augment.Load(),
			stages.Images.Load(), stages.EncodedBytes.Load()}
	}
	before, cpu, started := read(), processCPU(), time.Now()
	if err := consume(ctx, loader, f.seconds, benchDepth+1); err != nil {
		return r, err
	}
	after := read()
	r.wall, r.cpu = time.Since(started), processCPU()-cpu
	r.images, r.encodedBytes = after[4]-before[4], after[5]-before[5]
	for i := range r.perImage {
		r.perImage[i] = float64(after[i]-before[i]) / float64(max(r.images, 1))
	}
	return r, nil
}

// benchDepth is the number of prefetched batches. The measurement takes at least benchDepth+1 batches, because the
// first benchDepth may have been decoded before it began.
const benchDepth = 8

// consume takes batches from the loader for at least the given time. It takes at least the given number of batches.
func consume(ctx context.Context, loader *data.Loader, seconds float64, least int) error {
	for started, n := time.Now(), 1; ; n++ {
		b, err := loader.Next(ctx)
		if err != nil {
			return err
		}
		b.Release()
		if n >= least && time.Since(started).Seconds() >= seconds {
			return nil
		}
	}
}

// processCPU returns the CPU time of this process.
func processCPU() time.Duration {
	spent, err := platform.ProcessTime()
	if err != nil {
		return 0
	}
	return spent
}

func (r dataResult) facts() map[string]any {
	out := map[string]any{"images_per_second": float64(r.images) / r.wall.Seconds(),
		"images_per_core_second":    float64(r.images) / r.cpu.Seconds(),
		"encoded_mbytes_per_second": float64(r.encodedBytes) / 1e6 / r.wall.Seconds(), "images": r.images,
		"workers": r.workers, "image_size": r.size,
		"decoder": r.decoder, "program": version.Text()}
	for i, name := range stageNames {
		out[name+"_ns"] = math.Round(r.perImage[i])
	}
	return out
}

func (r dataResult) print(a *cli.App) error {
	fmt.Fprintf(a.Env.Stdout, "%d images to %dx%d in %.1f s, %d workers, JPEG by %s\n", r.images, r.size, r.size,
		r.wall.Seconds(), r.workers, r.decoder)
	t := tabwriter.NewWriter(a.Env.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "images\t%.0f /s\t\n", float64(r.images)/r.wall.Seconds())
	fmt.Fprintf(t, "a core\t%.0f /s\t\n", float64(r.images)/r.cpu.Seconds())
	fmt.Fprintf(t, "encoded\t%.1f MB/s\t\n", float64(r.encodedBytes)/1e6/r.wall.Seconds())
	for i, name := range stageNames {
		fmt.Fprintf(t, "%s\t%.1f us per image\t\n", name, r.perImage[i]/1e3)
	}
	return t.Flush()
}

// closers is a list of functions that are called in reverse order at the end.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c *closers) close() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	return errors.Join(errs...)
}

// makePhotos writes 64 JPEG files of two classes, each 500x375 pixels and about 60 KB. The images are smooth shapes
// with a fine texture.
func makePhotos(dir string) error {
	for i := range 64 {
		class := filepath.Join(dir, fmt.Sprintf("class_%d", i%2))
		if err := os.MkdirAll(class, 0o755); err != nil {
			return err
		}
		img := image.NewRGBA(image.Rect(0, 0, 500, 375))
		state := uint32(i + 1)
		for y := range 375 {
			for x := range 500 {
				state = state*1664525 + 1013904223
				noise := float64(state>>24)/8 - 16
				wave := func(c float64) uint8 {
					v := 128 + 60*math.Sin(float64(x)/(20+c)+float64(i)) + 50*math.Cos(float64(y)/(13+2*c)+c) + noise
					return uint8(min(max(v, 0), 255))
				}
				img.SetRGBA(x, y, color.RGBA{wave(1), wave(4), wave(9), 255})
			}
		}
		if err := writePhoto(filepath.Join(class, fmt.Sprintf("%02d.jpg", i)), img); err != nil {
			return err
		}
	}
	return nil
}

func writePhoto(name string, img image.Image) (err error) {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return imagejpeg.Encode(out, img, &imagejpeg.Options{Quality: 90})
}
