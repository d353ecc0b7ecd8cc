package hyper_test

import (
	"fmt"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/hyper"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

func ExampleEncoder() {
	space, err := hyper.NewSpace(hyper.Dimension, 1)
	if err != nil {
		panic(err)
	}
	encoder, err := space.NewEncoder()
	if err != nil {
		panic(err)
	}
	record := space.New()
	for _, model := range []string{"T4", "Radeon VII", "V100"} { // the item memory contains these models
		encoder.GPU(record, &hyper.GPUFacts{Model: model, Memory: 16 << 30, Bandwidth: 900e9, Compute: 15.7e12,
			Utilization: 0.25})
	}
	model, _ := encoder.Model(record)
	utilization, _ := encoder.Utilization(record)
	fmt.Printf("%s, about %.1f busy\n", model, utilization)
	// Output: V100, about 0.2 busy
}

// watched is a policy that passes the states of its runs to an Affinity.
type watched struct {
	scheduler.Policy
	affinity *hyper.Affinity
}

func (w watched) Reset(c *scheduler.Cluster, jobs *scheduler.Workload, s scheduler.Speeds) error {
	w.affinity.Reset(c, jobs)
	return w.Policy.Reset(c, jobs, s)
}

func (w watched) Decide(s *scheduler.State) scheduler.Action {
	w.affinity.Watch(s)
	return w.Policy.Decide(s)
}

func ExampleAffinity() {
	affinity, err := hyper.NewAffinity(hyper.Options{})
	if err != nil {
		panic(err)
	}
	fcfs, err := scheduler.New("fcfs", scheduler.Options{})
	if err != nil {
		panic(err)
	}
	setup := workload.Default()
	jobs, err := workload.Generate(setup, workload.Arrivals{Jobs: 100, Load: 0.8, Seed: 1})
	if err != nil {
		panic(err)
	}
	if _, err := simulate.Run(watched{fcfs, affinity}, setup.Cluster, jobs, setup.Speeds,
		simulate.Options{}); err != nil {
		panic(err)
	}
	p := affinity.Placements()[0]
	fmt.Printf("%s on %s: efficiency %.2f\n", p.Job.Kind, p.GPU.Model, p.Efficiency)
	// A policy calls affinity.Score(state, job, gpu) for each pair of a job and a GPU that it compares.

	// Output: language model on volta: efficiency 1.00
}
