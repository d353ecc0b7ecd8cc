// Package run executes one process of a training run, from its configuration to its result.
//
// [Train] runs this process as the only rank, as one of several ranks, or as the supervisor of the ranks.
package run
