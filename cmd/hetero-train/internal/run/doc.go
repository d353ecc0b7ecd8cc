// Package run executes one process of a training run, from its configuration to its result.
//
// In [Train], this process is the only rank, one of several ranks, or the supervisor of the ranks.
package run
