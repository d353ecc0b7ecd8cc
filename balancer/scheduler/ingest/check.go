package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Unplaceable returns the jobs that no GPUs of the cluster can hold, and the reason for the first of them. Gavel's
// traces contain such jobs: Gavel did not measure 16 or more GPUs, and measured some kinds on one GPU only.
func (d *Data) Unplaceable() (jobs []int, first error) {
	for job := range d.Workload.Jobs {
		if err := scheduler.Holds(&d.Cluster, &d.Workload, d.Speeds, job); err != nil {
			jobs = append(jobs, job)
			first = cmp.Or(first, err)
		}
	}
	return jobs, first
}

// Check reports everything that prevents a simulation: missing numbers that the simulator needs, and faults of the
// cluster and of the workload. A job that no GPUs of the cluster can hold is an [*scheduler.UnplaceableError] with its
// line. A missing requested resource does not limit the GPUs on which a job fits.
func (d *Data) Check() error {
	var faults []error
	for _, m := range d.Missing() {
		if m.Needed {
			faults = append(faults,
				fmt.Errorf("%v: add the figure to the source, or give a default: --default %s.%s=NUMBER", m, m.Table,
					m.Column))
		}
	}
	return errors.Join(append(faults, d.CheckStated())...)
}

// CheckStated is like [Data.Check], but does not report missing numbers.
func (d *Data) CheckStated() error {
	if slices.ContainsFunc(d.Missing(), func(m Missing) bool { return m.Needed }) {
		c := *d
		c.Cluster.Types, c.Cluster.Machines = slices.Clone(d.Cluster.Types), slices.Clone(d.Cluster.Machines)
		c.Workload.Kinds, c.Workload.Jobs = slices.Clone(d.Workload.Kinds), slices.Clone(d.Workload.Jobs)
		c.Fill(append(Unlimited(), Default{GPUTypes, "memory", math.MaxFloat64}, Default{Machines, "cpus", maxCount},
			Default{Machines, "memory", math.MaxFloat64}))
		d = &c
	}
	if err := errors.Join(d.Cluster.Check(), d.Workload.Check()); err != nil {
		return err
	}
	var faults []error
	if len(d.Workload.Jobs) == 0 {
		faults = append(faults, errors.New("jobs: got none, want at least one"))
	}
	if d.Speeds == nil {
		return errors.Join(
			append(faults,
				errors.New(
					"speeds: got none, want table speeds with the speeds of all kinds of jobs on the types of GPUs"))...)
	}
	if len(d.Speeds.Kinds) != len(d.Workload.Kinds) {
		return fmt.Errorf("speeds: got %d kinds, want the %d kinds of the jobs", len(d.Speeds.Kinds),
			len(d.Workload.Kinds))
	}
	for kind, k := range d.Speeds.Kinds {
		if len(k.Types) != len(d.Cluster.Types) {
			return fmt.Errorf("speeds of %s: got %d types of GPUs, want the %d types of the cluster: the speeds belong to another cluster",
				quote(d.Workload.Kinds[kind].Name), len(k.Types), len(d.Cluster.Types))
		}
	}
	more := 0
	for job := range d.Workload.Jobs {
		err := scheduler.Holds(&d.Cluster, &d.Workload, d.Speeds, job)
		switch {
		case err == nil:
		case len(faults) == maxFaults:
			more++
		case job < len(d.JobPlace):
			faults = append(faults, fmt.Errorf("%s: %w", d.JobPlace[job], err))
		default:
			faults = append(faults, err)
		}
	}
	if more > 0 {
		faults = append(faults, fmt.Errorf("and %d more jobs", more))
	}
	return errors.Join(faults...)
}
