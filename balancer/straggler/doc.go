// Package straggler finds slow ranks and the causes of their slowness.
//
// [MedianRule] compares ranks with each other. A [Detector] distinguishes a slow type of device from a sick device,
// which has become slow because of a problem. It uses each rank's earlier step times and the telemetry of its device.
// [References] keeps the curve of each rank from the time when it was healthy. [Waiting] sums how long ranks wait for
// each other.
//
// Each file uses only files below it in this list:
//
//	settled.go      the verdicts that messages report
//	references.go   curves of healthy ranks
//	noise.go        causes of noise
//	detector.go     the detector
//	signs.go        the healthy baseline of a rank, and changes that explain a slowdown
//	observation.go  measurements of a rank in a window
//	verdict.go      kinds, causes and verdicts
//	history.go      usual value and noise of a quantity of a rank
//	waiting.go      waits of ranks for each other
//	median.go       comparison of ranks with their median
package straggler
