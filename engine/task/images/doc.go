// Package images is the classification of images, of one size, into classes: softmax cross-entropy with label smoothing
// and, for mixed samples, two labels.
package images
