package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/spelling"
)

// Fault is one invalid setting, or one syntax error, of a configuration.
type Fault struct {
	Origin  string // name of the file, or the flag: "--set train.steps", "--epochs"; "" for a default
	Line    int    // line in the file, from 1; 0 if there is none
	Key     string // full dotted key, such as data.batch_size; "" if the fault does not concern a key
	Message string // description of the fault
	Got     string // value found; "" if the value adds no information
	Want    string // expected values; "" if Message contains them
	Foreign bool   // the key belongs to a model, data set or optimizer that is not selected

	rank int // position among the overrides, from 1; 0 for the file
}

// String returns the fault on one line: "FILE: line N: key: message (got X, want Y)".
func (f Fault) String() string {
	var b strings.Builder
	if f.Origin != "" {
		b.WriteString(f.Origin)
		if f.Line > 0 {
			fmt.Fprintf(&b, ": line %d", f.Line)
		}
		b.WriteString(": ")
	}
	if f.Key != "" && !strings.HasSuffix(f.Origin, " "+f.Key) {
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

// Error is the list of all faults of a configuration.
type Error struct {
	Faults []Fault // at most maxFaults faults, in the order of the file, then of the overrides
	More   int     // number of faults that Faults omits
}

// maxFaults limits the list of faults, because a file that is not a configuration can have thousands of faults.
const maxFaults = 100

// Error returns the faults, one per line.
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

// nearest returns the candidate that the user probably meant by text: the one with the smallest edit distance. It also
// finds keys if the table is wrong, or if the last part is incomplete. Among equal candidates, it returns the shortest,
// then the first. It returns "" if there are no candidates.
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

// leastPrefix is the minimum number of letters of an incomplete name for which nearest finds a key.
const leastPrefix = 4

func leafOf(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// Closest returns the candidate that the user probably meant by text. It returns "" if no candidate is similar, that
// is, if more than a third of the last part would differ.
func Closest(text string, candidates []string) string {
	best := nearest(text, candidates)
	a, b := strings.ToLower(leafOf(text)), strings.ToLower(leafOf(best))
	if len(a) >= leastPrefix && strings.HasPrefix(b, a) || 3*editDistance(a, b) <= max(len(a), len(b)) ||
		// A distance of 2 includes two exchanged letters.
		editDistance(strings.ToLower(text), strings.ToLower(best)) <= 2 {
		return best
	}
	return ""
}

// Nearest returns up to n candidates that the user may have meant by text, in the order of their distance.
func Nearest(text string, candidates []string, n int) []string {
	var all []string
	for rest := slices.Clone(candidates); len(all) < n && len(rest) > 0; {
		next := nearest(text, rest)
		all = append(all, next)
		rest = slices.DeleteFunc(rest, func(c string) bool { return c == next })
	}
	return all
}

// longestName is the number of bytes of a name that editDistance compares. All keys are shorter.
const longestName = 64

func editDistance(a, b string) int {
	return spelling.Distance(a[:min(len(a), longestName)], b[:min(len(b), longestName)])
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

// shorten limits the length of a text in a message.
func shorten(text string) string {
	const most = 60
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(slices.Concat(runes[:most], []rune("…")))
}
