package ingest

import (
	"fmt"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// Data is the content of sources. Numbers that no source states are NaN, even numbers that the simulator needs; see
// [Data.Missing] and [Data.Fill].
type Data struct {
	Cluster  scheduler.Cluster
	Workload scheduler.Workload
	Speeds   *workload.Table // nil if the sources have no speeds
	JobPlace []Place         // by job: its line; nil if Read did not read the jobs
}

// Place is a line of a source.
type Place struct {
	Source string
	Line   int
}

// String returns "FILE:LINE".
func (p Place) String() string {
	if p.Line == 0 {
		return p.Source
	}
	return fmt.Sprintf("%s:%d", p.Source, p.Line)
}
