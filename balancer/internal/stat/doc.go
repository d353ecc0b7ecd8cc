// Package stat has statistics that give the same bits on every processor of an architecture: means, medians and an
// exponential function.
package stat
