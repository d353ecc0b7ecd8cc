// Package run runs a training process from its configuration to its result.
//
// [Train] runs a single rank, one of several ranks, or their supervisor.
package run
