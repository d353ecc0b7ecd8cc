package layout

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
)

// Part is one of the parts into which a data set is divided.
type Part uint8

// The parts of a data set. PartOf returns None for a name that names no part.
const (
	None Part = iota
	Train
	Validation
	Test
)

// String returns the name of the part in messages.
func (p Part) String() string { return [...]string{"none", "train", "validation", "test"}[p] }

var words = map[string]Part{
	"train": Train, "training": Train,
	"val": Validation, "valid": Validation, "validation": Validation, "dev": Validation,
	"test": Test, "testing": Test, "eval": Test,
}

// ErrNames is in the error chain for ambiguous names: a name with two parts, two folders of one part, or a file without
// a part.
var ErrNames = errors.New("names of parts")

// refuse returns an error that matches ErrNames, but does not contain its text.
func refuse(format string, args ...any) error { return nameError(fmt.Sprintf(format, args...)) }

type nameError string

func (e nameError) Error() string      { return string(e) }
func (nameError) Is(target error) bool { return target == ErrNames }

// PartOf returns the part that the name of a file or a folder names, or None.
func PartOf(name string) (Part, error) {
	part, found := None, ""
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return !unicode.IsLetter(r) }) {
		p := words[strings.ToLower(word)]
		if p != None && part != None && p != part {
			return None, refuse("the name %.200q has words of two parts, %q (%s) and %q (%s): rename it", name, found,
				part, word, p)
		}
		if p != None {
			part, found = p, word
		}
	}
	return part, nil
}

// Exact reports whether a name consists of one word that names a part, and of characters that are not letters, such as
// test or val2017.
func Exact(name string) bool {
	n, part := 0, None
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return !unicode.IsLetter(r) }) {
		n++
		part = words[strings.ToLower(word)]
	}
	return n == 1 && part != None
}

// partOfPath returns the part of a file. The first element of the path that names a part determines it.
func partOfPath(name string) (Part, error) {
	for element := range strings.SplitSeq(name, "/") {
		if p, err := PartOf(element); p != None || err != nil {
			return p, err
		}
	}
	return None, nil
}

// Division is the division of a data set's files by their names. Fields except Part and Named are indices of the files.
type Division struct {
	Train  []int // files that name the training part, or, if there are none, files that name no part
	Eval   []int // files for evaluation
	Unused []int // files of the test part, if there is a validation part
	Part   Part  // part of the files in Eval; None without Eval
	Named  bool  // at least one name names a part
}

// Divide divides files by their names. The names are relative paths with slashes. A folder in the path may name the
// part. Files that name no part form the training part. If other files name the training part, such files are an error.
func Divide(names []string) (Division, error) {
	var by [Test + 1][]int
	for i, name := range names {
		p, err := partOfPath(name)
		if err != nil {
			return Division{}, err
		}
		by[p] = append(by[p], i)
	}
	d := Division{Train: by[Train], Eval: by[Validation], Part: Validation, Named: len(by[None]) < len(names)}
	if len(by[Train]) > 0 && len(by[None]) > 0 {
		return Division{},
			refuse(
				"the name %.200q names no part, but %.200q names part %s: want names that contain train, val or test",
				names[by[None][0]], names[by[Train][0]], Train)
	}
	if len(by[Train]) == 0 {
		d.Train = by[None]
	}
	switch {
	case len(by[Validation]) > 0:
		d.Unused = by[Test]
	case len(by[Test]) > 0:
		d.Eval, d.Part = by[Test], Test
	default:
		d.Part = None
	}
	return d, nil
}

// Folders returns the folders that name parts. Two folders of the same part are an error.
func Folders(names []string) (map[Part]string, error) {
	parts := map[Part]string{}
	for _, name := range names {
		p, err := PartOf(path.Base(name))
		if err != nil {
			return nil, err
		}
		if p == None {
			continue
		}
		if other, twice := parts[p]; twice {
			return nil, refuse("the folders %.200q and %.200q both name part %s: rename one of them", other, name, p)
		}
		parts[p] = name
	}
	return parts, nil
}

// System reports whether an element of a path belongs to a file system, network storage, an archiver or a tool. Such a
// path never belongs to a data set.
func System(name string) bool {
	for element := range strings.SplitSeq(name, "/") {
		switch {
		case element == "" || element[0] == '.':
			return true // hidden: .git, .ipynb_checkpoints, and ._0001.jpg, which macOS adds to archives
		case systemNames[strings.ToLower(element)]:
			return true
		}
	}
	return false
}

// systemNames are names in lower case.
var systemNames = map[string]bool{
	"__macosx":                  true, // archives of macOS
	"@eadir":                    true, // thumbnails and indices of Synology
	"#recycle":                  true, // Synology
	"@tmp":                      true,
	"#snapshot":                 true,
	"~snapshot":                 true, // NetApp
	"@recycle":                  true, // QNAP
	"@recently-snapshot":        true,
	"lost+found":                true, // ext file systems
	"$recycle.bin":              true, // Windows
	"system volume information": true,
	"thumbs.db":                 true,
	"desktop.ini":               true,
}
