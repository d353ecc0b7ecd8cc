// Package tensor describes tensors: shape, element type, strides, byte counts. It owns no memory and computes nothing
// on elements. Devices hold the memory and compute.
//
// Dimensions are always in the logical order of the op that uses the tensor, regardless of the layout in memory: images
// (N, C, H, W), convolution weights (O, I/groups, KH, KW), matrices (rows, columns), linear weights (out, in).
package tensor
