// Package images implements the classification of images of one size. The loss is the softmax cross-entropy with label
// smoothing. A sample that mixup or cutmix has mixed has two labels.
package images
