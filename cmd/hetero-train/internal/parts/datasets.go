package parts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/cifar"
	"github.com/hetero-train/hetero-train/engine/data/download"
	"github.com/hetero-train/hetero-train/engine/data/images"
	"github.com/hetero-train/hetero-train/engine/data/webdataset"
)

// Opened is an open data set, with the properties that are needed to interpret results.
type Opened struct {
	data.Splits
	Tokens *TokenSplits // of text; nil for images, which are in Splits

	Name string // data set of the training; after a fallback, the replacement
	Note string // "" unless the run trains on a replacement

	Identity string // digest of the training data; "" if the data is a function of the settings
}

// OpenData opens the configured data set. If a download is not possible, it opens the data set of data.fallback, if one
// is configured. Damaged data or a missing path never causes a fallback. limit is the maximum number of unreadable
// samples that this process replaces, 0 for any number. Training counts unreadable samples over all ranks, for steps
// that are done.
func OpenData(ctx context.Context, cfg *config.Config, limit int, log *slog.Logger) (*Opened, error) {
	if cfg.Data.Samples == config.Tokens {
		return openTokens(ctx, cfg, log)
	}
	out, err := OpenStored(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	if out.Name != "synthetic_image" {
		if out.Identity, err = identify(ctx, out.Splits); err != nil {
			return nil, errors.Join(fmt.Errorf("data set %s: %w", out.Name, err), out.Splits.Close())
		}
	}
	out.Splits = out.Splits.Cached(0)
	if cfg.Data.Corrupt == "skip" {
		out.Splits = out.Splits.Skip(limit, func(f *data.Fault) { log.Warn("an unreadable sample was replaced", "error", f) })
	}
	return out, nil
}

// OpenStored opens the configured part of the data set without caches: each read accesses the stored file and returns
// its error.
func OpenStored(ctx context.Context, cfg *config.Config, log *slog.Logger) (*Opened, error) {
	d := cfg.Data
	splits, err := OpenSplits(ctx, cfg, log)
	out := &Opened{Name: d.Dataset}
	var fault *data.Fault
	unavailable := errors.Is(err, download.ErrUnavailable) && ctx.Err() == nil
	switch {
	case unavailable && d.Fallback == "" && errors.As(err, &fault):
		fault.Advice += ", or set data.fallback = \"synthetic_image\""
	case unavailable && d.Fallback != "":
		out.Name = d.Fallback
		out.Note = fmt.Sprintf("trained on %s instead of %s, which is not available: %v", d.Fallback, d.Dataset, err)
		splits, err = d.FallbackOptions.(DataSetOptions).Open(ctx, cfg, log)
	}
	if errors.As(err, &fault) {
		err = exit.With(exit.Data, err)
	}
	if errors.Is(err, fs.ErrNotExist) && out.Name == d.Dataset && d.Path != "" {
		err = fmt.Errorf("%w: correct data.path", err)
	}
	if err != nil {
		return nil, fmt.Errorf("data set %s: %w", out.Name, err)
	}
	if err := checkSubset(d, splits.Train); err != nil {
		return nil, errors.Join(err, splits.Close())
	}
	splits = splits.Subset(d.MaxClasses, d.SamplesPerClass)
	if d.NumSamples > 0 {
		splits = splits.Limited(d.NumSamples)
	}
	out.Splits = splits
	return out, nil
}

// checkSubset refuses more classes than the data set has.
func checkSubset(d config.Data, train data.Dataset) error {
	if have := len(train.Classes()); d.MaxClasses > have {
		return exit.Usagef("data.max_classes: the data set %s has %d classes (got %d)", d.Dataset, have, d.MaxClasses)
	}
	return nil
}

// syntheticImages is computed from the seed.
type syntheticImages struct{ NoKeys }

// Ignores implements [config.Ignorer].
func (syntheticImages) Ignores() []string { return append([]string{"cache_dir"}, ofFiles...) }

// ofFiles are the keys of [data] that only data sets of encoded images use.
var ofFiles = []string{"max_pixels", "class_names", "shard_cache_mb", "exif_orientation"}

// Open implements [DataSetOptions].
func (syntheticImages) Open(_ context.Context, cfg *config.Config, _ *slog.Logger) (data.Splits, error) {
	d := cfg.Data
	classes := d.NumClasses
	if known, ok := d.Options.(counted); ok && classes == 0 { // as many classes as the data set that is replaced
		classes = known.classes()
	}
	splits, err := data.Synthetic(data.SyntheticOptions{Seed: cfg.Experiment.Seed, Train: d.NumSamples, Eval: evalSamples(d.NumSamples), Classes: classes, Size: d.ImageSize})
	return splits, exit.With(exit.Usage, err)
}

func (syntheticImages) normalization() data.Normalization { return data.NormalizeSynthetic }

// cifarImages is CIFAR-10 or CIFAR-100.
type cifarImages struct {
	NoKeys
	variant cifar.Variant
	count   int // classes
	norm    data.Normalization
}

// Ignores implements [config.Ignorer].
func (cifarImages) Ignores() []string { return ofFiles }

// Open implements [DataSetOptions].
func (s cifarImages) Open(ctx context.Context, cfg *config.Config, log *slog.Logger) (data.Splits, error) {
	d, name := cfg.Data, s.variant.Name
	cache, err := CacheDir(d.CacheDir)
	if err != nil {
		return data.Splits{}, err
	}
	missing := d.Path == "" && !Exists(filepath.Join(cache, filepath.Base(s.variant.URL)))
	if missing && d.Download == "auto" && d.Fallback != "" { // now, because a download may take long to fail
		log.Info(fmt.Sprintf("%s is not in the cache; the program downloads it, and trains on %s if the download fails", name, d.Fallback), "url", s.variant.URL, "cache", cache)
	}
	if missing && d.Download == "never" {
		return data.Splits{}, &data.Fault{Op: "open " + name, Index: -1, Err: fmt.Errorf("%w: the data are not in the cache, and data.download is \"never\"", download.ErrUnavailable),
			Advice: "set data.path to the official archive, or data.download = \"auto\""}
	}
	return cifar.Open(ctx, cifar.Options{Variant: s.variant, Path: d.Path, CacheDir: cache, Progress: ProgressLog(log, "downloading "+name)})
}

func (s cifarImages) normalization() data.Normalization { return s.norm }
func (s cifarImages) classes() int                      { return s.count }

// imageFiles is a data set of image files in class folders, or in an archive.
type imageFiles struct{ NoKeys }

// Ignores implements [config.Ignorer].
func (imageFiles) Ignores() []string { return []string{"shard_cache_mb"} }

// Open implements [DataSetOptions].
func (imageFiles) Open(ctx context.Context, cfg *config.Config, log *slog.Logger) (data.Splits, error) {
	d := cfg.Data
	cache, err := CacheDir(d.CacheDir)
	if err != nil {
		return data.Splits{}, err
	}
	return images.Open(ctx, images.Options{Path: d.Path, ClassNames: d.ClassNames, ValFraction: d.ValFraction, CacheDir: cache, DecodeOptions: DecodeOptions(d),
		Logger: log, Progress: ProgressLog(log, "expanding "+d.Path)})
}

// shards is a data set of WebDataset shards.
type shards struct{ NoKeys }

// Open implements [DataSetOptions].
func (shards) Open(ctx context.Context, cfg *config.Config, log *slog.Logger) (data.Splits, error) {
	d := cfg.Data
	cache, err := CacheDir(d.CacheDir)
	if err != nil {
		return data.Splits{}, err
	}
	names, found, err := shardClassNames(d)
	if err != nil {
		return data.Splits{}, &data.Fault{Op: "read class names", Path: d.ClassNames, Index: -1, Err: err}
	}
	return webdataset.Open(ctx, webdataset.Options{Path: d.Path, ClassNames: names, NamesFound: found, ValPath: d.ValPath, ValFraction: d.ValFraction, CacheDir: cache, CacheBytes: int64(d.ShardCacheMB) << 20,
		Decode: DecodeOptions(d), Logger: log, Progress: ProgressLog(log, "indexing "+d.Path)})
}

// shardClassNames returns the names of numeric labels: from the configured list, or from a list next to the shards.
func shardClassNames(d config.Data) (names []string, found string, err error) {
	file := d.ClassNames
	if file == "" {
		found = images.FindClassNames(d.Path, filepath.Dir(d.Path))
		if file = found; file == "" {
			return nil, "", nil
		}
	}
	lines, err := images.ReadClassNames(file)
	for _, l := range lines {
		names = append(names, l.Line)
	}
	return names, found, err
}

// DecodeOptions returns the limits and the orientation for decoding images.
func DecodeOptions(d config.Data) images.DecodeOptions {
	return images.DecodeOptions{MaxPixels: d.MaxPixels, Orient: d.EXIFOrientation}
}

// evalSamples returns the number of synthetic evaluation samples: a fifth of the training samples; 0 is the default
// number.
func evalSamples(train int) int {
	if train == 0 {
		return 0
	}
	return max(train/5, 1)
}

// Exists reports whether there is a file or folder at path.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// CacheDir returns the folder of downloads and converted data.
func CacheDir(configured string) (string, error) {
	if configured != "" {
		return configured, nil
	}
	dir, err := UserCache("")
	if err != nil {
		return "", exit.Usagef("data.cache_dir: find the cache folder of the user: %v: set data.cache_dir", err)
	}
	return dir, nil
}

// UserCache returns this program's folder in the user's cache folder; with name, the subfolder of this name.
func UserCache(name string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "hetero-train", name), nil
}

