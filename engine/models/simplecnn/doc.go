// Package simplecnn is a small convolutional network for small images: the quick test of an installation.
package simplecnn
