// Package graph says what to compute: values, the nodes that make them, parameters, and the gradients.
//
// A [Graph] is built once for a model and a batch size, forward first, then [Graph.Differentiate]
// appends the backward pass. It holds no memory and knows no device; package plan turns it into
// launches.
//
//	g, err := graph.Build(func(g *graph.Graph) {
//		x := g.Input("x", tensor.F32, 8, 3, 32, 32)
//		w := g.Param("conv.weight", graph.Normal(0.1), 16, 3, 3, 3)
//		y := g.Conv2D("conv", x, w, nil, graph.Window{…}, 1)
//		…
//		g.Output("loss", loss)
//		g.Differentiate(loss, scale)
//	})
//
// # Errors
//
// A shape that does not fit makes the method panic with a [BuildError], which names the node; [Build]
// returns it as an error. So a model is written without error checks and a bad setting (an image too
// small for the network) still ends in a message.
//
// # Gradients
//
// Reverse mode: nodes are visited from last to first, and each op's rule (gradients.go) appends the
// nodes that compute the gradients of its inputs. A value that several nodes read collects several
// contributions; rules of fused ops take two at once, others get their sum. Only values that depend on
// a parameter get a gradient. Gradients of parameters are f32 (f64 in f64 graphs) whatever the
// activations are, and lie, like a value's gradient everywhere, in the layout of the value itself
// ([Value.Follows]).
//
// # Several ranks
//
// Ranks run the same graph on unlike numbers of samples. What they must exchange within a pass are nodes: [AllGather] and
// [AllReduce], which layers that take statistics over all ranks' samples append ([BatchNorm].Sync). Their order is the graph's,
// so every rank meets the same exchanges in the same order, whatever its share. Gradients of parameters are those of the rank's own
// samples; they are summed over ranks after the backward pass has written them.
package graph
