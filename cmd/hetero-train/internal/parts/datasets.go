package parts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

// evalSamples returns the number of synthetic evaluation samples for a number of training samples: a fifth. If train is
// 0, it returns 0, which selects the default.
func evalSamples(train int) int {
	if train == 0 {
		return 0
	}
	return max(train/5, 1)
}

// UsualNormalization returns the normalization for a checkpoint that contains none but was trained on the data set
// name.
func UsualNormalization(catalog config.Catalog, name string) data.Normalization {
	if set, ok := catalog.DataSetOptions(name).(normalized); ok {
		return set.normalization()
	}
	return data.NormalizeImageNet
}

// OpenSplits opens the data set that a configuration selects.
func OpenSplits(ctx context.Context, cfg *config.Config, log *slog.Logger) (data.Splits, error) {
	o, ok := cfg.Data.Options.(DataSetOptions)
	if !ok {
		return data.Splits{}, exit.Usagef("data set %s has %v: this command supports data sets of images only",
			cfg.Data.Dataset, cfg.Data.Samples)
	}
	if err := keepObjects(cfg, log); err != nil {
		return data.Splits{}, err
	}
	return o.Open(ctx, cfg, log)
}