// ProgressLog logs every tenth of a long transfer.
func ProgressLog(log *slog.Logger, what string) func(done, total int64) {
	last := int64(-1)
	return func(done, total int64) {
		if total <= 0 {
			return
		}
		if tenth := done * 10 / total; tenth != last {
			last = tenth
			log.Info(what, "percent", tenth*10, "megabytes", done>>20, "of", total>>20)
		}
	}
}

// Normalization returns the configured normalization, otherwise that of the data set.
func Normalization(d config.Data, own data.Normalization) data.Normalization {
	for i := range 3 {
		if len(d.Mean) == 3 {
			own.Mean[i] = float32(d.Mean[i])
		}
		if len(d.Std) == 3 {
			own.Std[i] = float32(d.Std[i])
		}
	}
	return own
}

// Transforms returns the augmentation for training and the transform for evaluation.
func Transforms(d config.Data) (train, eval data.Transform) {
	eval = data.Transform{Crop: data.CentreCrop, Size: d.ImageSize}
	train = eval
	switch {
	case d.RandomResizedCrop:
		train = data.Transform{Crop: data.ResizedCrop, Size: d.ImageSize, Flip: d.Flip}
		eval.Resize = d.ImageSize * 256 / 224 // as in torchvision
	case d.CropPadding > 0 || d.Flip:
		train = data.Transform{Crop: data.PadCrop, Size: d.ImageSize, Pad: d.CropPadding, Flip: d.Flip}
	}
	return train, eval
}

// UsualNormalization returns the normalization of a data set by name, for checkpoints that do not record it.
func UsualNormalization(catalog config.Catalog, name string) data.Normalization {
	if set, ok := catalog.DataSetOptions(name).(normalized); ok {
		return set.normalization()
	}
	return data.NormalizeImageNet
}
