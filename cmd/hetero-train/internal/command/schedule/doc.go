// Package schedule is the command family `hetero-train schedule`: it simulates, trains and compares policies that
// decide which job runs on which GPUs, and proposes placements for a real cluster.
package schedule
