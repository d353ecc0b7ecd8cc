// Package tensor describes tensors: shape, element type, strides, byte counts.
// It owns no memory and computes nothing on elements; devices do that.
//
// Dimensions are always written in the logical order of the op that uses them,
// whatever the memory looks like: images (N, C, H, W), convolution weights
// (O, I/groups, KH, KW), matrices (rows, columns), linear weights (out, in).
package tensor
