// Package pixels changes the colours and the geometry of 8-bit images in place. Its results equal those of Pillow,
// and thus of torchvision, bit for bit. It uses no random numbers.
//
// The arithmetic uses integers, or single IEEE operations in a fixed order. All machines therefore get the same
// bytes. testdata contains Pillow's results for a few images, recorded by scripts/augment_goldens.py.
package pixels
