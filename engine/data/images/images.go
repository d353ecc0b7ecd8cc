package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/jpeg"
	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/data/stored"
)

const (
	defaultMaxPixels = 64 << 20
	maxValFraction   = 0.9

	layoutAdvice = "want a folder, tar, tar.gz or tar.zst with CLASS/FILE.jpg, or train/CLASS/FILE.jpg and val/CLASS/FILE.jpg"
)

// Options describes where the images are, and sets limits.
type Options struct {
	Path string // a folder, a tar, a tar.gz, a tar.zst, or ImageNet's official archives: see the package comment
	// ValPath is a separate source, in one of the forms of Path. All of its images are for evaluation. "": use the
	// parts of Path.
	ValPath string
	// If All is true, Path is opened for evaluation only. Train and Eval then contain the same images: those of the
	// evaluation part, or all images if Path has no parts. Package layout defines the parts.
	All bool
	// FollowLinks follows links that leave a folder.
	FollowLinks bool
	// ClassNames is a file with one class name per line; each line starts with the folder of the class. If ClassNames
	// is "", Open uses such a file next to the data, if there is one.
	ClassNames string
	// ValFraction is the fraction of each class that is held out if no part is for evaluation; 0 … 0.9. Each class
	// keeps at least one training sample. If ValFraction exceeds 0, at least one sample of each class with two or more
	// samples is held out.
	ValFraction float64
	CacheDir    string // folder for the expanded tar of a tar.gz or tar.zst, and for lists of large folders; may be ""

	// If SkipDamaged is true, Open uses the images of a truncated archive that are complete. Otherwise a truncated
	// archive is an error.
	SkipDamaged bool

	DecodeOptions
	Limits archive.Limits // limits of an archive; MemberBytes also applies to the files of a folder

	Logger   *slog.Logger                 // nil means slog.Default()
	Progress func(done, totalBytes int64) // called while an archive is expanded; may be nil
}

var sayDecoder sync.Once

// SayDecoder logs, once per process, which JPEG library decodes images.
func SayDecoder(log *slog.Logger) {
	sayDecoder.Do(func() {
		c := jpeg.InUse()
		if c.Native {
			log.Info("JPEG images are decoded by " + c.Name)
		} else {
			log.Warn("JPEG images are decoded in Go, at about half the speed of libturbojpeg, with the same pixels", "reason",
				c.Reason)
		}
	})
}

// Open finds the classes and samples without reading an image. Data errors are *data.Fault.
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
		return data.Splits{}, fmt.Errorf("images: largest file is %d bytes, want 0 (64 MiB) to %d",
			o.Limits.MemberBytes, math.MaxInt32)
	}
	splits, err := o.open(ctx)
	if ctx.Err() != nil {
		if err == nil {
			splits.Close() // read only
		}
		return data.Splits{}, ctx.Err()
	}
	return splits, err
}

// open opens both sources and arranges their images.
func (o Options) open(ctx context.Context) (_ data.Splits, err error) {
	s, err := o.openOne(ctx, o.Path)
	if err != nil {
		return data.Splits{}, err
	}
	opened := sources{s.source}
	defer func() {
		if err != nil {
			opened.Close() // read only
		}
	}()
	eval := s
	var a arrangement
	switch {
	case o.All:
		a, err = arrangeAll(s.list)
	case o.ValPath == "":
		a, err = arrange(s.list, o.ValFraction)
	default:
		if eval, err = o.openOne(ctx, o.ValPath); err != nil {
			return data.Splits{}, err
		}
		opened = append(opened, eval.source)
		a, err = arrangeWith(s.list, eval.list)
		a.evalFrom = "all samples of " + o.ValPath
	}
	if err != nil {
		return data.Splits{}, arrangeFault(o.Path, err)
	}
	if err := o.readNames(&a); err != nil {
		return data.Splits{}, arrangeFault(o.Path, err)
	}
	for _, note := range a.notes {
		o.Logger.Warn("images: "+note, "path", o.Path)
	}
	SayDecoder(o.Logger)
	splits := data.Splits{Normalization: data.NormalizeImageNet, Closer: opened, OwnEval: a.evalFrom != "",
		EvalFrom: a.evalFrom, Same: a.same, Unused: a.unused}
	for k, l := range []listing{s.list, eval.list} {
		path := []string{o.Path, o.ValPath}[k]
		if path != "" && l.cut != nil {
			splits.LeftOut = append(splits.LeftOut, data.LeftOut{Path: path, Rest: true, Reason: l.cut})
		}
	}
	splits.Train = newDataset(s.source, s.list, a.train, a.classes, o.DecodeOptions)
	if len(a.eval) > 0 {
		splits.Eval = newDataset(eval.source, eval.list, a.eval, a.classes, o.DecodeOptions)
	}
	return splits, nil
}

