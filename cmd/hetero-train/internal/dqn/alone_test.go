package dqn

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// A policy alone must never follow gang. It must take the action with the largest value, also in states with more jobs
// than in training and with more than maxIdle free GPUs. It must move no job, and must not run jobs that need several
// types.
func TestPolicyAloneNeverFollowsTheBaseline(t *testing.T) {
	p := smallProblem()
	p.Caution = 0.5
	dir := trained(t, tinyOptions(), p)
	setup := workload.Default()
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: 60, Load: 1.5, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	reasons := func(policy *Policy) (baseline, stops int, finish []float64) {
		policy.progress.Jobs = 10
		r, err := simulate.Run(policy, setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
		if err != nil || policy.Err() != nil {
			t.Fatal(err, policy.Err())
		}
		for _, s := range r.Segments {
			if strings.Contains(s.Reason, "policy gang") {
				baseline++
			}
		}
		for _, j := range r.Jobs {
			stops += j.Stops
			finish = append(finish, j.Finish)
		}
		return baseline, stops, finish
	}
	usual, alone := opened(t, dir, scheduler.Options{Explain: true}), opened(t, dir, scheduler.Options{Explain: true})
	alone.SetAlone()
	if baseline, _, _ := reasons(usual); baseline < 10 {
		t.Errorf("with the baseline: got %d reasons that name gang, want at least 10", baseline)
	}
	if baseline, stops, _ := reasons(alone); baseline > 0 || stops > 0 {
		t.Errorf("alone: got %d reasons that name gang and %d stops, want none", baseline, stops)
	}
	mixed := &scheduler.Workload{Kinds: setup.Kinds, Jobs: []scheduler.Job{
		{Name: "mixed", Kind: 2, Work: 1000, GPUs: 12, CPUs: 1, Memory: 1}}}
	if err := alone.Reset(setup.Cluster, mixed, setup.Speeds); !errors.As(err, new(*SeveralTypesError)) {
		t.Errorf("a job of 12 GPUs: got %v, want a SeveralTypesError", err)
	}

	// For a network that was trained alone, SetAlone must change nothing.
	o := tinyOptions()
	p.SetAlone()
	dir = trained(t, o, p)
	usual, alone = opened(t, dir, scheduler.Options{}), opened(t, dir, scheduler.Options{})
	alone.SetAlone()
	_, _, first := reasons(usual)
	if _, _, second := reasons(alone); !slices.Equal(first, second) {
		t.Errorf("a network trained alone: got finish times %v after SetAlone, want %v", second, first)
	}
}
