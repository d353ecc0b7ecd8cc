package huggingface

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/table"
)

// severalLabels collects the label sets of images that have several labels each. While files are read, the elements of
// a set are numbers that builder.label returned.
type severalLabels struct {
	known, has bool // has: rows have several labels; known: has is set
	first      string
	numbers    map[string]int32 // number of each set
	sets       [][]int32
}

// agree returns an error if one file has lists of labels, and another has single labels.
func (s *severalLabels) agree(has bool, path string) error {
	if s.known && s.has != has {
		texts := map[bool]string{true: "several labels per row", false: "one label per row"}
		return fmt.Errorf("it has %s, but %s has %s", texts[has], s.first, texts[s.has])
	}
	if !s.known {
		s.known, s.has, s.first, s.numbers = true, has, path, map[string]int32{}
	}
	return nil
}

// add returns the number of a set. It modifies labels.
func (s *severalLabels) add(labels []int32) int32 {
	slices.Sort(labels)
	key := fmt.Sprint(labels)
	number, ok := s.numbers[key]
	if !ok {
		number = int32(len(s.sets))
		s.numbers[key], s.sets = number, append(s.sets, slices.Clone(labels))
	}
	return number
}

// labelOf returns the number of a label, or of a set of labels.
func (b *builder) labelOf(v *table.Value, c columns) (int32, error) {
	if !c.several {
		return b.label(v, c)
	}
	if v.Null {
		return 0, errors.New("the row has no list of labels: an image without labels has an empty list")
	}
	var pieces []table.Value
	if c.kind == table.Text {
		pieces = divided(string(v.Bytes), b.o.Separator)
	} else {
		for _, label := range v.List {
			pieces = append(pieces, table.Value{Int: label})
		}
		c.kind = table.Integer
	}
	return b.setOf(pieces, c)
}

// divided splits a text into labels. An empty text has no labels.
func divided(text, separator string) (pieces []table.Value) {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	for _, piece := range strings.Split(text, separator) {
		pieces = append(pieces, table.Value{Bytes: []byte(strings.TrimSpace(piece))})
	}
	return pieces
}

// setOf returns the number of a set of labels.
func (b *builder) setOf(pieces []table.Value, c columns) (int32, error) {
	labels := make([]int32, 0, len(pieces))
	for i := range pieces {
		if c.kind == table.Text && len(pieces[i].Bytes) == 0 {
			return 0, errors.New("one of the labels is empty")
		}
		label, err := b.label(&pieces[i], c)
		if err != nil {
			return 0, err
		}
		if slices.Contains(labels, label) {
			text := cmp.Or(string(pieces[i].Bytes), fmt.Sprint(pieces[i].Int))
			if _, number := largestNumber([]string{text}); !number {
				return 0, fmt.Errorf("label %.100q appears twice in one row", text)
			}
			return 0, fmt.Errorf("label %.100q appears twice: want a list of the labels of the image; convert a vector with 0 or 1 for each label, for example with map of datasets: lambda row: {%q: [k for k, v in enumerate(row[%q]) if v]}",
				text, c.label, c.label)
		}
		labels = append(labels, label)
	}
	return b.several.add(labels), nil
}

// finish sorts the sets, so that their numbers do not depend on the order of the rows. Each set becomes a class of the
// data set. The parameter names contains the names of the labels. The result is nil if each image has one class.
func (s *severalLabels) finish(names []string, of *source) *data.LabelSets {
	if of.classes = names; !s.has {
		return nil
	}
	out := &data.LabelSets{Names: names}
	for _, set := range s.sets {
		for i := range set {
			if of.labels != nil {
				set[i] = of.labels[set[i]]
			}
		}
		slices.Sort(set)
	}
	order := make([]int, len(s.sets))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(a, b int) int { return slices.Compare(s.sets[a], s.sets[b]) })
	of.labels, of.classes = make([]int32, len(order)), nil
	for number, k := range order {
		of.labels[k] = int32(number)
		out.Sets = append(out.Sets, s.sets[k])
		of.classes = append(of.classes, out.Describe(number))
	}
	return out
}
