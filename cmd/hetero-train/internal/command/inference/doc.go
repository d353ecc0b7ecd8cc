// Package inference contains the commands that run a trained model: eval, predict and generate.
package inference
