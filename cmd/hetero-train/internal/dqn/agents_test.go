package dqn

import (
	"math"
	"os"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// On a cluster with one machine, the only agent sees the whole cluster and takes the actions of the policy alone.
func TestOneAgentIsThePolicyAlone(t *testing.T) {
	setup := workload.Default()
	setup.Cluster = workload.NewCluster(setup.Cluster.Types,
		workload.MachineSpec{Count: 1, Type: workload.Volta, GPUs: 8, CPUs: 64, Memory: 1 << 40, Network: 1e9})
	dir := trained(t, tinyOptions(), smallProblem())
	finish := func(set func(*Policy), setup *workload.Setup) (sum float64) {
		w, err := workload.Generate(setup, workload.Arrivals{Jobs: 40, Load: 1, Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		policy := opened(t, dir, scheduler.Options{})
		set(policy)
		r, err := simulate.Run(policy, setup.Cluster, w, setup.Speeds, simulate.Options{})
		if err != nil || policy.Err() != nil {
			t.Fatal(err, policy.Err())
		}
		for _, j := range r.Jobs {
			sum += j.Finish
		}
		return sum
	}
	if agents, alone := finish((*Policy).SetAgents, setup), finish((*Policy).SetAlone, setup); agents != alone {
		t.Errorf("sum of the finish times: got %v with one agent, want %v", agents, alone)
	}
	several := workload.Default()
	if agents, alone := finish((*Policy).SetAgents, several), finish((*Policy).SetAlone, several); agents == alone ||
		math.IsNaN(agents) {
		t.Errorf("4 machines: got sums of the finish times %v with agents and %v alone, want two numbers", agents, alone)
	}
}

// TestAgentsAtAThousandGPUs prints the table of docs/benchmarks/scheduling.md about agents.
func TestAgentsAtAThousandGPUs(t *testing.T) {
	needtest.Large.Need(t, "takes minutes")
	dev := cpuDevice(t)
	setup := workload.Default()
	machine := func(count, typ int) workload.MachineSpec {
		return workload.MachineSpec{Count: count, Type: typ, GPUs: 8, CPUs: 64, Memory: 1 << 39, Network: 1e9}
	}
	setup.Cluster = workload.NewCluster(setup.Cluster.Types, machine(63, workload.Volta), machine(31, workload.Turing),
		machine(31, workload.Radeon))
	folder := os.Getenv("HETERO_TEST_NETWORK")
	for seed := uint64(10000); seed < 10003; seed++ {
		w, err := workload.Generate(setup, workload.Arrivals{Jobs: 3000, Load: 0.8, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"fcfs", "easy", "srf", "gang", "alone", "agents"} {
			var policy scheduler.Policy
			switch name {
			case "alone", "agents":
				var p *Policy
				if folder == "" {
					p, err = OpenTrained(dev, scheduler.Options{})
				} else {
					p, err = OpenPolicy(dev, latest(t, folder), scheduler.Options{})
				}
				if err != nil {
					t.Fatal(err)
				}
				defer end(t, &Learner{net: p.net})
				if name == "alone" {
					p.SetAlone()
				} else {
					p.SetAgents()
				}
				policy = p
			default:
				if policy, err = scheduler.New(name, scheduler.Options{}); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			r, err := simulate.Run(policy, setup.Cluster, w, setup.Speeds, simulate.Options{})
			if err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for _, j := range r.Jobs {
				sum += (j.Finish - j.Arrival) / float64(len(r.Jobs))
			}
			t.Logf("seed %d, %s: completion %.0f s, %d decisions in %.1f s", seed, name, sum, r.Decisions,
				time.Since(began).Seconds())
		}
	}
}
