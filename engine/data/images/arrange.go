package images

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// file is an image in a source.
type file struct {
	name   string // path relative to the source, separated by slashes
	offset int64  // byte offset in a tar
	size   int64  // size in a tar, in bytes
}

// listing lists the files of a source.
type listing struct {
	files   []file
	folders []string
	ignored int // number of files that are neither images nor hidden
	// brokenLinks adds broken links to files. Otherwise a broken link is an error.
	brokenLinks bool
	// heldClasses maps the names of validation images without class folders to classes. The names have no extension.
	// nil if no list was found.
	heldClasses map[string]string
}

// add adds a file.
func (l *listing) add(f file) {
	if hidden(f.name) {
		return
	}
	switch strings.ToLower(path.Ext(f.name)) {
	case ".jpg", ".jpeg", ".png":
		l.files = append(l.files, f)
	default:
		l.ignored++
	}
}

// addFolder adds a folder.
func (l *listing) addFolder(name string) {
	if !hidden(name) {
		l.folders = append(l.folders, name)
	}
}

// hidden reports whether a file is ignored because of its name. macOS adds files such as ._0001.jpg to archives.
func hidden(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || part == "__MACOSX" {
			return true
		}
	}
	return false
}

// sample is a file with its class.
type sample struct {
	file  int32 // index in listing.files
	label int32
}

// arrangement is the result of arrange: the samples of both parts, with their classes.
type arrangement struct {
	classes     []string
	train, eval []sample
	ownEval     bool     // eval comes from val/ or test/
	notes       []string // messages about ignored files, for the log
}

var splitNames = []string{"train", "val", "test"}

// arrange determines the layout of the data set, as described in the package comment.
func arrange(l listing, valFraction float64) (arrangement, error) {
	var a arrangement
	if len(l.files) == 0 {
		return a, errors.New("no .jpg, .jpeg or .png files")
	}
	if len(l.files) > math.MaxInt32 {
		return a, fmt.Errorf("%d files, want at most %d", len(l.files), math.MaxInt32)
	}
	if l.ignored > 0 {
		a.notes = append(a.notes, fmt.Sprintf("%d files that are not .jpg, .jpeg or .png were skipped", l.ignored))
	}
	around := wrapper(l.files)
	parts, others := byFirst(l.files, around)
	if !deep(l.files, parts["train"], around+"train/") {
		for _, name := range splitNames[1:] {
			if deep(l.files, parts[name], around+name+"/") {
				return a, fmt.Errorf("the folder contains %s/ but no train/ with class folders", name)
			}
		}
		train := classify(l, around, all(len(l.files)), &a)
		if err := a.name(l, around, train); err != nil {
			return a, err
		}
		a.hold(l, valFraction)
		return a, nil
	}
	if others > 0 {
		a.notes = append(a.notes, fmt.Sprintf("%d images outside train/, val/ and test/ were skipped", others))
	}
	train := classify(l, around+"train/", parts["train"], &a)
	if err := a.name(l, around+"train/", train); err != nil {
		return a, err
	}
	for _, name := range splitNames[1:] {
		if len(parts[name]) > 0 {
			a.ownEval = true
			return a, a.evaluateOn(l, around+name+"/", parts[name])
		}
	}
	a.hold(l, valFraction)
	return a, nil
}

// wrapper returns "NAME/" if all files are in one folder that is neither a part nor a class. Otherwise it returns "".
func wrapper(files []file) string {
	first, _, _ := strings.Cut(files[0].name, "/")
	if slices.Contains(splitNames, first) {
		return ""
	}
	for _, f := range files {
		if !strings.HasPrefix(f.name, first+"/") || strings.Count(f.name, "/") < 2 {
			return ""
		}
	}
	return first + "/"
}

// byFirst groups files by their first folder after prefix if this folder is a part. It counts the other files.
func byFirst(files []file, prefix string) (parts map[string][]int32, others int) {
	parts = map[string][]int32{}
	for i, f := range files {
		name, _, inFolder := strings.Cut(strings.TrimPrefix(f.name, prefix), "/")
		if inFolder && slices.Contains(splitNames, name) {
			parts[name] = append(parts[name], int32(i))
		} else {
			others++
		}
	}
	return parts, others
}

// deep reports whether a member is in a folder within prefix. If so, prefix is a part; otherwise it is a class with
// the name of a part.
func deep(files []file, members []int32, prefix string) bool {
	return slices.ContainsFunc(members, func(i int32) bool { return strings.Contains(files[i].name[len(prefix):], "/") })
}

func all(n int) []int32 {
	index := make([]int32, n)
	for i := range index {
		index[i] = int32(i)
	}
	return index
}

// classify groups members by class. The class is the first folder after prefix.
func classify(l listing, prefix string, members []int32, a *arrangement) map[string][]int32 {
	classes := map[string][]int32{}
	loose := 0
	for _, i := range members {
		class, _, ok := strings.Cut(l.files[i].name[len(prefix):], "/")
		if !ok {
			loose++
			continue
		}
		classes[class] = append(classes[class], i)
	}
	if loose > 0 {
		a.notes = append(a.notes, fmt.Sprintf("%d %s were skipped", loose, outsideClasses))
	}
	return classes
}

