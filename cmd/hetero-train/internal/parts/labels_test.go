package parts

import (
	"strings"
	"testing"
)

func TestLabelsThatAreCombinations(t *testing.T) {
	for _, c := range []struct {
		name, classes, example string // names of columns; names of the classes, separated by /; an example
		n                      int
	}{
		{"with their pieces", "a/a,b/b", "a,b", 1},
		{"with spaces and bars", "news/news | sport/sport/sport | tv/tv", "news | sport", 2},
		{"pieces are in several combinations only", "a,b/a,c/b,c", "a,b", 3},
		{"no separators", "a/b/c", "", 0},
		{"towns of a country", "Lyon, France/Nice, France/Paris, France", "", 0},
		{"a sentence with a comma", "no, thanks/yes", "", 0},
		{"an empty piece", "a/a,", "", 0},
		{"few of many classes", "a/a,b/b/c/d/e/f/g/h/i/j/k", "", 0},
	} {
		if example, n := combinations(strings.Split(c.classes, "/")); example != c.example || n != c.n {
			t.Errorf("%s: got %q and %d, want %q and %d", c.name, example, n, c.example, c.n)
		}
	}
}
