// Package checkpoints inspects, verifies, exports and imports checkpoints and weights.
package checkpoints
