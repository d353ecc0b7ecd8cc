package huggingface

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/images"
	"github.com/hetero-train/hetero-train/engine/data/openfiles"
	"github.com/hetero-train/hetero-train/engine/data/table"
)

// Options describes a data set of images.
type Options struct {
	Source
	// Image is the column of images; "": the only such column, or else "image". Label is the column of labels; "":
	// "label", or else the only ClassLabel.
	Image, Label string
	// Separator is the text between two labels if one text contains several labels of an image; "": each text is one
	// class. Lists of labels, in tables and in JSON lines, need no separator.
	Separator string
	// ValFraction is the fraction of the rows that is held out if no split is for evaluation; 0 … 0.9. The choice for a
	// row depends on the name of its file and its position in the file. If there are at least two rows, at least one is
	// held out.
	ValFraction float64
	CacheDir    string // folder for copies of the columns of Parquet files
	// SkipDamaged leaves out files that are truncated or damaged. Otherwise such a file is an error.
	SkipDamaged bool
	Decode      images.DecodeOptions

	Logger   *slog.Logger                 // nil means slog.Default()
	Progress func(done, totalBytes int64) // called while a column is copied; may be nil
}

// maxClasses is the largest number of classes of labels without a ClassLabel.
const maxClasses = 1 << 16

// Open finds the rows without decoding an image. Data errors are *data.Fault.
func Open(ctx context.Context, o Options) (data.Splits, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if !(o.ValFraction >= 0 && o.ValFraction <= 0.9) {
		return data.Splits{}, fmt.Errorf("huggingface: fraction held out is %g, want 0 to 0.9", o.ValFraction)
	}
	found, err := Find(ctx, o.Source)
	if err != nil {
		return data.Splits{}, err
	}
	b := &builder{o: o, features: found.Features, set: &source{follow: o.FollowLinks, decode: o.Decode}}
	train, err := b.part(ctx, o.Path, found.Train)
	if err != nil {
		return data.Splits{}, err
	}
	eval := &dataset{source: b.set}
	switch {
	case found.Same:
		eval = train
	case found.Eval != nil:
		base := o.Path
		if o.ValPath != "" && !o.All {
			base = o.ValPath
		}
		if eval, err = b.part(ctx, base, found.Eval); err != nil {
			return data.Splits{}, err
		}
	default:
		train, eval = train.split(o.ValFraction)
	}
	var classes []string
	if train.Len() == 0 {
		err = errors.New("no rows to train on")
	} else {
		classes, err = b.classes()
	}
	if err == nil && train.Len() > math.MaxInt32 {
		err = fmt.Errorf("%d rows, want at most %d", train.Len(), math.MaxInt32)
	}
	if err != nil {
		return data.Splits{}, &data.Fault{Op: "open data set", Path: o.Path, Index: -1, Err: b.withDamage(err)}
	}
	sets := b.several.finish(classes, b.set)
	b.set.Pool = openfiles.New(b.set.files)
	train.fetchAhead()
	eval.fetchAhead()
	images.SayDecoder(o.Logger)
	s := data.Splits{Train: train, Sets: sets, Normalization: data.NormalizeImageNet, Closer: b.set,
		OwnEval: found.Eval != nil, EvalFrom: found.EvalFrom, Same: found.Same, Unused: found.Unused, LeftOut: b.left,
		Files:       b.files,
		Fingerprint: b.set.fingerprint(train) + b.set.fingerprint(eval)}
	if eval.Len() > 0 {
		s.Eval = eval
	}
	return s, nil
}

// builder collects the rows of all files.
type builder struct {
	o        Options
	features map[string]table.Feature
	set      *source

	names   []string         // names of a ClassLabel; nil: labels are in texts
	numbers map[string]int32 // inverse of names
	texts   []string         // distinct labels, indexed by entry.label
	byText  map[string]int32 // inverse of texts
	first   string           // path of the first file, for messages
	several severalLabels
	left    []data.LeftOut
	files   int // number of files, including those in left
}

// withDamage puts the damage of all files that were left out before err, which the missing rows may have caused.
func (b *builder) withDamage(err error) error {
	if len(b.left) == 0 {
		return err
	}
	var damage strings.Builder
	for _, l := range b.left {
		fmt.Fprintf(&damage, "%s: %v; ", l.Path, l.Reason)
	}
	return fmt.Errorf("%d of %d files are damaged: %swithout them: %w", len(b.left), b.files, &damage, err)
}

