// Package pixels changes colours and geometry of 8-bit images in place, bit for bit as Pillow does (and torchvision on
// top of it), so that augmentation means here what it means there. It draws no random numbers.
//
// All arithmetic is in integers, or in single IEEE operations in a written order, so that every machine gets the same
// bytes. testdata holds what Pillow made of a few images, recorded by scripts/augment_goldens.py.
package pixels
