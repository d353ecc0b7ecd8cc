// Package run runs a training process from its configuration to its result.
//
// [Train] is a run of one rank, one rank of several, or their supervisor.
package run
