// Package stat computes means, medians and an exponential function. The results are bit-equal on all processors of one
// architecture.
package stat
