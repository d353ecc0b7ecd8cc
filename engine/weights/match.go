package weights

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Sources for the initial values of the head.
const (
	HeadAuto = "auto" // values of the file if they fit, otherwise initial values of the model
	HeadKeep = "keep" // values of the file; an error if they do not fit
	HeadNew  = "new"  // initial values of the model
)

// Options configures Match.
type Options struct {
	Head    string // name of the layer whose outputs are the classes, such as "fc"
	InitOf  string // HeadAuto, HeadKeep or HeadNew; "" means HeadAuto
	Renames []Rename
	Drops   []*regexp.Regexp // tensors of the file to leave out, by their names in the file

	// FileClasses and Classes are the names of the classes by number, in the file and in the model. If both identify
	// the classes (Named), the outputs of the head correspond by name, otherwise by number. Classes is nil if the model
	// uses the classes of the file.
	FileClasses, Classes []string
}

// Fit contains, for each tensor of a model, the tensor of the file that provides its values.
type Fit struct {
	file   *checkpoint.File
	from   map[string]checkpoint.Info // tensors of the file by their names in the model
	fresh  []string                   // sorted names of the tensors that keep their initial values
	why    string                     // reason why fresh is not empty
	head   string                     // reason why the head keeps its initial values; "" if the file provides it
	layers []string                   // layers whose tensors keep their initial values
	names  []string                   // renamings that were applied
	other  map[tensor.DType]int       // number of tensors by element type, if it differs from the model's type
	left   int                        // number of ignored batch counters
	rows   []int                      // rows of the file's head for the outputs of the model; nil: the same order
	layer  string                     // the head
	blind  bool                       // outputs of the head correspond by number, because class names are unknown
	turn   map[string]bool            // names of the tensors that the file stores transposed
}

// Match compares the tensors of a file with those of a model, by name and shape. The error lists all differences.
func Match(f *checkpoint.File, model []checkpoint.Info, o Options) (*Fit, error) {
	wanted := make(map[string]bool, len(model))
	for _, m := range model {
		wanted[m.Name] = true
	}
	names, done, err := o.namesIn(f, wanted)
	if err != nil {
		return nil, err
	}
	var copies map[string]string
	like := familyOf(wanted)
	if like != nil {
		var more []string
		names, copies, more = like.adapt(names, wanted)
		done = append(done, more...)
	}
	fit := &Fit{file: f, from: map[string]checkpoint.Info{}, names: done, other: map[tensor.DType]int{},
		turn: map[string]bool{}}
	have := make(map[string]checkpoint.Info, len(names))
	for name, from := range names {
		have[name], _ = f.Info(from)
	}
	conv1D := like != nil && storesConv1D(have)
	differences := fit.chooseLayers(o, like, have, model)
	if err := checkCopies(f, have, copies); err != nil {
		return nil, err
	}
	for _, m := range model {
		got, ok := have[m.Name]
		delete(have, m.Name)
		if fit.turn[m.Name] = conv1D && Conv1D(m.Name); fit.turn[m.Name] {
			m.Shape = tensor.Shape{m.Shape[1], m.Shape[0]}
		}
		switch {
		case fit.isFresh(m.Name):
			fit.fresh = append(fit.fresh, m.Name)
		case !ok:
			differences = append(differences, checkpoint.Difference{Name: m.Name, Model: describe(m)})
		case !got.Shape.Equal(m.Shape) || !got.DType.IsFloat():
			differences = append(differences,
				checkpoint.Difference{Name: m.Name, File: describe(got), Model: describe(m)})
		default:
			fit.take(m, got)
		}
	}
	for name, got := range have {
		layer, counter := strings.CutSuffix(name, ".num_batches_tracked")
		switch {
		case counter && wanted[layer+".running_mean"]:
			fit.left++
		case fit.head != "" && inLayer(o.Head, name):
		default:
			differences = append(differences, checkpoint.Difference{Name: name, File: describe(got)})
		}
	}
	if len(differences) > 0 {
		slices.SortFunc(differences, func(a, b checkpoint.Difference) int { return strings.Compare(a.Name, b.Name) })
		return nil, &checkpoint.MismatchError{Path: f.Path(), Differences: differences}
	}
	slices.Sort(fit.fresh)
	return fit, nil
}

// chooseLayers decides which layers keep their initial values. It returns the differences between the classes. Files of
// transformers that were trained for another task lack the layers between the encoder and the predictions.
func (f *Fit) chooseLayers(o Options, like *family, have map[string]checkpoint.Info, model []checkpoint.Info) (
	differences []checkpoint.Difference) {
	var lacks []string
	if like != nil && o.InitOf != HeadKeep {
		for _, prefix := range like.unused {
			layer := strings.TrimSuffix(prefix, ".")
			if !hasLayer(layer, have) &&
				slices.ContainsFunc(model, func(m checkpoint.Info) bool { return inLayer(layer, m.Name) }) {
				lacks = append(lacks, layer)
			}
		}
	}
	if f.head = o.whyNew(have, model); f.head == "" && hasLayer(o.Head, have) {
		if like != nil && slices.Contains(lacks, like.pooler) {
			f.head = "the classifier of the file does not read " + like.pooler
		} else if o.Classes != nil {
			differences = f.matchClasses(o, have)
		}
	}
	f.layers = lacks
	if f.head != "" && o.Head != "" {
		f.layers = append(f.layers, o.Head)
	}
	reasons := []string{f.head}
	for _, layer := range lacks {
		reasons = append(reasons, "the file has no "+layer)
	}
	f.why = strings.TrimPrefix(strings.Join(reasons, "; "), "; ")
	return differences
}

// isFresh reports whether a tensor of the model keeps its initial values.
func (f *Fit) isFresh(name string) bool {
	return slices.ContainsFunc(f.layers, func(layer string) bool { return inLayer(layer, name) })
}

