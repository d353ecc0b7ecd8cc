// Package images implements the classification of images of one size. The loss is the softmax cross-entropy with
// label smoothing. A mixed sample has two labels.
package images
