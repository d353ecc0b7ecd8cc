package parts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/cifar"
	"github.com/hetero-train/hetero-train/engine/data/download"
	"github.com/hetero-train/hetero-train/engine/data/images"
	"github.com/hetero-train/hetero-train/engine/data/stored"
	"github.com/hetero-train/hetero-train/engine/data/webdataset"
	"github.com/hetero-train/hetero-train/engine/data/webp"
)

// Opened is an open data set, with the properties that explain the results of a run.
type Opened struct {
	data.Splits
	Tokens *TokenSplits // text data; nil for images: Splits contains them

	Name string // name of the data set that the run trains on: after a fallback, the fallback data set
	Note string // reason for the fallback; "" without a fallback

	Cache  data.Budget // memory for decoded images
	cached int64       // maximum memory of the caches, bytes; 0: no caches
	ahead  int64       // memory for encoded samples that are fetched or decompressed before their use, bytes

	options config.Options // keys of the data set Name; nil for text

	stored  data.Splits  // the data set without caches, and without replacement of unreadable samples
	Content data.Content // stored data, which the machines compare; nil if the settings alone determine the data
	Watch   data.Watch   // receives the hashes of the parts of Content that this process reads
}

// OpenData opens the configured data set. If a download fails and data.fallback is set, it opens the data set that
// data.fallback names. Damaged data and missing paths are errors and cause no fallback.
//
// The parameter limit is the maximum number of unreadable samples that this process replaces; 0 means no limit.
// Training has a separate limit, which counts the unreadable samples of completed steps over all ranks.
func OpenData(ctx context.Context, cfg *config.Config, limit int, log *slog.Logger) (*Opened, error) {
	if cfg.Data.Samples == config.Tokens {
		return openTokens(ctx, cfg, limit, log)
	}
	out, err := OpenStored(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	if err := out.checkLeftOut(cfg, log); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	if _, ok := out.options.(determined); !ok {
		out.stored = out.Splits
		out.Content = data.ContentOf(out.Splits.Train, out.Splits.Eval)
		out.Splits = out.Splits.Watched(&out.Watch)
	}
	out.accountFor(out.options, &cfg.Data)
	out.Cache.Set(data.DefaultCacheBytes)
	out.Splits = out.Splits.CachedWithin(0, &out.Cache)
	if cfg.Data.Corrupt == "skip" {
		out.Splits = out.Splits.Skip(limit, sayReplaced(log))
	}
	return out, nil
}

// Unread returns a data set without opening it, for commands that read no samples. The parameter splits describes the
// data set.
func Unread(cfg *config.Config, splits data.Splits) *Opened {
	o := &Opened{Name: cfg.Data.Dataset, Splits: splits}
	o.accountFor(cfg.Data.Options, &cfg.Data)
	o.cached = data.DefaultCacheBytes
	return o
}

// accountFor computes the memory that reading the data set with the given options needs (cached, ahead).
func (o *Opened) accountFor(options config.Options, d *config.Data) {
	o.cached = data.DefaultCacheBytes
	user, ok := options.(MemoryUser)
	if !ok {
		return
	}
	m := user.ReadMemory(d)
	o.ahead = m.Ahead
	if m.Side > 0 {
		needs := data.CachedBytes(o.Train.Len(), m.Side, m.Side)
		if o.Eval != nil {
			needs += data.CachedBytes(o.Eval.Len(), m.Side, m.Side)
		}
		o.cached = min(o.cached, needs)
	}
}

// CachedBytes returns the maximum memory of the caches of decoded images.
func (o *Opened) CachedBytes() int64 { return o.cached }

// AheadBytes returns the memory of encoded samples that are fetched or decompressed before their use.
func (o *Opened) AheadBytes() int64 { return o.ahead }

// DecodesImages reports whether the data may contain encoded images. Data sets without such images ignore
// data.max_pixels.
func (o *Opened) DecodesImages() bool {
	return o.Tokens == nil && o.options != nil && !config.Ignores(o.options, "max_pixels")
}

// OpenStored opens the configured subset of the data set, without caches. Each read accesses the stored file, and
// returns its error if the file is damaged.
func OpenStored(ctx context.Context, cfg *config.Config, log *slog.Logger) (*Opened, error) {
	if err := webp.CheckVariable(); err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	d := cfg.Data
	splits, err := OpenSplits(ctx, cfg, log)
	out := &Opened{Name: d.Dataset, options: d.Options}
	var fault *data.Fault
	unavailable := errors.Is(err, download.ErrUnavailable) && ctx.Err() == nil
	switch {
	case unavailable && d.Fallback == "" && errors.As(err, &fault):
		fault.Advice += ", or set data.fallback = \"synthetic_image\""
	case unavailable && d.Fallback != "":
		out.Name, out.options = d.Fallback, d.FallbackOptions
		out.Note = fmt.Sprintf("trained on %s instead of %s, which is not available: %v", d.Fallback, d.Dataset, err)
		splits, err = d.FallbackOptions.(DataSetOptions).Open(ctx, cfg, log)
	}
	if errors.As(err, &fault) {
		nameForm(&d, fault)
		adviseDamage(&d, fault)
		err = exit.With(exit.Data, err)
	}
	if errors.Is(err, fs.ErrNotExist) && out.Name == d.Dataset && d.Path != "" {
		err = fmt.Errorf("%w: correct %s", err, keyOfMissing(d, err))
	}
	if err != nil {
		return nil, fmt.Errorf("data set %s: %w", out.Name, err)
	}
	if err := checkSubset(d, splits); err != nil {
		return nil, errors.Join(err, splits.Close())
	}
	splits = splits.Subset(d.MaxClasses, d.SamplesPerClass)
	if d.NumSamples > 0 {
		splits = splits.Limited(d.NumSamples)
	}
	out.Splits = splits
	return out, nil
}

// keyOfMissing returns the key whose path contains the missing file in err: data.path or data.val_path.
func keyOfMissing(d config.Data, err error) string {
	var missing *fs.PathError
	if d.ValPath == "" || !errors.As(err, &missing) {
		return "data.path"
	}
	path, val := filepath.Clean(missing.Path), filepath.Clean(d.ValPath)
	if strings.HasPrefix(path, val) &&
		(len(val) > len(filepath.Clean(d.Path)) || !strings.HasPrefix(path, filepath.Clean(d.Path))) {
		return "data.val_path"
	}
	return "data.path"
}

// checkSubset returns an error if the configured subset of the classes does not exist. This is so if data.max_classes
// exceeds the number of classes, or if the images have several labels each.
func checkSubset(d config.Data, splits data.Splits) error {
	for key, limit := range map[string]int{"max_classes": d.MaxClasses, "samples_per_class": d.SamplesPerClass} {
		if limit > 0 && splits.Sets != nil {
			return exit.Usagef("data.%s: the images of data set %s have several labels each, so it has no samples of a single class: leave the key out, or use data.num_samples",
				key, d.Dataset)
		}
	}
	if have := len(splits.Train.Classes()); d.MaxClasses > have {
		return exit.Usagef("data.max_classes: got %d, want at most %d, the number of classes of data set %s",
			d.MaxClasses, have, d.Dataset)
	}
	return nil
}

// syntheticImages is a data set of images that are computed from the seed.
type syntheticImages struct{ NoKeys }

func (syntheticImages) format() string { return "" }
func (syntheticImages) determined()    {}

// ReadMemory implements [MemoryUser].
func (syntheticImages) ReadMemory(d *config.Data) ReadMemory { return ReadMemory{Side: d.ImageSize} }

// Ignores implements [config.Ignorer].
func (syntheticImages) Ignores() []string { return append([]string{"cache_dir"}, ofFiles...) }

// ofFiles are the keys of [data] that only data sets of encoded images use.
var ofFiles = []string{"max_pixels", "class_names", "shard_cache_mb", "object_cache_mb", "exif_orientation", "follow_links"}

// Open implements [DataSetOptions].
func (syntheticImages) Open(_ context.Context, cfg *config.Config, _ *slog.Logger) (data.Splits, error) {
	d := cfg.Data
	classes := d.NumClasses
	if known, ok := d.Options.(counted); ok && classes == 0 {
		// as a fallback, use the number of classes of the data set that this one replaces
		classes = known.classes()
	}
	splits, err := data.Synthetic(data.SyntheticOptions{Seed: cfg.Experiment.Seed, Train: d.NumSamples,
		Eval: evalSamples(d.NumSamples), Classes: classes, Size: d.ImageSize})
	return splits, exit.With(exit.Usage, err)
}

func (syntheticImages) normalization() data.Normalization { return data.NormalizeSynthetic }

// cifarImages is the data set CIFAR-10 or CIFAR-100.
type cifarImages struct {
	NoKeys
	variant cifar.Variant
	count   int // number of classes
	norm    data.Normalization
}

func (cifarImages) format() string { return "" }

// ReadMemory implements [MemoryUser].
func (cifarImages) ReadMemory(*config.Data) ReadMemory { return ReadMemory{Side: 32} }

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
	if missing && d.Download == "auto" && d.Fallback != "" {
		// Log before the download, because a download can take minutes to fail.
		log.Info(
			fmt.Sprintf("%s is not in the cache; the program downloads it now, and trains on %s if the download fails",
				name, d.Fallback), "url", s.variant.URL, "cache", cache)
	}
	if missing && d.Download == "never" {
		return data.Splits{},
			&data.Fault{
				Op: "open " + name, Index: -1,
				Err: fmt.Errorf("%w: the data are not in the cache, and data.download is \"never\"",
					download.ErrUnavailable),
				Advice: "set data.path to the official archive, or data.download = \"auto\""}
	}
	return cifar.Open(ctx, cifar.Options{Variant: s.variant, Path: d.Path, CacheDir: cache,
		Progress: ProgressLog(log, "downloading "+name)})
}

