package images

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/data/layout"
)

// file is an image in a source.
type file struct {
	name   string // path relative to the source, separated by slashes
	offset int64  // byte offset in a tar
	size   int64  // size in a tar, in bytes
}

// place locates a file in a tar.
type place struct{ offset, size int64 }

// listing lists the images of a source. The names of a folder stay in the Tree, which the ranks of a machine share. A
// million file names as strings would need memory in each rank, and slow down the garbage collector.
type listing struct {
	tree     *layout.Tree // list of a folder; nil: names contains the names
	number   []int32      // images of tree, as indices of its files
	names    []byte       // concatenated names
	ends     []int64      // end of each name in names
	places   []place      // places in a tar; nil for files outside a tar
	folders  []string
	cut      error // reason why the rest of an archive is missing; nil: the archive is complete
	unmarked bool  // an archive lacks its end mark
	ignored  int   // number of files that are neither images nor hidden
	others
	// heldClasses contains the classes of validation images without class folders. Its keys are file names without
	// extension. nil: no list was found.
	heldClasses map[string]string
}

// len returns the number of images.
func (l *listing) len() int { return len(l.number) + len(l.ends) }

// name returns the path of an image. The string refers to the memory of the listing, which never changes.
func (l *listing) name(i int32) string {
	if l.tree != nil {
		return l.tree.File(int(l.number[i]))
	}
	start := int64(0)
	if i > 0 {
		start = l.ends[i-1]
	}
	return unsafe.String(unsafe.SliceData(l.names[start:]), l.ends[i]-start)
}

// file returns an image.
func (l *listing) file(i int32) file {
	if l.places == nil {
		return file{name: l.name(i)}
	}
	return file{l.name(i), l.places[i].offset, l.places[i].size}
}

// addName adds an image outside a tar.
func (l *listing) addName(name string) {
	l.names = append(l.names, name...)
	l.ends = append(l.ends, int64(len(l.names)))
}

// add adds a file of a tar.
func (l *listing) add(f file) {
	switch {
	case layout.System(f.name):
	case isClassImage(f.name):
		l.addName(f.name)
		l.places = append(l.places, place{f.offset, f.size})
	default:
		l.addOther(f.name)
	}
}

// addTree adds the files and folders in the list of a folder.
func (l *listing) addTree(t *layout.Tree) {
	l.tree = t
	for i := range t.Files() {
		if t.FileMode(i).IsRegular() && isClassImage(t.File(i)) {
			l.number = append(l.number, int32(i))
		} else {
			l.addOther(t.File(i))
		}
	}
	for k := 1; k < t.Folders(); k++ {
		l.addFolder(t.Folder(k))
	}
}

// addFolder adds a folder.
func (l *listing) addFolder(name string) {
	if !layout.System(name) {
		l.folders = append(l.folders, name)
	}
}

// sample is an image with its class.
type sample struct {
	file  int32 // index of the image in the listing
	label int32
}

// arrangement is the result of arrange: the samples of both parts, with their classes.
type arrangement struct {
	classes     []string
	train, eval []sample
	same        bool     // train and eval are the same samples
	evalFrom    string   // origin of eval, see data.Splits.EvalFrom
	unused      string   // folder of the test part, if the validation part is used for evaluation
	notes       []string // messages about ignored files, for the log
}

// arrange determines the layout of the data set; the package comment describes the rules.
func arrange(l listing, valFraction float64) (arrangement, error) {
	a, p, err := arrangeTraining(l)
	if err != nil {
		return a, err
	}
	part, eval := p.evaluation()
	if part == layout.None {
		a.hold(l, valFraction)
		return a, nil
	}
	a.evalFrom = from(part, eval)
	if test, both := p.folders[layout.Test]; both && part != layout.Test {
		a.unused = test.prefix
	}
	return a, a.evaluateOn(l, eval.prefix, eval.members)
}

