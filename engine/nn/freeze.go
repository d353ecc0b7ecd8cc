package nn

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/graph"
)

// Freeze selects parameters that are not trained. The zero value selects none.
type Freeze struct {
	// Patterns match names of parameters and of modules that contain parameters. "conv1" and "layer1" select all
	// parameters of these modules. "layer1.*.bn?" selects the normalisations of layer1, and "*.bias" selects all
	// biases. "*", "?" and "[ab]" work as in path.Match; a dot is not a separator.
	Patterns []string
	// Layers is the number of layers to freeze, counted from the start of the model; see Graph.NextLayer.
	Layers int
}

// Holds reports whether Freeze selects the parameter with this name in the given layer.
func (f Freeze) Holds(name string, layer int) bool {
	return layer < f.Layers || slices.ContainsFunc(f.Patterns, func(p string) bool { return within(p, name) })
}

// within reports whether pattern matches the name of a parameter or of a module that contains it.
func within(pattern, name string) bool {
	for at := len(name); at > 0; at = strings.LastIndexByte(name[:at], '.') {
		if matched, _ := path.Match(pattern, name[:at]); matched {
			return true
		}
	}
	return false
}

// FreezeError reports patterns or layers that cannot be frozen.
type FreezeError struct {
	Err error
	// Unmatched is a pattern without a match, probably a wrong name. Names are the names of the model's parameters
	// and modules, in the order of the model.
	Unmatched string
	Names     []string
}

func (e *FreezeError) Error() string { return "freeze: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *FreezeError) Unwrap() error { return e.Err }

// Check returns a *FreezeError for invalid patterns, for patterns without a match, and if all parameters are frozen.
func (f Freeze) Check(g *graph.Graph) error {
	for _, p := range f.Patterns {
		if _, err := path.Match(p, ""); err != nil {
			return &FreezeError{Err: fmt.Errorf("pattern %q: %w", p, err)}
		}
		if !slices.ContainsFunc(g.Params, func(v *graph.Value) bool { return within(p, v.Name) }) {
			return &FreezeError{Err: fmt.Errorf("pattern %q matches no parameter of the model", p), Unmatched: p,
				Names: modules(g)}
		}
	}
	layers := 0
	for _, v := range g.Params {
		layers = max(layers, v.Layer+1)
	}
	if f.Layers >= layers {
		return &FreezeError{Err: fmt.Errorf("got %d layers, want fewer than the %d of the model", f.Layers, layers)}
	}
	if !slices.ContainsFunc(g.Params, func(v *graph.Value) bool { return !v.Frozen }) {
		return &FreezeError{Err: errors.New("every parameter is frozen, so no parameter can be trained")}
	}
	return nil
}

// modules returns the names of parameters and of the modules that contain them.
func modules(g *graph.Graph) []string {
	var names []string
	for _, v := range g.Params {
		for at := range v.Name + "." {
			if at == len(v.Name) || v.Name[at] == '.' {
				if name := v.Name[:at]; !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}
