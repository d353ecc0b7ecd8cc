// Package graph describes a computation: values, the nodes that compute them, parameters, and gradients.
//
// A [Graph] is built once for a model and a batch size. The forward pass comes first; then [Graph.Differentiate]
// appends the backward pass. A graph holds no memory and does not depend on a device. Package plan compiles a graph for
// one device.
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
// If shapes do not match, the method of Graph panics with a [BuildError], which names the node. [Build] recovers from
// this panic and returns the BuildError as an error. A model therefore needs no error checks, and a bad setting (such
// as an image too small for the network) still gives an error message.
//
// # Gradients
//
// Differentiate uses reverse mode. It visits nodes from last to first. The gradient rule of each op (gradients.go)
// appends the nodes that compute the gradients of the op's inputs. If several nodes read a value, its gradient has one
// contribution from each node. Rules of fused ops accept up to two contributions; other rules get the sum of the
// contributions. Only values that depend on a parameter get a gradient.
//
// Gradients of parameters are f32 (f64 in f64 graphs), regardless of the type of the activations. A gradient has the
// layout of its value ([Value.Follows]).
//
// # Several ranks
//
// Ranks run the same graph on different numbers of samples. Exchanges of values between ranks within a pass are nodes
// with the ops [AllGather] and [AllReduce]. A layer that computes statistics over all ranks' samples appends such nodes
// ([BatchNorm].Sync). Every rank runs the exchanges in the order of the graph, regardless of its share. Gradients of
// parameters are sums over the rank's own samples. After the backward pass has written them, an all-reduce sums them
// over the ranks.
package graph