// arrangeTraining sets the training part: the images in the training folder if the data set has parts, otherwise all
// images.
func arrangeTraining(l listing) (a arrangement, p partFolders, err error) {
	if p, err = findParts(&l, &a); err != nil {
		return a, p, err
	}
	train := folder{prefix: p.around, members: all(l.len()), deep: true}
	if p.folders != nil {
		train = p.folders[layout.Train]
	}
	if !train.deep {
		return a, p, fmt.Errorf("the folder contains %s, but no folder with classes that names the training part",
			p.list())
	}
	return a, p, a.trainOn(l, train.prefix, train.members)
}

// arrangeWith uses the training part of l, and all images of held as the evaluation part.
func arrangeWith(l, held listing) (arrangement, error) {
	a, p, err := arrangeTraining(l)
	if err != nil {
		return a, err
	}
	if _, eval := p.evaluation(); eval.prefix != "" {
		a.unused = eval.prefix
	}
	own, err := findParts(&held, &a)
	if err == nil && own.folders != nil {
		err = fmt.Errorf("data.val_path: the folder has parts, %s: want one of them", own.list())
	}
	if err != nil {
		return a, err
	}
	return a, a.evaluateOn(held, own.around, all(held.len()))
}

// arrangeAll arranges a data set for evaluation only. If the data set has no parts, it uses all samples. Otherwise it
// uses the evaluation part, or the training part if there is no evaluation part.
func arrangeAll(l listing) (a arrangement, err error) {
	p, err := findParts(&l, &a)
	if err != nil {
		return a, err
	}
	whole, part := folder{prefix: p.around, members: all(l.len()), deep: true}, layout.None
	if p.folders != nil {
		part, whole = p.evaluation()
	}
	train, trains := p.folders[layout.Train]
	if part == layout.None && trains {
		part, whole = layout.Train, train
	}
	if !trains || part == layout.Train {
		if !whole.deep {
			return a, fmt.Errorf("%.200s has no class folders", whole.prefix)
		}
		err = a.trainOn(l, whole.prefix, whole.members)
		a.eval, a.same = a.train, true
	} else if err = a.trainOn(l, train.prefix, train.members); err == nil { // numbers the classes
		err = a.evaluateOn(l, whole.prefix, whole.members)
	}
	a.evalFrom = "all samples"
	if part != layout.None {
		a.evalFrom = from(part, whole)
	}
	return a, err
}

// trainOn sets the class names and the training part.
func (a *arrangement) trainOn(l listing, prefix string, members []int32) error {
	return a.name(l, prefix, classify(l, prefix, members, a))
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
		class, _, ok := strings.Cut(l.name(i)[len(prefix):], "/")
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
	if err := l.checkClasses(prefix, classes); err != nil {
		return err
	}
	for _, folder := range l.folders {
		rest, ok := strings.CutPrefix(folder, prefix)
		if !ok || rest == "" || strings.Contains(rest, "/") {
			continue
		}
		if _, ok := classes[rest]; !ok {
			return fmt.Errorf("class folder %.200q has no images: remove the folder, because a later image in it would change the labels of the other classes",
				folder)
		}
	}
	for class := range classes {
		a.classes = append(a.classes, class)
	}
	slices.Sort(a.classes)
	if len(l.lists) > 0 && len(a.classes) == 1 {
		return fmt.Errorf("all images are of class %.200q, but %.200q may have their labels: data.dataset = \"huggingface\" reads it",
			a.classes[0], l.lists[0])
	}
	if shared := sharedFolders(l, prefix, classes); shared != "" {
		a.notes = append(a.notes, fmt.Sprintf("the classes are %s, and each of them has the folders %s: if these are the classes, %s are parts, whose names need the words train, val or test",
			joined(a.classes), shared, joined(a.classes)))
	}
	for label, class := range a.classes {
		for _, i := range classes[class] {
			a.train = append(a.train, sample{i, int32(label)})
		}
	}
	return sortSamples(l, a.train)
}

