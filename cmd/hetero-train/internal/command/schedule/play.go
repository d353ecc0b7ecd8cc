package schedule

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/uncertain"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/dqn"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// mostGap is the relative gap between an allocation and the optimum above which a run prints a warning.
const mostGap = 0.01

// play runs the policy with the given name on the jobs of a seed. The policy may see estimates instead of the exact
// work of jobs. The text run names the run in error messages. If watch is not nil, it records the decisions of the
// policy.
func (s *source) play(ctx context.Context, p *policies, run, name string, seed uint64, jobs *scheduler.Workload,
	record bool, watch *witness) (*scheduler.Result, error) {
	policy, err := p.get(name)
	if err != nil {
		return nil, err
	}
	played := policy
	if watch != nil {
		watch.Policy, played = policy, watch
	}
	unsure := s.unsure.Options
	unsure.List = seed
	played = uncertain.Hide(played, unsure)
	r, err := simulate.RunContext(ctx, played, s.setup.Cluster, jobs, s.setup.Speeds,
		simulate.Options{Changes: s.events, Record: record})
	if failure := p.failed(policy); failure != nil {
		err = exit.With(exit.Device, failure)
	}
	if v, ok := policy.(scheduler.Approximate); ok && v.Gaps().Largest > mostGap {
		p.warn(fmt.Sprintf("policy %s: the search for the best allocation reached its limit, and the value of an allocation may be more than %g %% below the optimum",
			name, 100*mostGap))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if errors.As(err, new(*simulate.StalledError)) {
		return nil, fmt.Errorf("%s: %w; add GPUs with --change +COUNTtype@SECONDS, or choose another policy", run, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", run, err)
	}
	return r, nil
}

// judged returns all results of a run.
func (s *source) judged(w *scheduler.Workload, r *scheduler.Result) (compare.Figures, error) {
	figures, err := compare.FiguresOf(w, r)
	if err == nil {
		figures.Judge(s.setup.Cluster, w, s.setup.Speeds, s.prices, r)
	}
	return figures, err
}

// leavesOut reports whether err means that a policy cannot run some jobs on this cluster. Such jobs wait forever, need
// GPUs of several types, or are too long for the rounds of the policy.
func leavesOut(err error) bool {
	return errors.As(err, new(*simulate.StalledError)) || errors.As(err, new(*simulate.EndlessError)) ||
		errors.As(err, new(*dqn.SeveralTypesError)) || errors.As(err, new(*scheduler.TooLongError))
}
