package schedule

import (
	"context"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// open prepares cluster, jobs and speeds. It prints warnings with the jobs of a trace that it omits.
func (s *source) open(ctx context.Context, a *cli.App) error {
	_, err := patient(ctx, func() (struct{}, error) { return struct{}{}, s.prepare(a) })
	return err
}

// patient returns the result of do, a function that cannot be canceled but takes seconds for a million jobs. If ctx is
// canceled first, patient immediately returns the cause of ctx. The process then ends while do still runs.
func patient[T any](ctx context.Context, do func() (T, error)) (T, error) {
	var result T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = do()
	}()
	select {
	case <-done:
		return result, err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

func (s *source) prepare(a *cli.App) error {
	const most = 1_000_000 // largest number of jobs; a run with this number takes minutes
	if s.arrivals.Jobs < 1 || s.arrivals.Jobs > most {
		return exit.Usagef("%s: --jobs: got %d, want 1 to %d", s.command, s.arrivals.Jobs, most)
	}
	if s.arrivals.Burst == 0 || s.arrivals.Surge == 0 { // package workload would take 0 as "no bursts"
		return exit.Usagef("%s: --burst and --surge: got %v and %v, want numbers from 1 to 1e6", s.command,
			s.arrivals.Burst, s.arrivals.Surge)
	}
	if s.arrivals.Surge != 1 {
		s.arrivals.SurgeFrom, s.arrivals.SurgeTo = 1.0/3, 2.0/3
	}
	if err := s.read(a, "jobs", "load", "burst", "surge", "seed", "seeds"); err != nil {
		return err
	}
	if s.listed == nil { // generate one job to check the flags of the arrivals
		one := *s
		one.arrivals.Jobs = 1
		if _, err := one.generate(0); err != nil {
			return err
		}
	}
	if err := s.unsure.check(s.command, s.listed); err != nil {
		return err
	}
	if err := s.readPrices(); err != nil {
		return err
	}
	return s.readChanges()
}

// seeds returns the number of job lists: with files, the number of lists in them, otherwise wanted.
func (s *source) seeds(wanted int) int {
	if s.listed != nil {
		return len(s.listed)
	}
	return wanted
}

// jobs returns the jobs of a seed. With files, seed i is list i, counted from 0.
func (s *source) jobs(ctx context.Context, seed uint64) (*scheduler.Workload, error) {
	if s.listed != nil {
		return s.listed[seed], nil
	}
	return patient(ctx, func() (*scheduler.Workload, error) { return s.generate(seed) })
}

func (s *source) generate(seed uint64) (*scheduler.Workload, error) {
	arrivals := s.arrivals
	arrivals.Seed = seed
	w, err := workload.Generate(s.setup, arrivals)
	if err != nil {
		return nil, exit.Usagef("%s: %w", s.command, err)
	}
	return w, nil
}

// single returns the seed of a command that runs on exactly one list of jobs.
func (s *source) single(seed uint64) (uint64, error) {
	if s.listed == nil {
		return seed, nil
	}
	if len(s.listed) > 1 {
		return 0, exit.Usagef("%s: --trace: got %d files, want 1", s.command, len(s.listed))
	}
	return 0, nil
}
