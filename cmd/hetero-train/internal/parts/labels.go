package parts

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// decimals returns the number of class names that are fractional numbers. If a class name is not a number, it returns
// 0.
func decimals(classes []string) (n int) {
	for _, c := range classes {
		v, err := strconv.ParseFloat(c, 64)
		if err != nil {
			return 0
		}
		if v != math.Trunc(v) {
			n++
		}
	}
	return n
}

// combinations returns the number of class names that seem to combine several labels, such as "a,b" or "a|b", and an
// example. Each piece of such a name must also be a class name or a piece of another name. If less than a tenth of the
// names qualify, combinations returns 0, because a few names with a comma are usual.
func combinations(classes []string) (example string, n int) {
	for _, separator := range []string{",", "|", ";"} {
		uses := map[string]int{} // number of class names that have this piece
		split := func(class string) []string {
			pieces := strings.Split(class, separator)
			for i, piece := range pieces {
				pieces[i] = strings.TrimSpace(piece)
			}
			return pieces
		}
		for _, class := range classes {
			for _, piece := range split(class) {
				uses[piece]++
			}
		}
		found := slices.DeleteFunc(slices.Clone(classes), func(class string) bool {
			pieces := split(class)
			return len(pieces) < 2 || slices.ContainsFunc(pieces, func(piece string) bool {
				return piece == "" || uses[piece] < 2
			})
		})
		if len(found) > n && 10*len(found) >= len(classes) {
			example, n = found[0], len(found)
		}
	}
	return example, n
}