// part adds the rows of the files of one part of the data set at base.
func (b *builder) part(ctx context.Context, base string, paths []string) (*dataset, error) {
	d := &dataset{source: b.set}
	b.files += len(paths)
	for _, path := range paths {
		add := b.file
		if isList(path) {
			add = b.list
		}
		rows := len(d.samples)
		err := add(ctx, base, path, d)
		if err == nil {
			continue
		}
		if b.o.SkipDamaged && isDamage(err) && ctx.Err() == nil {
			d.samples = d.samples[:rows]
			b.left = append(b.left, data.LeftOut{Path: path, Whole: true, Reason: err})
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		fault := data.FileFault("open data set", path, err)
		fault.Damaged = isDamage(err)
		if cache := (*archive.CacheError)(nil); errors.As(err, &cache) {
			fault.Err = errors.New(cache.Error()) // hides fs.ErrNotExist: the data is not missing
			fault.Advice = "set data.cache_dir to a writable folder with enough free space for the images of the Parquet files, or save the data set with save_to_disk, whose files are read in place"
		}
		return nil, fault
	}
	return d, nil
}

// damagedError is the error of opening or reading a file. The file may be damaged; see isDamage.
type damagedError struct{ error }

func (e *damagedError) Unwrap() error { return e.error }

// isDamage reports whether the contents of a file caused err. It returns false for permissions, failed requests, a lack
// of resources, and values that the settings do not allow.
func isDamage(err error) bool { return errors.As(err, new(*damagedError)) && data.IsDamage(err) }

// columns are the columns of one file.
type columns struct {
	bytes, path, label string // bytes or path is "" if there is no such column
	kind               table.Kind
	names              []string // names of a ClassLabel, or of a list of ClassLabels
	several            bool     // a row has several labels
}

// columnsOf selects the columns of a file.
func (b *builder) columnsOf(f *table.File) (c columns, err error) {
	features := f.Features
	if features == nil {
		features = b.features
	}
	pick := func(key, configured, usual string, is func(string) bool, what string) (string, error) {
		if configured != "" {
			if _, ok := f.Field(configured); !ok {
				return "", fmt.Errorf("%s: there is no column %q; the columns are %q", key, configured, f.Names())
			}
			return configured, nil
		}
		var all []string
		for _, name := range f.Names() {
			if is(name) {
				all = append(all, name)
			}
		}
		_, ok := f.Field(usual)
		switch {
		case len(all) == 1:
			return all[0], nil
		case ok:
			return usual, nil
		case len(all) > 1:
			return "", fmt.Errorf("%s: the columns %q have %s: set the key to one of them", key, all, what)
		}
		return "", fmt.Errorf("%s: no column has %s; the columns are %q: set the key to one of them", key, what,
			f.Names())
	}
	usual := "image"
	if paths, ok := f.Field(pathColumn); ok && paths.Kind == table.Text {
		usual = pathColumn // column of metadata.parquet
	}
	image, err := pick("data.image_column", b.o.Image, usual, func(name string) bool {
		return features[name].Type == "Image"
	}, "images")
	if err != nil {
		return c, err
	}
	if _, usual := f.Field("label"); usual && b.o.Label == "" {
		c.label = "label"
	} else if c.label, err = pick("data.label_column", b.o.Label, "label", func(name string) bool {
		return features[name].Type == "ClassLabel" || features[name].Names != nil
	}, "a ClassLabel"); err != nil {
		return c, err
	}
	field, _ := f.Field(image)
	switch field.Kind {
	case table.Binary:
		c.bytes = image
	case table.Text:
		c.path = image
	case table.Struct:
		for _, child := range field.Children {
			switch {
			case child.Name == "bytes" && child.Kind == table.Binary:
				c.bytes = image + ".bytes"
			case child.Name == "path" && child.Kind == table.Text:
				c.path = image + ".path"
			}
		}
	}
	if c.bytes == "" && c.path == "" {
		return c, fmt.Errorf("data.image_column: column %q has %s, want bytes, paths, or a structure of bytes and path",
			image, field.Kind)
	}
	label, _ := f.Field(c.label)
	c.kind, c.names = label.Kind, features[c.label].Names
	c.several = c.kind == table.Integers || b.o.Separator != ""
	if b.o.Separator != "" && c.kind != table.Text {
		return c, fmt.Errorf("data.label_separator: column %q has %s, and a separator divides texts: leave the key out",
			c.label, c.kind)
	}
	switch c.kind {
	case table.Boolean:
		if c.names == nil {
			return c, nil
		}
	case table.Integer, table.Text:
		return c, nil
	case table.Integers:
		return c, nil
	}
	return c, fmt.Errorf("data.label_column: column %q has %s, want whole numbers, lists of whole numbers, or texts",
		c.label, c.kind)
}

// file adds the rows of one file.
func (b *builder) file(ctx context.Context, base, path string, d *dataset) error {
	f, err := table.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, table.ErrFormat) {
			return err
		}
		return &damagedError{err}
	}
	defer f.Close() // read only
	c, err := b.columnsOf(f)
	if err != nil {
		return err
	}
	if b.first == "" {
		b.first, b.names = path, c.names
		b.byText = map[string]int32{}
		b.numbers = make(map[string]int32, len(c.names))
		for number, name := range c.names {
			b.numbers[name] = int32(number)
		}
	}
	if err := b.several.agree(c.several, path); err != nil {
		return err
	}
	if !slices.Equal(b.names, c.names) {
		return fmt.Errorf("the classes are %.200q, but those of %s are %.200q", c.names, b.first, b.names)
	}
	number := int32(len(b.set.files))
	stored := openfiles.Of(path, f.Info)
	var ends []int64
	if f.Parquet && c.bytes != "" {
		if b.o.CacheDir == "" {
			return errors.New("images of Parquet files need a cache folder, but none is set")
		}
		b.o.Logger.Debug("images of a Parquet file are read from a copy", "file", path, "cache", b.o.CacheDir)
		copy, err := copyColumn(ctx, f, c.bytes, filepath.Join(b.o.CacheDir, "columns"), b.o.Progress)
		if err != nil {
			return err
		}
		info, err := statOf(copy.path)
		if err != nil {
			return err
		}
		ends, stored = copy.ends, info
	}
	b.set.addFile(base, path, stored)
	selected := []table.Column{{Path: c.label}}
	bytesAt, pathAt := -1, -1
	if c.bytes != "" && !f.Parquet {
		bytesAt = len(selected)
		selected = append(selected, table.Column{Path: c.bytes, Locate: true})
	}
	if c.path != "" {
		pathAt = len(selected)
		selected = append(selected, table.Column{Path: c.path})
	}
	within := "." // paths of metadata.parquet are relative to its folder
	if c.path == pathColumn {
		if within, err = b.set.within(number); err != nil {
			return err
		}
	}
	row := int32(0)
	var own error // error of a row that was read, but is not valid
	add := func(v []table.Value) error {
		e := entry{file: number, row: row}
		var at, size int64
		switch {
		case bytesAt >= 0 && !v[bytesAt].Null:
			at, size = v[bytesAt].At, v[bytesAt].Size
		case ends != nil:
			if row > 0 {
				at = ends[row-1]
			}
			size = ends[row] - at
		}
		if size > images.MaxFileBytes {
			return fmt.Errorf("row %d: an image of %d bytes, want at most %d", row, size, images.MaxFileBytes)
		}
		e.offset, e.size = at, int32(size)
		if size == 0 && pathAt >= 0 && len(v[pathAt].Bytes) > 0 {
			name := string(v[pathAt].Bytes)
			if within != "." && !filepath.IsAbs(name) {
				name = filepath.Join(within, filepath.FromSlash(name))
			}
			e.offset, e.size = int64(len(b.set.paths)), -int32(len(name))
			b.set.paths = append(b.set.paths, name...)
		}
		label, err := b.labelOf(&v[0], c)
		if err != nil {
			return fmt.Errorf("row %d, column %q: %w", row, c.label, err)
		}
		e.label = label
		d.samples = append(d.samples, e)
		row++
		return nil
	}
	err = f.Scan(ctx, selected, func(v []table.Value) error {
		own = add(v)
		return own
	})
	if err != nil && own == nil {
		err = &damagedError{err}
	}
	return err
}

