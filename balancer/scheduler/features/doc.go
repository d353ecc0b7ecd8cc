// Package features turns the state of a cluster into numbers between 0 and 1, for policy dqn and for printing.
//
//	x, err := features.New(features.Options{Jobs: 8, GPUs: 16})
//	err = x.Reset(cluster, workload, speeds)
//	x.Fill(values, mask, state)            // values[i] is fact x.Names()[i]
//
// # Facts
//
// A [Fact] is a figure with a unit, such as the memory of a GPU in bytes. facts.go lists all of them. A vector of
// features has the facts of the cluster, then the facts of each GPU, then the facts of the first jobs of the queue:
//
//	cluster.queue ... gpu[0].up gpu[0].occupancy ... gpu[15].busy_for job[0].waited ... job[7].running_time
//
// GPUs are in the order of machines, and within a machine in the order of the cluster. Places without a GPU or a job
// have missing facts.
//
// # Normalisation
//
// A [Ranges] has a lowest value, a highest value and a scale for each fact. The lowest value becomes 0, and the highest
// becomes 1. Values outside become 0 or 1. On a logarithmic scale, equal ratios have equal distances. [DefaultRanges]
// fits current clusters. A [Learner] learns ranges from workloads and states: the minimum and the maximum, or two
// quantiles, which single extreme values do not change. A file stores the ranges ([WriteRanges], [ReadRanges]). With
// this file, a trained network gets the same numbers for the same state later.
//
// # Missing figures
//
// An unknown figure (NaN) has mask 0 and value 0. It is not replaced by a guess. All other facts have mask 1.
package features
