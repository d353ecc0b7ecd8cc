package data

import (
	"cmp"
	"fmt"
	"slices"
)

// Limited returns a data set of n samples of ds. If n is 0 or at least ds.Len(), it returns ds itself.
//
// The result is the same at every call. The sizes of classes are as equal as possible. In each round, one sample of
// each class is chosen, until n samples are chosen. Classes without further samples are skipped. If the last round is
// incomplete, lower labels come first. Within a class, samples are chosen in a fixed random order, so a larger subset
// contains every smaller one. The chosen samples keep the order of ds.
func Limited(ds Dataset, n int) Dataset {
	if n <= 0 || n >= ds.Len() {
		return ds
	}
	byClass := make([][]int32, len(ds.Classes()))
	for i := range ds.Len() {
		c := ds.Label(i)
		byClass[c] = append(byClass[c], int32(i))
	}
	chosen := make([]int32, 0, n)
	quota := balancedQuotas(byClass, n)
	for c, members := range byClass {
		sortByRank(members)
		chosen = append(chosen, members[:quota[c]]...)
	}
	slices.Sort(chosen)
	return &subset{Dataset: ds, index: chosen}
}

// Subset returns a data set of the first classes of ds, with at most perClass samples of each. 0 means all. It chooses
// the samples of a class in the same order as Limited. A class without samples keeps its label.
func Subset(ds Dataset, classes, perClass int) Dataset {
	all := len(ds.Classes())
	if classes <= 0 || classes > all {
		classes = all
	}
	if classes == all && perClass <= 0 {
		return ds
	}
	byClass := make([][]int32, classes)
	for i := range ds.Len() {
		if c := ds.Label(i); c < classes {
			byClass[c] = append(byClass[c], int32(i))
		}
	}
	var chosen []int32
	for _, members := range byClass {
		if perClass > 0 && len(members) > perClass {
			sortByRank(members)
			members = members[:perClass]
		}
		chosen = append(chosen, members...)
	}
	slices.Sort(chosen)
	return &fewerClasses{&subset{Dataset: ds, index: chosen}, ds.Classes()[:classes]}
}

// fewerClasses is a subset that also has fewer classes.
type fewerClasses struct {
	*subset
	classes []string
}

func (f *fewerClasses) Classes() []string { return f.classes }

// sortByRank sorts samples in the fixed random order in which Limited takes them.
func sortByRank(members []int32) {
	slices.SortFunc(members, func(a, b int32) int {
		return cmp.Or(cmp.Compare(subsetOrder(a), subsetOrder(b)), cmp.Compare(a, b))
	})
}

// subsetOrder returns the random number by which Limited orders samples. It is a function of i.
func subsetOrder(i int32) uint32 {
	d := newDraws(0, 0, int(i), streamSubset)
	return d.uint32()
}

// balancedQuotas divides n samples among the classes in rounds, and returns the number of samples for each class. n
// must not exceed the number of samples.
func balancedQuotas(byClass [][]int32, n int) []int {
	quota := make([]int, len(byClass))
	for n > 0 {
		open := 0
		for c := range byClass {
			if quota[c] < len(byClass[c]) {
				open++
			}
		}
		round := max(n/open, 1)
		for c := range byClass {
			take := min(round, len(byClass[c])-quota[c], n)
			quota[c] += take
			n -= take
		}
	}
	return quota
}

// subset is a data set with some of the samples of another data set.
type subset struct {
	Dataset
	index []int32 // maps an index of the subset to an index of Dataset
}

func (s *subset) Len() int        { return len(s.index) }
func (s *subset) Label(i int) int { return s.Dataset.Label(int(s.index[i])) }

// Describe implements Described. Without a name, it returns the index of the sample in the whole data set.
func (s *subset) Describe(i int) (name string, bytes int64) {
	if d, ok := s.Dataset.(Described); ok {
		return d.Describe(int(s.index[i]))
	}
	return fmt.Sprintf("sample %d", s.index[i]), 0
}

func (s *subset) NewReader() (Reader, error) {
	r, err := s.Dataset.NewReader()
	if err != nil {
		return nil, err
	}
	return &subsetReader{Reader: r, index: s.index}, nil
}

type subsetReader struct {
	Reader
	index []int32
}

// Contents implements Encoded if the Reader of the data set does.
func (r *subsetReader) Contents(i int) ([]byte, error) {
	e, ok := r.Reader.(Encoded)
	if !ok {
		return nil, ErrNotEncoded
	}
	contents, err := e.Contents(int(r.index[i]))
	return contents, renumber(err, i)
}

func (r *subsetReader) Read(i int, sizer Sizer, img *Image) error {
	return renumber(r.Reader.Read(int(r.index[i]), sizer, img), i)
}

// renumber sets the index of a sample's fault to i.
func renumber(err error, i int) error {
	fault, ok := err.(*Fault)
	if !ok || fault.Index < 0 {
		return err
	}
	own := *fault // the Reader may keep the original
	own.Index = i
	return &own
}
