// Package simplecnn implements a small convolutional network for small images, for quick tests of an installation.
package simplecnn