func (s cifarImages) normalization() data.Normalization { return s.norm }
func (s cifarImages) classes() int                      { return s.count }

// imageFiles is a data set of image files, in one folder per class or in an archive.
type imageFiles struct{ NoKeys }

func (imageFiles) format() string { return "image files and archives" }

// ReadMemory implements [MemoryUser].
func (imageFiles) ReadMemory(*config.Data) ReadMemory { return ReadMemory{Ahead: data.AheadBytes} }

// Ignores implements [config.Ignorer].
func (imageFiles) Ignores() []string { return []string{"shard_cache_mb"} }

// Open implements [DataSetOptions].
func (imageFiles) Open(ctx context.Context, cfg *config.Config, log *slog.Logger) (data.Splits, error) {
	d := cfg.Data
	cache, err := CacheDir(d.CacheDir)
	if err != nil {
		return data.Splits{}, err
	}
	return images.Open(ctx, images.Options{Path: d.Path, ValPath: d.ValPath, All: d.All, FollowLinks: d.FollowLinks,
		ClassNames: d.ClassNames, ValFraction: d.ValFraction, CacheDir: cache, SkipDamaged: d.Corrupt == "skip",
		DecodeOptions: DecodeOptions(d),
		Logger:        log, Progress: ProgressLog(log, "expanding "+d.Path)})
}