// OnlyExtra reports whether err lists only tensors that the model lacks. The user can leave them out (Options.Drops).
func OnlyExtra(err error) bool {
	different := new(checkpoint.MismatchError)
	return errors.As(err, &different) && !different.Settings &&
		!slices.ContainsFunc(different.Differences, func(d checkpoint.Difference) bool { return d.Model != "" })
}

// matchClasses compares the class names of the head in the file with those of the model.
func (f *Fit) matchClasses(o Options, have map[string]checkpoint.Info) []checkpoint.Difference {
	bias, ok := have[o.Head+".bias"]
	if !ok || len(bias.Shape) != 1 {
		return nil // the comparison of the shapes finds the difference
	}
	h := o.matchHead(bias.Shape[0])
	f.rows, f.blind, f.layer = h.rows, h.unnamed, o.Head
	switch {
	case h.other == "":
	case o.InitOf == HeadKeep:
		return []checkpoint.Difference{
			{Name: "names of the classes", File: DescribeClasses(o.FileClasses), Model: DescribeClasses(o.Classes)}}
	default:
		f.head = h.other
	}
	return nil
}

func (f *Fit) take(m, got checkpoint.Info) {
	f.from[m.Name] = got
	if got.DType != m.DType {
		f.other[got.DType]++
	}
}

// whyNew returns the reason why the head keeps its initial values, or "". If the file contains a head, the only reason
// is a different number of classes. A head with a different number of features belongs to another model, which is an
// error.
func (o Options) whyNew(have map[string]checkpoint.Info, model []checkpoint.Info) string {
	if o.InitOf == HeadNew {
		return "a random classifier is requested"
	}
	if o.InitOf == HeadKeep || o.Head == "" {
		return ""
	}
	why := ""
	for _, m := range model {
		if !inLayer(o.Head, m.Name) {
			continue
		}
		got, ok := have[m.Name]
		switch {
		case !ok:
			why = "the file has no " + m.Name
		case len(got.Shape) != len(m.Shape) || len(m.Shape) == 0 || !got.Shape[1:].Equal(m.Shape[1:]):
			return ""
		case got.Shape[0] != m.Shape[0]:
			why = fmt.Sprintf("the file has %d classes, the model %d", got.Shape[0], m.Shape[0])
		}
	}
	return why
}

func hasLayer(layer string, have map[string]checkpoint.Info) bool {
	for name := range have {
		if inLayer(layer, name) {
			return true
		}
	}
	return false
}

// inLayer reports whether a tensor belongs to a layer.
func inLayer(layer, name string) bool { return strings.HasPrefix(name, layer+".") }

func describe(i checkpoint.Info) string { return i.Wire + " " + i.Shape.String() }

// Replaced returns the names of the tensors that keep their initial values, and the reason. If the file provides all
// tensors, it returns no names.
func (f *Fit) Replaced() (names []string, why string) { return f.fresh, f.why }

// Notes returns further remarks for the user, one per line.
func (f *Fit) Notes() []string {
	notes := slices.Clone(f.names)
	for _, d := range []tensor.DType{tensor.F64, tensor.BF16, tensor.F16, tensor.F32} {
		if n := f.other[d]; n > 0 {
			notes = append(notes, fmt.Sprintf("%d tensors converted from %v to f32", n, d))
		}
	}
	turned := 0
	for _, is := range f.turn {
		if is {
			turned++
		}
	}
	if turned > 0 {
		notes = append(notes, fmt.Sprintf("%d weights transposed, because transformers stores them transposed (Conv1D)",
			turned))
	}
	if f.rows != nil {
		notes = append(notes, fmt.Sprintf("outputs of %s put into the order of the model's classes, by name", f.layer))
	}
	if f.left > 0 {
		notes = append(notes, fmt.Sprintf("%d batch counters (num_batches_tracked) ignored", f.left))
	}
	return notes
}

// ByNumber reports whether the outputs of the head correspond by number only, because the file or the model has no
// class names.
func (f *Fit) ByNumber() bool { return f.blind }

// ReadInto fills dst with the values of the model's tensor m, in the element type of m and in plain layout. If the
// tensor keeps its initial values, ReadInto returns false and leaves dst unchanged. If the error is nil, all values
// are finite.
func (f *Fit) ReadInto(m checkpoint.Info, dst []byte) (bool, error) {
	from, ok := f.from[m.Name]
	if !ok {
		return false, nil
	}
	src := make([]byte, from.Bytes())
	if err := f.file.ReadInto(from.Name, src); err != nil {
		return false, err
	}
	if f.turn[m.Name] {
		turned := make([]byte, len(src))
		Transpose(turned, src, from.Shape[0], from.Shape[1], from.DType.Size())
		src = turned
	}
	if f.rows != nil && inLayer(f.layer, m.Name) {
		src = pick(src, f.rows)
	}
	err := Convert(dst, m.DType, src, from.DType)
	if bad := new(ValueError); errors.As(err, &bad) {
		err = &checkpoint.CorruptError{Path: f.file.Path(), Reason: fmt.Sprintf("tensor %q: %v", from.Name, err)}
	}
	return true, err
}

// Classes returns the number of outputs of the head in a file, or 0 if the file contains no head.
func Classes(f *checkpoint.File, model []checkpoint.Info, o Options) (int, error) {
	wanted := make(map[string]bool, len(model))
	for _, m := range model {
		wanted[m.Name] = true
	}
	names, _, err := o.namesIn(f, wanted)
	if err != nil {
		return 0, err
	}
	if t, ok := f.Info(names[o.Head+".weight"]); ok && len(t.Shape) > 0 {
		return t.Shape[0], nil
	}
	return 0, nil
}
