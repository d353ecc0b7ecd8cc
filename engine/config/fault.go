package config

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is one fault of a configuration.
type Fault struct {
	Place   string // the file's name, "--set train.steps", "--epochs"; "" for a default
	Line    int    // in the file, from 1; 0 if there is none
	Key     string // full dotted key, as data.batch_size; "" if the fault concerns no key
	Message string // description of the fault
	Got     string // the value found; "" if it adds no information
	Want    string // the expected value; "" if Message contains it

	rank int // order among overrides; 0 in the file
}

// String returns the fault on one line: `FILE: line N: key: message (got X, want Y)`.
func (f Fault) String() string {
	var b strings.Builder
	if f.Place != "" {
		b.WriteString(f.Place)
		if f.Line > 0 {
			fmt.Fprintf(&b, ": line %d", f.Line)
		}
		b.WriteString(": ")
	}
	if f.Key != "" && !strings.HasSuffix(f.Place, " "+f.Key) {
		b.WriteString(f.Key + ": ")
	}
	b.WriteString(f.Message)
	switch {
	case f.Got != "" && f.Want != "":
		fmt.Fprintf(&b, " (got %s, want %s)", f.Got, f.Want)
	case f.Got != "":
		fmt.Fprintf(&b, " (got %s)", f.Got)
	case f.Want != "":
		fmt.Fprintf(&b, " (want %s)", f.Want)
	}
	return b.String()
}

// Error contains all faults of a configuration.
type Error struct {
	Faults []Fault // at most maxFaults of them, in the order of the file, then of the overrides
	More   int     // number of further faults that are not listed
}

// maxFaults limits the list: a file that is not a configuration may have thousands of faults.
const maxFaults = 100

// Error returns one fault per line.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Faults)+1)
	for _, f := range e.Faults {
		lines = append(lines, f.String())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "\n")
}

// nearest returns the candidate that the user probably meant by text: the one with the smallest edit distance. A
// correct last part in the wrong table counts as close, and so does the start of the last part. Ties go to the shortest
// candidate, then to the first. Without candidates it returns "".
func nearest(text string, candidates []string) string {
	best, bestDistance := "", 0
	text = strings.ToLower(text)
	leaf := leafOf(text)
	for _, c := range candidates {
		lower := strings.ToLower(c)
		d := 2 * editDistance(text, lower)
		if dot := strings.LastIndexByte(lower, '.'); dot >= 0 {
			d = min(d, 3+2*editDistance(leaf, lower[dot+1:]))
		}
		if len(leaf) >= leastPrefix && strings.HasPrefix(leafOf(lower), leaf) {
			d = min(d, 4)
		}
		if best == "" || d < bestDistance || d == bestDistance && len(c) < len(best) {
			best, bestDistance = c, d
		}
	}
	return best
}

// leastPrefix is the length from which the start of a name identifies the name.
const leastPrefix = 4

func leafOf(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// Closest returns the candidate that the user probably meant by text, or "" if no candidate is similar: more than a
// third of its last part would differ.
func Closest(text string, candidates []string) string {
	best := nearest(text, candidates)
	a, b := strings.ToLower(leafOf(text)), strings.ToLower(leafOf(best))
	if len(a) >= leastPrefix && strings.HasPrefix(b, a) || 3*editDistance(a, b) <= max(len(a), len(b)) ||
		editDistance(strings.ToLower(text), strings.ToLower(best)) <= 2 { // also two letters in the wrong order
		return best
	}
	return ""
}

// Nearest returns up to n candidates that the user may have meant by text, the nearest first.
func Nearest(text string, candidates []string, n int) []string {
	var all []string
	for rest := slices.Clone(candidates); len(all) < n && len(rest) > 0; {
		next := nearest(text, rest)
		all = append(all, next)
		rest = slices.DeleteFunc(rest, func(c string) bool { return c == next })
	}
	return all
}

// longestName limits the cost of editDistance: no key is longer.
const longestName = 64

// editDistance counts the insertions, deletions and replacements of bytes that transform a into b.
func editDistance(a, b string) int {
	a, b = a[:min(len(a), longestName)], b[:min(len(b), longestName)]
	row := make([]int, len(b)+1) // row[j]: distance from the part of a read so far to b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// orList joins quoted values: "a", "b" or "c".
func orList(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = quote(v)
	}
	if n := len(quoted); n > 1 {
		return strings.Join(quoted[:n-1], ", ") + " or " + quoted[n-1]
	}
	return strings.Join(quoted, "")
}

// shorten shortens a text for a message.
func shorten(text string) string {
	const most = 60
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(slices.Concat(runes[:most], []rune("…")))
}
