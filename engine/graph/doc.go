// Package graph describes a computation: values, the nodes that compute them, parameters, and gradients.
//
// A [Graph] is built once for a model and a batch size. The forward pass comes first; then [Graph.Differentiate]
// appends the backward pass. A graph holds no memory and knows no device. Package plan compiles it to launches.
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
// If shapes do not match, the method panics with a [BuildError], which names the node, and [Build] returns it as an
// error. A model therefore needs no error checks, and a bad setting (an image too small for the network) still gives an
// error message.
//
// # Gradients
//
// Differentiate uses reverse mode. It visits nodes from last to first, and each op's rule (gradients.go) appends the
// nodes that compute the gradients of its inputs. A value that several nodes read has several contributions. Rules of
// fused ops accept two contributions; other rules get their sum. Only values that depend on a parameter get a gradient.
//
// Gradients of parameters are f32 (f64 in f64 graphs) for any type of activations. A gradient has the layout of its
// value ([Value.Follows]).
//
// # Several ranks
//
// Ranks run the same graph on different numbers of samples. Exchanges within a pass are nodes, [AllGather] and
// [AllReduce]. Layers that compute statistics over all ranks' samples append them ([BatchNorm].Sync). Their order is
// that of the graph, so every rank runs the same exchanges in the same order, regardless of its share. Gradients of
// parameters are sums over the rank's own samples; an all-reduce sums them over ranks after the backward pass has
// written them.
package graph