// sharedFolders lists the subfolders of the classes if all classes have the same ones, there are at least two, and they
// contain all images. The "classes" are then probably parts: in trainA/cat, trainA/dog, testA/cat and testA/dog, the
// classes are cat and dog.
func sharedFolders(l listing, prefix string, classes map[string][]int32) string {
	if len(classes) < 2 {
		return ""
	}
	var first []string
	for class, files := range classes {
		found := map[string]bool{}
		for _, i := range files {
			folder, _, ok := strings.Cut(l.name(i)[len(prefix)+len(class)+1:], "/")
			if !ok {
				return ""
			}
			found[folder] = true
		}
		names := slices.Sorted(maps.Keys(found))
		if len(names) < 2 || first != nil && !slices.Equal(names, first) {
			return ""
		}
		first = names
	}
	return joined(first)
}

// joined joins at most five names.
func joined(names []string) string {
	if len(names) > 5 {
		names = append(slices.Clone(names[:5]), "…")
	}
	return strings.Join(names, ", ")
}

// evaluateOn uses members as the evaluation part.
func (a *arrangement) evaluateOn(l listing, prefix string, members []int32) error {
	classes := classify(l, prefix, members, a)
	if len(classes) == 0 { // no class folders, for example in ImageNet's archive of validation images
		if l.heldClasses == nil {
			return fmt.Errorf("%.200s has %d images, but neither class folders nor a list of classes: want class folders, or one of the files %s",
				cmp.Or(prefix, "the folder"), len(members), strings.Join(valLabels, ", "))
		}
		return a.evaluateOnListed(l, members)
	}
	if err := l.checkClasses(prefix, classes); err != nil {
		return err
	}
	for class, files := range classes {
		label, ok := slices.BinarySearch(a.classes, class)
		if !ok {
			return fmt.Errorf("class folder %.200q is not in the training part", prefix+class)
		}
		for _, i := range files {
			a.eval = append(a.eval, sample{i, int32(label)})
		}
	}
	return sortSamples(l, a.eval)
}

// evaluateOnListed uses members as the evaluation part. Their classes are in heldClasses.
func (a *arrangement) evaluateOnListed(l listing, members []int32) error {
	for _, i := range members {
		name := path.Base(l.name(i))
		class, ok := l.heldClasses[strings.TrimSuffix(name, path.Ext(name))]
		if !ok {
			return fmt.Errorf("the list of validation images has no entry for %.200q", name)
		}
		label, ok := slices.BinarySearch(a.classes, class)
		if n, err := strconv.Atoi(class); !ok && err == nil && n >= 0 && n < len(a.classes) {
			// a number, as in Caffe's val.txt
			label, ok = n, true
		}
		if !ok {
			return fmt.Errorf("class %.100q of validation image %.200q is not in the training part", class, name)
		}
		a.eval = append(a.eval, sample{i, int32(label)})
	}
	a.dropClassNote()
	return sortSamples(l, a.eval)
}

// outsideClasses is a part of the note that dropClassNote removes.
const outsideClasses = "images outside class folders"

// dropClassNote removes the note about images outside class folders. If a list contains the classes of these images,
// the note does not apply.
func (a *arrangement) dropClassNote() {
	a.notes = slices.DeleteFunc(a.notes, func(note string) bool { return strings.Contains(note, outsideClasses) })
}

// sortSamples sorts by class, then by name. It returns an error for duplicate names.
func sortSamples(l listing, s []sample) error {
	slices.SortFunc(s, func(x, y sample) int {
		return cmp.Or(cmp.Compare(x.label, y.label), strings.Compare(l.name(x.file), l.name(y.file)))
	})
	for i := 1; i < len(s); i++ {
		if name := l.name(s[i].file); name == l.name(s[i-1].file) {
			return fmt.Errorf("%.200q appears twice", name)
		}
	}
	return nil
}

// hold moves a fraction of each class from train to eval. It chooses the samples whose names have the smallest hashes.
// The choice does not depend on a seed, and other samples of the class have little influence on it.
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
			key := func(k int) uint64 { return nameHash(l.name(a.train[k].file)) }
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
	// Mix the bits, because the high bits of FNV are similar for short names.
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
