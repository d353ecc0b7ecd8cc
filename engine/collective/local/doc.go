// Package local connects ranks that are goroutines of one process: for tests, and for the null device at any number of
// ranks. It is plain Go and shares nothing beyond the process.
//
// Operations are done by the rank that enters last, while the others sleep. Buffers with host memory are reduced; where
// no rank's buffer has any (the null device) only time passes.
//
// # Time
//
// On devices that model time an operation starts when the last rank's After event is complete on its clock, and not before the
// operation before it ended. It takes what [Model] says, and Done is completed at that time: so the overlap of communication with
// computation comes out right with any number of ranks, and needs no clock of the machine.
package local
