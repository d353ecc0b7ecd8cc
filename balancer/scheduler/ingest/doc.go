// Package ingest reads clusters, jobs and speeds for package scheduler. It reads from io.Reader only; commands open the
// files.
//
//	d, err := ingest.Read(ingest.Source{Name: "cluster.toml", Format: ingest.TOML, Reader: f})
//	for _, m := range d.Missing() {}            // figures that the source lacks
//	d.Fill(ingest.Unlimited())                  // figures that the user gives for them
//	err = d.Check()                             // everything that prevents a simulation
//	result, err := simulate.Run(policy, &d.Cluster, &d.Workload, d.Speeds, simulate.Options{})
//
// # Tables
//
// A source consists of rows of tables: gpu_types, machines, gpus, kinds, jobs, speeds, pairs, curves. [Columns] lists the
// columns of a table with their units and limits, and docs/scheduling.md describes them. Three formats have the same
// tables and columns:
//
//	TOML        a row is a table of an array, such as [[jobs]]
//	CSV         one table in each source; the first line has the names of columns; an empty field is missing
//	JSON lines  an object in each line, with a key "table"; null is missing
//
// A number without a unit is in the base unit: bytes, bytes/s, FLOP/s, s, degrees Celsius, fractions, steps/s. A text such
// as "16 GiB" or "10 Gbit/s" is a number with a unit ([Quantity]).
//
// # Other sources
//
//	ReadGavel, GavelTrace   Gavel's measured speeds, and its traces of jobs
//	ReadAlibaba             iteration times of the workers of a job: how much equal workers of a busy cluster differ
//	Profile                 the two files of `hetero-train profile`
//	Live                    GPUs that a command found, with their telemetry
//
// # Missing figures
//
// A figure that no source states is NaN, and [Data.Missing] lists it. No reader puts a guess in its place. The simulator
// cannot run without demands, priorities and the costs of checkpoints, so the user gives them ([Data.Fill]).
//
// # Errors
//
// All faults of all sources are reported at once, as an [*Error]: each has the file, the line, what was found and what is
// valid. A source that was cut short and jobs that are not in the order of arrival are faults. [Data.Check] names each job
// that no GPUs of the cluster can hold, with its line.
package ingest
