// Package nn has the layers that models are written with.
//
// A [Net] carries what all layers of one graph share: the graph, whether it trains, the compute type,
// how batches are normalised. Layers are its methods; they declare their parameters under the names that
// checkpoints use (torchvision's: "layer1.0.conv1.weight") and append their nodes.
//
//	net := nn.Net{Graph: g, Training: true, Compute: tensor.BF16}
//	x = net.Conv2D("conv1", x, nn.Conv{Out: 64, Kernel: 7, Stride: 2, Padding: 3})
//	x = net.BatchNorm("bn1", x, nn.Norm{ReLU: true})
//
// Where several ranks share a batch, BatchNorm takes its statistics over the rank's own samples (the result depends on the split),
// over groups of a fixed size (GhostGroup; it does not, if shares are multiples of the group), or over the samples of all ranks
// (Sync; it does not, and the ranks exchange two vectors a layer in each pass).
//
// [Freeze] says which parameters are not trained, by name or by layer, as graph.Graph.Freeze wants it; Net.NextLayer counts the layers.
//
// Errors are those of package graph: a shape that does not fit ends the building of the graph.
package nn