// label returns the number of a label: its value in the ClassLabel, or else an index of texts.
func (b *builder) label(v *table.Value, c columns) (int32, error) {
	const none = "the row has no label: remove such rows, for example with filter of datasets, or choose another split"
	switch {
	case v.Null:
		return 0, errors.New(none)
	case c.names != nil && c.kind == table.Integer:
		if v.Int < 0 || v.Int >= int64(len(c.names)) {
			if v.Int == -1 {
				return 0, errors.New("label -1: " + none)
			}
			return 0, fmt.Errorf("label %d, want 0 to %d", v.Int, len(c.names)-1)
		}
		return int32(v.Int), nil
	case c.names != nil: // a column that was cast to text still has the names
		number, ok := b.numbers[string(v.Bytes)]
		if !ok {
			return 0, fmt.Errorf("label %.100q is none of the %d names of the ClassLabel", v.Bytes, len(c.names))
		}
		return number, nil
	}
	var text string
	switch c.kind {
	case table.Integer:
		if v.Int < 0 || v.Int >= maxClasses {
			return 0, fmt.Errorf("label %d, want 0 to %d", v.Int, maxClasses-1)
		}
		text = strconv.FormatInt(v.Int, 10)
	case table.Boolean:
		text = []string{"false", "true"}[v.Int]
	default:
		if text = string(v.Bytes); text == "" {
			return 0, errors.New(none)
		}
	}
	number, ok := b.byText[text]
	if !ok {
		if len(b.texts) >= maxClasses {
			return 0, fmt.Errorf("label %.100q is different label %d, want at most %d: set data.label_column to a column of classes",
				text, len(b.texts)+1, maxClasses)
		}
		number = int32(len(b.texts))
		b.byText[text] = number
		b.texts = append(b.texts, text)
	}
	return number, nil
}

