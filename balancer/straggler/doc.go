// Package straggler finds slow ranks and the causes of their slowness.
//
// [MedianRule] compares ranks with each other. A [Detector] distinguishes a slow type of device from a sick device,
// which has become slow because of a problem. It uses each rank's earlier step times and the telemetry of its device.
// [References] keeps the curve of each rank from the time when it was healthy. [Waiting] sums how long ranks wait for
// each other.
package straggler
