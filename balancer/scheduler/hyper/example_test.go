package hyper_test

import (
	"fmt"

	"github.com/hetero-train/hetero-train/balancer/scheduler/hyper"
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
	for _, model := range []string{"T4", "Radeon VII", "V100"} { // the item memory knows these models
		encoder.GPU(record, &hyper.GPUFacts{Model: model, Memory: 16 << 30, Bandwidth: 900e9, Compute: 15.7e12, Utilization: 0.25})
	}
	model, _ := encoder.Model(record)
	utilization, _ := encoder.Utilization(record)
	fmt.Printf("%s, about %.1f busy\n", model, utilization)
	// Output: V100, about 0.2 busy
}

func ExampleAffinity() {
	affinity, err := hyper.NewAffinity(hyper.Options{})
	if err != nil {
		panic(err)
	}
	job := hyper.JobFacts{Kind: "language model", Class: "learning", Priority: 0.8, GPUs: 2, CPUs: 4, Memory: 24 << 30}
	for _, p := range []struct {
		model      string
		efficiency float64
	}{{"V100", 1}, {"T4", 0.34}, {"V100", 0.95}, {"T4", 0.3}} {
		err := affinity.Observe(hyper.Placement{Job: job, GPU: hyper.GPUFacts{Model: p.model, Memory: 16 << 30}, Efficiency: p.efficiency})
		if err != nil {
			panic(err)
		}
	}
	fmt.Println(len(affinity.Placements()), "placements")
	// A policy calls affinity.Reset for a cluster and a workload, affinity.Watch(state) before each decision, and
	// affinity.Score(state, job, gpu) for the pairs that it compares.

	// Output: 4 placements
}
