// Package features turns the state of a cluster into numbers between 0 and 1, for policy dqn and for printing.
//
//	x, err := features.New(features.Options{Jobs: 8, GPUs: 16})
//	err = x.Reset(cluster, workload, speeds)
//	x.Fill(values, mask, state)            // values[i] is fact x.Names()[i]
//
// # Facts
//
// A [Fact] is a number with a unit, such as the memory of a GPU in bytes. facts.go lists all facts. A feature is a fact
// of one GPU, one job or the cluster, normalised to 0…1. The vector lists the features of the cluster, then those of
// each GPU, then those of the first jobs of the queue:
//
//	cluster.queue ... gpu[0].up gpu[0].occupancy ... gpu[15].busy_for job[0].waited ... job[7].running_time
//
// GPUs are in the order of machines, and within a machine in the order of the cluster. The vector has Options.GPUs
// slots for GPUs and Options.Jobs slots for jobs. The facts of an empty slot are unknown (mask 0).
//
// # Normalisation
//
// A [Ranges] contains a lowest value, a highest value and a scale for each fact. The lowest value becomes 0, and the
// highest becomes 1. A value outside of the range becomes 0 or 1. On a logarithmic scale, equal ratios have equal
// distances. [DefaultRanges] fits current clusters. A [Learner] learns ranges from workloads and states: the minimum
// and the maximum, or two quantiles, which single extreme values do not change. A file stores the ranges
// ([WriteRanges], [ReadRanges]). With this file, a trained network gets the same numbers for the same state later.
//
// # Unknown facts
//
// An unknown fact (NaN) has mask 0 and value 0. It is not replaced by a guess. All other facts have mask 1.
package features
