// Package compare compares scheduling policies that ran on the same workloads.
//
// A comparison has one run of each policy for each seed. A seed gives the same jobs to all policies, so the comparison
// is paired. Each figure of a policy is divided by the figure of the baseline with the same seed. This removes the
// variation between workloads from the comparison.
//
// # Figures
//
//	completion    mean time from the arrival of a job to its end, seconds; less is better
//	throughput    finished jobs per hour, from the first arrival to the last end; more is better
//	utilization   fraction of the available GPU time in which the GPUs had a job; more is better
//
// Means hide single jobs that wait very long. A comparison therefore also contains percentiles of the completion time
// and, for each number of GPUs, the longest wait of its jobs ([Gang]).
//
// The throughput and the utilization of a whole run depend on its length: the cluster fills at the beginning and
// empties at the end. [Steady] contains these figures for the steady window, from the arrival of the first job after
// the first fifth until the last arrival. It also has the terms of Little's law, L = lambda * W. In a steady state, L
// divided by lambda * W is close to 1. It is below 1 while the queue grows, because jobs of the window still wait at
// its end.
//
// [Figures.Judge] adds fairness, cost and the bounded slowdown. The slowdown of a job is its time from arrival to end,
// relative to its running time alone on the fastest GPUs.
//
// A ratio is above 1 if the policy is better than the baseline. V is the geometric mean of the three ratios, and
// [scheduler.HyperScore] is a function of V. HyperScore is above 198 for all V above 3. The bounded slowdown needs no
// baseline and has no largest value, so it also compares policies that are much better than the baseline.
//
// # Statistics
//
//   - Intervals of means: Student's t over seeds. Ratios are averaged and tested as logarithms.
//   - Two paired tests against each baseline: Student's t, and the exact signed-rank test of Wilcoxon (Individual
//     Comparisons by Ranking Methods, 1945), which assumes no normal distribution. Both are two-sided.
//   - Several policies are tested, so p values are corrected for multiple tests by Holm's method (A Simple Sequentially
//     Rejective Multiple Test Procedure, 1979). The tests of one figure, of all policies against all baselines, are
//     corrected together.
//   - Regression: least squares of utilization on completion time over all runs of all policies. Its test treats all
//     runs as independent. Runs of several policies with the same seed are not independent, so the p value is usually
//     too small.
//
// With fewer than two seeds, intervals and p values are NaN.
package compare
