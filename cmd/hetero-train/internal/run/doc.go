// Package run executes a training process, from the configuration to the result.
//
// [Train] runs this process as a single rank, as one of several ranks, or as the supervisor of the ranks.
package run