// name sets the class names and the training part.
func (a *arrangement) name(l listing, prefix string, classes map[string][]int32) error {
	if len(classes) == 0 {
		return errors.New("no class folders with images")
	}
	for _, folder := range l.folders {
		rest, ok := strings.CutPrefix(folder, prefix)
		if !ok || rest == "" || strings.Contains(rest, "/") {
			continue
		}
		if _, ok := classes[rest]; !ok {
			return fmt.Errorf("class folder %.200q has no images: remove the folder, because a later image in it would change the labels of the other classes", folder)
		}
	}
	for class := range classes {
		a.classes = append(a.classes, class)
	}
	slices.Sort(a.classes)
	for label, class := range a.classes {
		for _, i := range classes[class] {
			a.train = append(a.train, sample{i, int32(label)})
		}
	}
	return sortSamples(l, a.train)
}

// evaluateOn uses members as the evaluation part.
func (a *arrangement) evaluateOn(l listing, prefix string, members []int32) error {
	classes := classify(l, prefix, members, a)
	if len(classes) == 0 { // no class folders, as in ImageNet's archive of validation images
		if l.heldClasses == nil {
			return fmt.Errorf("%.200s has %d images, but neither class folders nor a list of classes: want class folders, or one of the files %s", prefix, len(members), strings.Join(valLabels, ", "))
		}
		return a.evaluateOnListed(l, members)
	}
	for class, files := range classes {
		label, ok := slices.BinarySearch(a.classes, class)
		if !ok {
			return fmt.Errorf("class folder %.200q is not in train/", prefix+class)
		}
		for _, i := range files {
			a.eval = append(a.eval, sample{i, int32(label)})
		}
	}
	return sortSamples(l, a.eval)
}

// evaluateOnListed uses members as the evaluation part. A list contains their classes.
func (a *arrangement) evaluateOnListed(l listing, members []int32) error {
	for _, i := range members {
		name := path.Base(l.files[i].name)
		class, ok := l.heldClasses[strings.TrimSuffix(name, path.Ext(name))]
		if !ok {
			return fmt.Errorf("the list of validation images has no entry for %.200q", name)
		}
		label, ok := slices.BinarySearch(a.classes, class)
		if n, err := strconv.Atoi(class); !ok && err == nil && n >= 0 && n < len(a.classes) { // a number, as in Caffe's val.txt
			label, ok = n, true
		}
		if !ok {
			return fmt.Errorf("class %.100q of validation image %.200q is not in train/", class, name)
		}
		a.eval = append(a.eval, sample{i, int32(label)})
	}
	a.dropClassNote()
	return sortSamples(l, a.eval)
}

// outsideClasses is the text by which dropClassNote recognises its note.
const outsideClasses = "images outside class folders"

// dropClassNote removes the note about images outside class folders. The note does not apply if a list contains their
// classes.
func (a *arrangement) dropClassNote() {
	a.notes = slices.DeleteFunc(a.notes, func(note string) bool { return strings.Contains(note, outsideClasses) })
}

// sortSamples sorts by class, then by name. It returns an error for duplicate names.
func sortSamples(l listing, s []sample) error {
	slices.SortFunc(s, func(x, y sample) int {
		return cmp.Or(cmp.Compare(x.label, y.label), strings.Compare(l.files[x.file].name, l.files[y.file].name))
	})
	for i := 1; i < len(s); i++ {
		if name := l.files[s[i].file].name; name == l.files[s[i-1].file].name {
			return fmt.Errorf("%.200q appears twice", name)
		}
	}
	return nil
}

// hold moves a fraction of each class from train to eval. It chooses the samples with the smallest hashes of their
// names. The choice does not depend on a seed, and other samples of the class have little influence on it.
func (a *arrangement) hold(l listing, fraction float64) {
	if fraction == 0 {
		return
	}
	held := make([]bool, len(a.train))
	for start := 0; start < len(a.train); {
		end := start
		for end < len(a.train) && a.train[end].label == a.train[start].label {
			end++
		}
		n := end - start
		if count := min(max(int(math.Round(fraction*float64(n))), 1), n-1); count > 0 {
			order := make([]int, n)
			for k := range order {
				order[k] = start + k
			}
			key := func(k int) uint64 { return nameHash(l.files[a.train[k].file].name) }
			slices.SortFunc(order, func(x, y int) int { return cmp.Or(cmp.Compare(key(x), key(y)), cmp.Compare(x, y)) })
			for _, k := range order[:count] {
				held[k] = true
			}
		}
		start = end
	}
	var train []sample
	for k, s := range a.train {
		if held[k] {
			a.eval = append(a.eval, s)
		} else {
			train = append(train, s)
		}
	}
	a.train = train
}

// nameHash returns a 64-bit hash of the file name and its class folder. It ignores other folders, so an additional
// enclosing folder does not change the split.
func nameHash(name string) uint64 {
	h := fnv.New64a()
	dir, base := path.Split(name)
	h.Write([]byte(path.Base(dir) + "/" + base))
	// Mix the bits, because FNV gives short names similar high bits.
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
