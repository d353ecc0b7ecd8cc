// Package tensor describes tensors: shape, element type, strides, byte counts. It does not own memory or compute with
// elements; devices do both.
//
// Dimensions are always in the logical order of the op that uses the tensor, regardless of the layout in memory: images
// (N, C, H, W), convolution weights (O, I/groups, KH, KW), matrices (rows, columns), linear weights (out, in).
package tensor
