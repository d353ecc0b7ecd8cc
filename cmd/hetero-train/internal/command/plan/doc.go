// Package plan estimates the compute and memory of a training without training.
package plan
