// Package straggler finds slow ranks and the causes.
//
// [MedianRule] compares ranks with each other. A [Detector] distinguishes a slow type of device from a sick device, by
// the past of each rank and by the telemetry of its device. [References] keeps the curve of each rank from the time
// when it was healthy. [Waiting] sums how long ranks wait for each other.
package straggler
