// Package pixels changes the colours and the geometry of 8-bit images in place. Its results are bit-equal to those of
// Pillow, and therefore of torchvision. It uses no random numbers.
//
// The arithmetic uses integers, or single IEEE operations in a fixed order. The results are therefore bit-equal on all
// machines. testdata contains Pillow's results for a few images, recorded by scripts/augment_goldens.py.
package pixels
