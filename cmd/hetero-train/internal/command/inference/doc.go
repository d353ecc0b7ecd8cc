// Package inference evaluates checkpoints and classifies images with them.
package inference
