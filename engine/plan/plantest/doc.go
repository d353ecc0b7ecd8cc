// Package plantest checks ops and layers against finite differences, for tests of this module and of others.
//
//	err := plantest.Gradients(func(g *graph.Graph) *graph.Value {
//		x := g.Param("x", graph.Uniform(1), 2, 3)
//		return g.Apply("y", Swish{}, x)[0]
//	})
//
// The error names the parameter and the element, and shows both values.
package plantest
