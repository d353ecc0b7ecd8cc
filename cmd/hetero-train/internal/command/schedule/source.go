package schedule

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// source is where cluster, jobs and speeds come from: the flags that simulate, compare and train share.
type source struct {
	command  string // for errors
	arrivals workload.Arrivals
	setup    *workload.Setup
}

func (s *source) add(flags *pflag.FlagSet) {
	flags.IntVar(&s.arrivals.Jobs, "jobs", 200, "number of jobs to generate")
	flags.Float64Var(&s.arrivals.Load, "load", 0.8, "work that arrives, as a fraction of what the cluster can compute; above 1 the queue grows")
	flags.Float64Var(&s.arrivals.Burst, "burst", 1, "mean number of jobs that arrive at the same time; 1: one by one")
	flags.Float64Var(&s.arrivals.Surge, "surge", 1, "factor by which machine-learning jobs arrive more often in the middle third of the run; 1: no surge")
}

// open prepares the setup.
func (s *source) open() error {
	s.setup = workload.Default()
	if s.arrivals.Surge != 1 {
		s.arrivals.SurgeFrom, s.arrivals.SurgeTo = 1.0/3, 2.0/3
	}
	_, err := s.jobs(0)
	return err
}

// jobs are the jobs of a seed.
func (s *source) jobs(seed uint64) (*scheduler.Workload, error) {
	arrivals := s.arrivals
	arrivals.Seed = seed
	w, err := workload.Generate(s.setup, arrivals)
	if err != nil {
		return nil, exit.Usagef("%s: %w", s.command, err)
	}
	return w, nil
}

// policy makes a policy by its name.
func (s *source) policy(name string, o scheduler.Options) (scheduler.Policy, error) {
	p, err := scheduler.New(name, o)
	if err != nil {
		return nil, exit.Usagef("%s: --policy: %w", s.command, err)
	}
	return p, nil
}

// policyUsage is the help text of flag --policy.
func policyUsage(before string) string {
	return fmt.Sprintf("%s: `%s`", before, strings.Join(scheduler.Names(), "|"))
}
