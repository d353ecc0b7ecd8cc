// Package schedule is the command family `hetero-train schedule`. It simulates, trains and compares policies that
// decide which job runs on which GPUs. It also proposes placements for a real cluster.
package schedule
