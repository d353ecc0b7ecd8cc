package hyper

import (
	"fmt"
	"slices"
)

// Memory is an item memory: named vectors. It finds the items that are most similar to a vector.
type Memory struct {
	space   *Space
	names   []string
	vectors []Vector
	index   map[string]int
}

// Match is an item that a query found.
type Match struct {
	Item       int // in the order of addition
	Similarity float64
}

// NewMemory returns a memory without items.
func (s *Space) NewMemory() *Memory { return &Memory{space: s, index: map[string]int{}} }

// Add adds an item and returns its number. The memory keeps v. An existing name is an error.
func (m *Memory) Add(name string, v Vector) (int, error) {
	if i, ok := m.index[name]; ok {
		return 0, fmt.Errorf("item memory: item name %q is already used by item %d, want unique names", name, i)
	}
	m.index[name] = len(m.names)
	m.names, m.vectors = append(m.names, name), append(m.vectors, v)
	return len(m.names) - 1, nil
}

// Item returns the number of the item with this name. If there is no such item, Item adds one with the random vector of
// the name.
func (m *Memory) Item(name string) int {
	if i, ok := m.index[name]; ok {
		return i
	}
	i, _ := m.Add(name, m.space.Random(name)) // the name is free
	return i
}

// Len returns the number of items.
func (m *Memory) Len() int { return len(m.names) }

// Name returns the name of an item.
func (m *Memory) Name(item int) string { return m.names[item] }

// At returns the vector of an item. The caller must not change it.
func (m *Memory) At(item int) Vector { return m.vectors[item] }

// Nearest writes the items that are most similar to v into matches, the most similar first, and returns the filled
// part. Items of equal similarity are in the order of addition.
func (m *Memory) Nearest(v Vector, matches []Match) []Match {
	found := matches[:0]
	for i, item := range m.vectors {
		hit := Match{i, m.space.Similarity(item, v)}
		at := len(found)
		for at > 0 && found[at-1].Similarity < hit.Similarity {
			at--
		}
		if at == len(matches) {
			continue
		}
		if len(found) == len(matches) {
			found = found[:len(found)-1]
		}
		found = slices.Insert(found, at, hit)
	}
	return found
}

// Cleanup returns the item that is most similar to v. ok is false if the memory has no items.
func (m *Memory) Cleanup(v Vector) (match Match, ok bool) {
	var one [1]Match
	found := m.Nearest(v, one[:])
	if len(found) == 0 {
		return Match{}, false
	}
	return found[0], true
}
