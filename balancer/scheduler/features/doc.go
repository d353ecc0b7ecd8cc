// Package features turns the state of a cluster into numbers between 0 and 1, for package dqn and for printing.
//
//	x, err := features.New(features.Options{Jobs: 8, GPUs: 16})
//	err = x.Reset(cluster, workload, speeds)
//	x.Fill(values, mask, state)            // values[i] is fact x.Names()[i]
//
// # Facts
//
// A [Fact] is a figure with a unit, such as the memory of a GPU in bytes. facts.go lists all of them. A vector of features
// has the facts of the cluster, then the facts of each GPU, then the facts of the first jobs of the queue:
//
//	cluster.queue ... gpu[0].up gpu[0].occupancy ... gpu[15].busy_for job[0].waited ... job[7].running_time
//
// GPUs are in the order of machines, and within a machine in the order of the cluster. Places beyond the cluster or the
// queue are missing.
//
// # Normalisation
//
// A [Ranges] has a lowest and a highest value of each fact, and a scale. The lowest value becomes 0, the highest 1, and
// values outside become 0 or 1. On a logarithmic scale, equal ratios have equal distances. [DefaultRanges] fits clusters
// of today. A [Learner] learns ranges from workloads and states: the minimum and the maximum, or two quantiles, which
// single extreme values do not change. A file keeps the ranges ([WriteRanges], [ReadRanges]), so that a trained network
// later gets the same numbers for the same state.
//
// # Missing figures
//
// A figure that is not known (NaN) has mask 0 and value 0. Nothing is put in its place. All other facts have mask 1.
package features
