package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/jpeg"
)

const (
	defaultMaxPixels = 64 << 20
	maxValFraction   = 0.9

	layoutAdvice = "want a folder, tar or tar.gz with CLASS/FILE.jpg, or train/CLASS/FILE.jpg and val/CLASS/FILE.jpg"
	cacheAdvice  = "set data.cache_dir to a folder that can be written and has room for the expanded archive, or unpack the archive and give data.path the folder"
)

// Options say where the images are and what is allowed.
type Options struct {
	Path string // a folder, a tar or a tar.gz
	// ValFraction is the share of each class that is held out where the data have no val/ or test/; 0 … 0.9. At least
	// one sample of each class stays for training, and one is held out of each class of two and more if it is above 0.
	ValFraction float64
	CacheDir    string // where a tar.gz is expanded

	DecodeOptions
	Limits archive.Limits // of an archive; MemberBytes bounds the files of a folder, too

	Logger   *slog.Logger                 // nil means slog.Default()
	Progress func(done, totalBytes int64) // of expanding; may be nil
}

var sayDecoder sync.Once

// SayDecoder logs, once a process, which library decodes.
func SayDecoder(log *slog.Logger) {
	sayDecoder.Do(func() {
		c := jpeg.InUse()
		if c.Native {
			log.Info("JPEG images are decoded by " + c.Name)
		} else {
			log.Warn("JPEG images are decoded by "+c.Name+", several times slower than libturbojpeg", "reason", c.Reason)
		}
	})
}

// Open finds the classes and samples. No image is read.
func Open(ctx context.Context, o Options) (data.Splits, error) {
	if o.Limits.MemberBytes == 0 {
		o.Limits.MemberBytes = MaxFileBytes
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if !(o.ValFraction >= 0 && o.ValFraction <= maxValFraction) {
		return data.Splits{}, fmt.Errorf("images: fraction held out is %g, want 0 to %g", o.ValFraction, maxValFraction)
	}
	if o.Limits.MemberBytes < 0 || o.Limits.MemberBytes > math.MaxInt32 {
		return data.Splits{}, fmt.Errorf("images: largest file is %d bytes, want 0 (64 MiB) to %d", o.Limits.MemberBytes, math.MaxInt32)
	}
	src, list, err := openSource(ctx, o)
	if ctx.Err() != nil {
		if src != nil {
			src.Close() // nothing was written
		}
		return data.Splits{}, ctx.Err()
	}
	fault := &data.Fault{Op: "open images", Path: o.Path, Index: -1}
	var cache *archive.CacheError
	switch {
	case err == nil:
		var splits data.Splits
		if splits, err = o.arrangeSamples(src, list); err == nil {
			return splits, nil
		}
		fault.Advice = layoutAdvice
	case errors.As(err, &cache):
		fault.Advice = cacheAdvice
	}
	if src != nil {
		src.Close() // nothing was written
	}
	fault.Err = err
	return data.Splits{}, fault
}

// openSource opens the folder or archive and lists what it holds.
func openSource(ctx context.Context, o Options) (source, listing, error) {
	info, err := os.Stat(o.Path)
	if err != nil {
		return nil, listing{}, err
	}
	if info.IsDir() {
		return openFolder(ctx, o.Path, o.Limits.MemberBytes)
	}
	path := o.Path
	f, err := os.Open(path)
	if err != nil {
		return nil, listing{}, err
	}
	compressed, err := archive.Compressed(f)
	f.Close() // was only read
	if err != nil {
		return nil, listing{}, err
	}
	if compressed {
		if path, err = archive.Plain(ctx, path, o.CacheDir, o.Limits, o.Progress); err != nil {
			return nil, listing{}, err
		}
	}
	return openTar(ctx, path, o.Limits)
}

// arrangeSamples sorts the listing into the two parts.
func (o Options) arrangeSamples(src source, list listing) (data.Splits, error) {
	a, err := arrange(list, o.ValFraction)
	if err != nil {
		return data.Splits{}, err
	}
	for _, note := range a.notes {
		o.Logger.Warn("images: "+note, "path", o.Path)
	}
	SayDecoder(o.Logger)
	splits := data.Splits{Normalization: data.NormalizeImageNet, Closer: src}
	splits.Train = newDataset(src, list, a.train, a.classes, o.DecodeOptions)
	if len(a.eval) > 0 {
		splits.Eval = newDataset(src, list, a.eval, a.classes, o.DecodeOptions)
	}
	return splits, nil
}