// classes returns the names of the classes. Without a ClassLabel, it also sorts the labels. If all labels are whole
// numbers from 0, it sorts them as numbers, otherwise by name.
func (b *builder) classes() ([]string, error) {
	if b.names != nil {
		return b.names, nil
	}
	if b.several.has && len(b.texts) == 0 {
		return nil, errors.New("no image has a label")
	}
	others := slices.DeleteFunc(slices.Clone(b.texts), func(s string) bool { return s == "-1" })
	if len(others) < len(b.texts) {
		if _, numbers := largestNumber(others); numbers {
			return nil, errors.New("label -1 among numbers: -1 usually means that a row has no label: remove such rows, or give the label a name")
		}
	}
	var names []string
	if largest, ok := largestNumber(b.texts); ok {
		if largest >= maxClasses {
			return nil, fmt.Errorf("label %d, want 0 to %d", largest, maxClasses-1)
		}
		for n := range largest + 1 {
			names = append(names, strconv.Itoa(n))
		}
	} else {
		names = slices.Sorted(slices.Values(b.texts))
	}
	if len(names) < 2 && !b.several.has {
		return nil, fmt.Errorf("all labels are %q, want at least two classes", names)
	}
	numbers := make(map[string]int32, len(names))
	for k, name := range names {
		numbers[name] = int32(k)
	}
	b.set.labels = make([]int32, len(b.texts))
	for k, text := range b.texts {
		number, ok := numbers[text]
		if !ok {
			return nil, fmt.Errorf("label %.100q is none of the %d classes", text, len(names))
		}
		b.set.labels[k] = number
	}
	return names, nil
}

// largestNumber returns the largest label. The result ok is true only if all labels are whole numbers from 0 in their
// usual form. For example, 00012 and +1 are names.
func largestNumber(labels []string) (largest int, ok bool) {
	for _, label := range labels {
		n, err := strconv.Atoi(label)
		if err != nil || n < 0 || strconv.Itoa(n) != label {
			return 0, false
		}
		largest = max(largest, n)
	}
	return largest, true
}

// split divides the rows into a training part and an evaluation part. The choice for a row depends on the name of its
// file and its position in the file. Other files, and files that are left out, therefore do not affect the choice. If
// fraction is not 0 and there are at least two rows, each part gets at least one row.
func (d *dataset) split(fraction float64) (train, eval *dataset) {
	train, eval = &dataset{source: d.source}, &dataset{source: d.source}
	if fraction == 0 || len(d.samples) < 2 {
		return d, eval
	}
	salts := make([]uint64, len(d.origins))
	for k, path := range d.origins {
		name := path
		if within, err := filepath.Rel(d.folders[k], path); err == nil {
			name = filepath.ToSlash(within)
		}
		sum := sha256.Sum256([]byte(name))
		salts[k] = binary.LittleEndian.Uint64(sum[:])
	}
	chance := func(e entry) float64 {
		random := data.NewRandom(salts[e.file], 0, int(e.row), data.ForDocuments)
		return random.Float64()
	}
	for _, e := range d.samples {
		to := train
		if chance(e) < fraction {
			to = eval
		}
		to.samples = append(to.samples, e)
	}
	first := func(e, other entry) int { return cmp.Compare(chance(e), chance(other)) }
	switch {
	case len(eval.samples) == 0:
		eval.take(train, slices.MinFunc(train.samples, first))
	case len(train.samples) == 0:
		train.take(eval, slices.MaxFunc(eval.samples, first))
	}
	return train, eval
}

// take moves a row from another part.
func (d *dataset) take(from *dataset, e entry) {
	d.samples = append(d.samples, e)
	k := slices.Index(from.samples, e)
	from.samples = slices.Delete(from.samples, k, k+1)
}

// fingerprint returns a hash of the labels, sizes and paths of all rows. It is equal on all ranks with the same data.
func (s *source) fingerprint(d *dataset) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", s.classes)
	line := make([]byte, 0, 256)
	for i, e := range d.samples {
		line = binary.LittleEndian.AppendUint32(line[:0], uint32(d.Label(i)))
		line = binary.LittleEndian.AppendUint32(line, uint32(e.size))
		line = binary.LittleEndian.AppendUint32(line, uint32(e.row))
		if e.size < 0 {
			line = append(line, s.paths[e.offset:][:-e.size]...)
		}
		h.Write(line)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
