// Package ingest reads clusters, jobs and speeds for package scheduler. It reads from io.Reader only; commands open the
// files.
//
// # Measured speeds and traces
//
// [ReadGavel] reads the measured speeds of Gavel: steps/s for each kind of job on each type and number of GPUs, alone and
// in pairs. [GavelTrace] reads its traces of jobs.
//
// # Errors
//
// All faults of a source are reported at once, as an [*Error], each with file, line, what was found and what is valid. A
// source that was cut short is a fault. No reader panics, and none replaces a value that is missing: a number that a
// source does not state is NaN.
package ingest
