// Package ingest reads clusters, jobs and speeds for package scheduler. It reads only from io.Reader; commands open the
// files.
//
//	d, err := ingest.Read(ingest.Source{Name: "cluster.toml", Format: ingest.TOML, Reader: f})
//	for _, m := range d.Missing() {}            // numbers that are missing in the sources
//	d.Fill(ingest.Unlimited())                  // values for these numbers
//	err = d.Check()                             // everything that prevents a simulation
//	result, err := simulate.Run(policy, &d.Cluster, &d.Workload, d.Speeds, simulate.Options{})
//
// # Tables
//
// A source consists of rows of tables: gpu_types, machines, gpus, kinds, jobs, speeds, pairs, curves. [Columns] lists
// the columns of a table with their units and limits, and docs/scheduling.md describes them. Three formats have the
// same tables and columns:
//
//	TOML        a row is a table of an array, such as [[jobs]]
//	CSV         one table in each source; the first line has the names of the columns; an empty field is a missing figure
//	JSON lines  one object in each line, with a key "table"; null is a missing figure
//
// A number without a unit is in the base unit: bytes, bytes/s, FLOP/s, s, degrees Celsius, fractions, steps/s. A text
// such as "16 GiB" or "10 Gbit/s" is a number with a unit ([Quantity]).
//
// # Other sources
//
//	ReadGavel, GavelTrace   Gavel's measured speeds, and its traces of jobs
//	ReadAlibaba             iteration times of the workers of a job: how much equal workers of a busy cluster differ
//	Profile                 the two files of `hetero-train profile`
//	Live                    GPUs that a command found, with their telemetry
//
// # Missing numbers
//
// A number that no source states is NaN, and [Data.Missing] lists it. No reader replaces it by a guess. The simulator
// needs requested resources, priorities and the times of checkpoints. If they are missing, the user must give values
// for them ([Data.Fill]).
//
// # Errors
//
// One [*Error] reports all faults of all sources. Each fault states the file, the line, the value found and the valid
// values. An incomplete source is a fault, and so are jobs that are not in the order of arrival. [Data.Check] names
// each job that no GPUs of the cluster can hold, with its line.
package ingest
