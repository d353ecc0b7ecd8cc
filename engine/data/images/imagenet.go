package images

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// File names of ImageNet, as distributed by its authors and by Kaggle.
var (
	valLabels  = []string{"LOC_val_solution.csv", "val.txt", "ILSVRC2012_val.txt"}
	classNames = []string{"LOC_synset_mapping.txt", "synset_words.txt", "classnames.txt"}
)

// kaggleImages is the folder that contains train/ and val/ in Kaggle's archive.
const kaggleImages = "ILSVRC/Data/CLS-LOC"

// maxTextBytes limits the size of a list of labels or names, in bytes. Those of ImageNet have 2 MB.
const maxTextBytes = 64 << 20

// maxClassTar limits the size of a class tar within a tar. Those of ImageNet have up to 300 MB.
const maxClassTar = 64 << 30 // bytes

// firstOf returns the path of the first file in dirs that has one of the names. It returns "" if there is no such file.
func firstOf(names []string, dirs ...string) string {
	for _, dir := range dirs {
		for _, name := range names {
			file := filepath.Join(dir, name)
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
				return file
			}
		}
	}
	return ""
}

// officialTars returns the paths of ImageNet's archives in a folder. The result train is the tar of the training part,
// which contains one tar per class. The result val is the tar of the validation part. A path is "" if the archive is
// missing.
func officialTars(dir string) (train, val string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", "", err
	}
	found := map[layout.Part]string{}
	for _, e := range entries {
		if e.IsDir() || layout.System(e.Name()) || !strings.EqualFold(filepath.Ext(e.Name()), ".tar") {
			continue
		}
		part, err := layout.PartOf(e.Name())
		path := filepath.Join(dir, e.Name())
		if err != nil || part == layout.None || part == layout.Train && !isTarOfTars(path) {
			continue
		}
		if other := found[part]; other != "" && (part == layout.Train || part == layout.Validation) {
			return "", "", fmt.Errorf("%.200q and %.200q both name part %s: rename one of them", filepath.Base(other),
				e.Name(), part)
		}
		found[part] = path
	}
	if found[layout.Train] == "" {
		return "", "", nil
	}
	return found[layout.Train], found[layout.Validation], nil
}

// tars is a sequence of plain tars that are read in place. Their bytes have consecutive offsets.
type tars struct {
	files []*os.File
	start []int64 // offset of the first byte of each file
	end   int64
}

func (t *tars) add(name string) (io.ReaderAt, int64, error) {
	f, info, err := regular.Open(name)
	if err != nil {
		return nil, 0, err
	}
	t.files = append(t.files, f)
	t.start = append(t.start, t.end)
	t.end += info.Size()
	return f, info.Size(), nil
}

func (t *tars) read(f file, buf []byte) ([]byte, error) {
	k := len(t.start) - 1
	for k > 0 && t.start[k] > f.offset {
		k--
	}
	f.offset -= t.start[k]
	return tarSource{t.files[k]}.read(f, buf)
}

func (t *tars) Close() error {
	var errs []error
	for _, f := range t.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// isTarOfTars reports whether the first member of a tar is the tar of a class.
func isTarOfTars(name string) bool {
	f, info, err := regular.Open(name)
	if err != nil {
		return false
	}
	defer f.Close() // read only
	found, seen := false, errors.New("seen")
	_ = archive.Index(f, info.Size(), archive.Limits{MemberBytes: maxClassTar}, func(m archive.Member) error {
		if m.Folder {
			return nil
		}
		found = strings.HasSuffix(m.Name, ".tar")
		return seen
	})
	return found
}

// openOfficial opens ImageNet as distributed by its authors: a tar with one tar per class, and a flat tar of validation
// images. val may be "".
func openOfficial(ctx context.Context, train, val string, limits archive.Limits) (source, listing, error) {
	t := &tars{}
	var l listing
	r, size, err := t.add(train)
	if err != nil {
		return t, l, err
	}
	outer := limits
	outer.MemberBytes = maxClassTar
	members := 0
	err = archive.Index(r, size, outer, func(m archive.Member) error {
		if err := ctx.Err(); err != nil || m.Folder || layout.System(m.Name) {
			return err
		}
		class, isTar := strings.CutSuffix(path.Base(m.Name), ".tar")
		if !isTar {
			return fmt.Errorf("member %.200q is not the tar of a class", m.Name)
		}
		inner := io.NewSectionReader(r, m.Offset, m.Size)
		err := archive.Index(inner, m.Size, limits, func(i archive.Member) error {
			if members++; members > limits.Members && limits.Members > 0 {
				return fmt.Errorf("more than %d images: %w", limits.Members, archive.ErrRefused)
			}
			if !i.Folder {
				l.add(file{"train/" + class + "/" + path.Base(i.Name), m.Offset + i.Offset, i.Size})
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("class tar %.200q: %w", m.Name, err)
		}
		return nil
	})
	if err != nil || val == "" {
		return t, l, err
	}
	start := t.end
	if r, size, err = t.add(val); err != nil {
		return t, l, err
	}
	err = archive.Index(r, size, limits, func(m archive.Member) error {
		if !m.Folder {
			l.add(file{"val/" + strings.TrimPrefix(m.Name, "val/"), start + m.Offset, m.Size})
		}
		return ctx.Err()
	})
	return t, l, err
}

// readValLabels reads the classes of validation images without class folders. The file is Kaggle's LOC_val_solution.csv
// (image,"n01440764 box …"), or a file whose lines contain an image and its class or class number. The keys of the
// result are file names without extension.
func readValLabels(name string) (map[string]string, error) {
	labels := map[string]string{}
	err := eachLine(name, func(line string) error {
		fields := strings.FieldsFunc(line, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
		if len(fields) < 2 {
			return fmt.Errorf("got %.100q, want an image name and its class", line)
		}
		if fields[0] != "ImageId" { // the header line
			image := path.Base(fields[0])
			labels[strings.TrimSuffix(image, path.Ext(image))] = fields[1]
		}
		return nil
	})
	return labels, err
}

// ClassName is a line in a list of class names.
type ClassName struct {
	Folder string // first word of the line; in ImageNet, the class folder
	Line   string // the whole line
}

// ReadClassNames reads a list of class names, one per line.
func ReadClassNames(name string) ([]ClassName, error) {
	var names []ClassName
	err := eachLine(name, func(line string) error {
		names = append(names, ClassName{strings.Fields(line)[0], line})
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s: no names", name)
	}
	return names, err
}

// FindClassNames returns the path of the list of class names in one of the folders, or "" if there is none.
func FindClassNames(dirs ...string) string { return firstOf(classNames, dirs...) }

// eachLine calls visit for each non-empty line of a text file. It returns an error if a line has unprintable
// characters.
func eachLine(name string, visit func(line string) error) error {
	f, _, err := regular.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // read only
	return eachLineOf(f, name, maxTextBytes, visit)
}

// eachLineOf calls visit for each line of r. It returns an error if r has more than most bytes.
func eachLineOf(r io.Reader, name string, most int64, visit func(line string) error) error {
	in := &io.LimitedReader{R: r, N: most + 1}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan() && in.N > 0; n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		if strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) && r != '\t' }) {
			return fmt.Errorf("%s, line %d: %.100q is not plain text", name, n, line)
		}
		if err := visit(line); err != nil {
			return fmt.Errorf("%s, line %d: %w", name, n, err)
		}
	}
	if in.N <= 0 {
		return fmt.Errorf("%s: want a list of at most %d bytes", name, most)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
