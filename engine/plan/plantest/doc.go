// Package plantest compares the gradients of ops and layers with finite differences. It is for tests of this module and
// of other modules.
//
//	err := plantest.Gradients(func(g *graph.Graph) *graph.Value {
//		x := g.Param("x", graph.Uniform(1), 2, 3)
//		return g.Apply("y", Swish{}, x)[0]
//	})
//
// The error names the parameter and the element, and shows both gradients.
package plantest