// shards is a data set of WebDataset shards.
type shards struct{ NoKeys }

func (shards) format() string { return "WebDataset shards" }

// ReadMemory implements [MemoryUser].
func (shards) ReadMemory(d *config.Data) ReadMemory {
	if strings.Contains(d.Path, ".zst") {
		return ReadMemory{Ahead: int64(d.ShardCacheMB) << 20}
	}
	return ReadMemory{}
}

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
	return webdataset.Open(ctx, webdataset.Options{Path: d.Path, ClassNames: names, NamesFound: found,
		ValPath: d.ValPath, All: d.All, FollowLinks: d.FollowLinks, ValFraction: d.ValFraction, CacheDir: cache,
		CacheBytes: int64(d.ShardCacheMB) << 20, SkipDamaged: d.Corrupt == "skip",
		Decode: DecodeOptions(d), Logger: log, Progress: ProgressLog(log, "indexing "+d.Path)})
}

// shardClassNames returns the class names of numeric labels. The names come from the file data.class_names, otherwise
// from a file next to the shards, whose path is found.
func shardClassNames(d config.Data) (names []string, found string, err error) {
	file := d.ClassNames
	if file == "" && stored.Remote(d.Path) {
		return nil, "", nil
	}
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

// DecodeOptions returns the pixel limit and the EXIF orientation setting of image decoding.
func DecodeOptions(d config.Data) images.DecodeOptions {
	return images.DecodeOptions{MaxPixels: d.MaxPixels, Orient: d.EXIFOrientation}
}

// evalSamples returns the number of synthetic evaluation samples for a number of training samples: a fifth. If train is
// 0, it returns 0, which selects the default.
func evalSamples(train int) int {
	if train == 0 {
		return 0
	}
	return max(train/5, 1)
}

// Exists reports whether path is an existing file or folder.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// CacheDir returns the folder for downloads and converted data.
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

// UserCache returns a subfolder of the program's folder in the user's cache folder. With an empty name, it returns the
// program's folder.
func UserCache(name string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "hetero-train", name), nil
}

// ProgressLog returns a function that logs the progress of a transfer, after each tenth of the bytes.
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

// Normalization returns the configured normalization if there is one, otherwise the normalization of the data set.
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

// UsualNormalization returns the normalization for a checkpoint that contains none but was trained on the data set
// name.
func UsualNormalization(catalog config.Catalog, name string) data.Normalization {
	if set, ok := catalog.DataSetOptions(name).(normalized); ok {
		return set.normalization()
	}
	return data.NormalizeImageNet
}
