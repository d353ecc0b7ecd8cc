// Package stat computes means, medians, samples and an exponential function. The results are bit-equal on all
// processors of one architecture.
package stat
