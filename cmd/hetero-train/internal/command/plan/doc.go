// Package plan estimates the compute and the memory that a run needs, without training.
package plan
