// Package pixels changes the colours and the geometry of 8-bit images in place. Its results equal those of Pillow (and
// thus torchvision) bit for bit. It draws no random numbers.
//
// The arithmetic uses integers, or separate IEEE operations in a fixed order, so every machine gets the same bytes.
// testdata contains Pillow's results for a few images, recorded by scripts/augment_goldens.py.
package pixels
