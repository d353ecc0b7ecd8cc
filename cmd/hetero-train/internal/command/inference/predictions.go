package inference

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// predictFlags are the flags of command predict.
type predictFlags struct {
	savedFlags
	top   int
	vocab string // path of a WordPiece vocabulary
}

// guess is a class and its probability.
type guess struct {
	Class       string  `json:"class"`
	Label       int     `json:"label"`
	Probability float64 `json:"probability"`
}

// best returns the n most probable labels, without names. Labels of equal probability are in ascending order.
func best(probabilities []float64, n int) []guess {
	labels := make([]int, len(probabilities))
	for i := range labels {
		labels[i] = i
	}
	slices.SortStableFunc(labels, func(a, b int) int { return cmp.Compare(probabilities[b], probabilities[a]) })
	top := make([]guess, min(n, len(labels)))
	for i := range top {
		top[i] = guess{Label: labels[i], Probability: probabilities[labels[i]]}
	}
	return top
}

// named sets the class names of guesses.
func (m *savedModel) named(top []guess) []guess {
	for i := range top {
		top[i].Class = m.class(top[i].Label)
	}
	return top
}

// ranked formats guesses. The function of returns the name and the probability of a guess.
func ranked[G any](top []G, of func(G) (string, float64)) string {
	var texts []string
	for _, g := range top {
		name, probability := of(g)
		texts = append(texts, fmt.Sprintf("%s %.2f %%", name, 100*probability))
	}
	return strings.Join(texts, ", ")
}

// rankedClasses formats classes, for example as "cat 97.20 %, dog 2.10 %".
func rankedClasses(top []guess) string {
	return ranked(top, func(g guess) (string, float64) { return show.Foreign(g.Class), g.Probability })
}

// notAFile returns the error for an argument that is not a regular file, such as a pipe.
func notAFile(name string, mode fs.FileMode) error {
	return exit.Usagef("predict: %s: got %s, want a regular file, or - for standard input", name, regular.Kind(mode))
}
