package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/graph"
)

// activations are the functions between the two projections of a feed-forward layer, by their names in the library
// transformers.
var activations = map[string]graph.UnaryFunc{"gelu": graph.GELU, "gelu_new": graph.GELUTanh, "relu": graph.ReLU}

// Activations returns the names of all activation functions.
func Activations() []string { return slices.Sorted(maps.Keys(activations)) }

// Activation returns the activation function with the given name, which must be one of Activations.
func Activation(name string) graph.UnaryFunc {
	f, ok := activations[name]
	if !ok {
		panic(&graph.BuildError{
			Node: "activation", Err: fmt.Errorf("got %q, want %s", name, strings.Join(Activations(), ", "))})
	}
	return f
}
