package main

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/plan/plantest"
)

func TestGradientEqualsFiniteDifferences(t *testing.T) {
	err := plantest.Gradients(func(g *graph.Graph) *graph.Value {
		return g.Apply("y", Swish{}, g.Param("x", graph.Uniform(4), 3, 7))[0]
	})
	if err != nil {
		t.Error(err)
	}
}