func arrangeFault(path string, err error) error {
	return &data.Fault{Op: "open images", Path: path, Index: -1, Err: err, Advice: layoutAdvice}
}

// listed is an open source with the list of its files.
type listed struct {
	source
	list listing
}

// openOne opens the source at a path.
func (o Options) openOne(ctx context.Context, path string) (listed, error) {
	o.Path = path
	src, list, err := openSource(ctx, o)
	if err == nil && list.unmarked {
		o.Logger.Warn("images: the archive has no end mark, so it may have been cut between two files; count its images, or pack it again",
			"archive", path, "images", list.len())
	}
	var cut *archive.CutError
	if errors.As(err, &cut) && data.IsDamage(err) && o.SkipDamaged && list.len() > 0 {
		list.cut, err = fmt.Errorf("%w; the %d images before are used", cut, list.len()), nil
	}
	if err == nil {
		return listed{src, list}, nil
	}
	if src != nil {
		src.Close() // read only
	}
	fault := &data.Fault{Op: "open images", Path: path, Index: -1, Err: err, Damaged: cut != nil}
	if cache := (*archive.CacheError)(nil); errors.As(err, &cache) {
		fault.Advice = archive.CacheAdvice
	}
	return listed{}, fault
}

// sources are the open sources of a data set.
type sources []source

// Close implements [io.Closer].
func (s sources) Close() error {
	var errs []error
	for _, one := range s {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// openSource opens the folder or archive and lists its files.
func openSource(ctx context.Context, o Options) (source, listing, error) {
	info, err := stored.Stat(o.Path)
	if err != nil {
		return nil, listing{}, err
	}
	if info.IsDir() {
		return o.openDir(ctx)
	}
	path := o.Path
	if isTarOfTars(path) {
		return openOfficial(ctx, path, "", o.Limits)
	}
	f, _, err := stored.Open(path)
	if err != nil {
		return nil, listing{}, err
	}
	compressed, err := archive.Compressed(f)
	f.Close() // read only
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

// openDir opens a folder of images or one of ImageNet's archives.
func (o Options) openDir(ctx context.Context) (src source, list listing, err error) {
	dir := o.Path
	if stored.Remote(dir) { // the search for ImageNet's own files reads folders of this machine
		return o.openFolder(ctx, dir)
	}
	train, val, err := officialTars(dir)
	switch {
	case err != nil:
	case train != "":
		if err = errors.Join(layout.Check(train, o.FollowLinks),
			layout.Check(cmp.Or(val, train), o.FollowLinks)); err == nil {
			src, list, err = openOfficial(ctx, train, val, o.Limits)
		}
	default:
		if inner := filepath.Join(dir, kaggleImages); isDir(inner) {
			dir = inner
		}
		src, list, err = o.openFolder(ctx, dir)
	}
	if err != nil {
		return src, list, err
	}
	if labels := firstOf(valLabels, append([]string{o.Path, dir}, list.evaluationFolders(dir)...)...); labels != "" {
		if err = layout.Check(labels, o.FollowLinks); err == nil {
			list.heldClasses, err = readValLabels(labels)
		}
	}
	return src, list, err
}

// evaluationFolders returns the paths of the folders at the top of dir that name a part for evaluation.
func (l *listing) evaluationFolders(dir string) (paths []string) {
	for _, name := range l.folders {
		if part, err := layout.PartOf(name); err == nil && !strings.Contains(name, "/") &&
			(part == layout.Validation || part == layout.Test) {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// readNames sets the class names from a list. If Open itself found the list next to the data and the list is
// incomplete, it belongs to other data and is ignored.
func (o Options) readNames(a *arrangement) error {
	file := o.ClassNames
	if file == "" && stored.Remote(o.Path) {
		return nil
	}
	if file == "" {
		if file = FindClassNames(o.Path, filepath.Dir(o.Path)); file == "" {
			return nil
		}
		if err := layout.Check(file, o.FollowLinks); err != nil {
			return err
		}
	}
	names, err := ReadClassNames(file)
	if err != nil {
		return err
	}
	byFolder := map[string]string{}
	for _, n := range names {
		byFolder[n.Folder] = n.Line
	}
	named := slices.Clone(a.classes)
	for i, class := range a.classes {
		line, ok := byFolder[class]
		if !ok && o.ClassNames != "" {
			return fmt.Errorf("%s has no entry for class %.200q", file, class)
		}
		if !ok {
			a.notes = append(a.notes,
				fmt.Sprintf("%s has no entry for class %.200q, so the program does not use the file", file, class))
			return nil
		}
		named[i] = line
	}
	a.classes = named
	return nil
}
