// Package pixels changes colours and geometry of 8-bit images in place. Its results equal those of Pillow (and thus
// torchvision) bit for bit. It draws no random numbers.
//
// All arithmetic is in integers, or in single IEEE operations in a written order, so that every machine gets the same
// bytes. testdata contains results of Pillow for a few images, recorded by scripts/augment_goldens.py.
package pixels
