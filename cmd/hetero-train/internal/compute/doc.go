// Package compute connects a rank with its device. It opens the device, chooses the element type of the activations,
// and measures the rank.
//
// A [Rank] contains the session of its process. If its Team is nil, the run has one rank. [OnRanks] runs a function on
// every rank that a command line starts.
package compute
