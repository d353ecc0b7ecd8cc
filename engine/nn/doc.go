// Package nn provides the layers of models.
//
// A [Net] contains the properties that all layers have in common: the graph, training or evaluation, the compute type,
// and the mode of batch normalisation. Layers are methods of Net. A layer declares its parameters and appends its nodes
// to the graph. Parameters have the names that checkpoints use, such as torchvision's "layer1.0.conv1.weight".
//
//	net := nn.Net{Graph: g, Training: true, Compute: tensor.BF16}
//	x = net.Conv2D("conv1", x, nn.Conv{Out: 64, Kernel: 7, Stride: 2, Padding: 3})
//	x = net.BatchNorm("bn1", x, nn.Norm{ReLU: true})
//
// With several ranks, BatchNorm computes its statistics over one of the following sets of samples:
//
//   - the rank's own samples (the default): results depend on the shares
//   - groups of fixed size (GhostGroup): results do not depend on the shares, if these are multiples of the group size
//   - the samples of all ranks (Sync): results do not depend on the shares, but the ranks exchange two vectors per
//     layer in each pass
//
// [Freeze] selects parameters that are not trained, by name or by layer; graph.Graph.Freeze uses it. Each call of
// Net.NextLayer starts the next layer.
//
// Errors are those of package graph. If shapes do not match, building the graph fails with a graph.BuildError.
package nn
