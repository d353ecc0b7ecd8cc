package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Limits of the clusters of [Random].
const (
	RandomMachines = 6 // machines; each has GPUs of one type
	RandomGPUs     = 8 // GPUs of a machine
)

// Ranges of [Random]. With wider ranges, the random clusters differ more, so a learner needs more clusters.
const (
	randomTypes   = 4    // types of GPUs, at most
	randomUsual   = 0.4  // fraction of clusters whose types are those of the default cluster
	randomSlowest = 0.25 // speed of a type relative to the default type that it is made from
	randomFastest = 2.0
	randomNoise   = 0.25 // standard deviation of the logarithm of the speed of a kind on a type
	randomLength  = 0.5  // standard deviation of the logarithm of the running time of a kind
	randomDemand  = 0.15 // standard deviation of the logarithm of the part of a GPU that a kind uses
	randomLeast   = 6    // GPUs of a cluster
	randomMost    = 32
)

// Random makes a cluster and kinds of jobs that differ for each seed, to train on many clusters:
//
//   - 2 to [RandomMachines] machines of 2 to [RandomGPUs] GPUs
//   - 1 to 4 types of GPUs with random speeds and memories
//   - the default kinds with random running times and requests; a job has at most as many GPUs as one type of the
//     cluster
func Random(seed uint64) *Setup {
	random := rand.New(rand.NewPCG(seed, 0x636c7573746572)) // "cluster"
	kinds := make([]defaultKind, len(defaultKinds))
	copy(kinds, defaultKinds)
	types, speeds := randomTypesOf(random, len(kinds))
	var specs []MachineSpec
	counts := make([]int, len(types)) // GPUs, by type
	for total := 0; total < randomLeast; {
		specs, total = specs[:0], 0
		clear(counts)
		for range 2 + random.IntN(RandomMachines-1) {
			n := [...]int{2, 4, 4, 4, 8}[random.IntN(5)]
			if total+n > randomMost {
				break
			}
			spec := MachineSpec{Count: 1, Type: random.IntN(len(types)), GPUs: n, CPUs: 8 * float64(n),
				Memory: 64 * gib * float64(n), Network: 10 * giga / 8}
			specs = append(specs, spec)
			counts[spec.Type] += n
			total += n
		}
	}
	for i := range kinds {
		k := &kinds[i]
		k.shape.Seconds *= math.Exp(randomLength * random.NormFloat64())
		for _, part := range []*float64{&k.compute, &k.bandwidth, &k.host} {
			*part = min(1, *part*math.Exp(randomDemand*random.NormFloat64()))
		}
		var sizes []float64
		for size, fraction := range k.shape.Sizes {
			if 1<<size <= slices.Max(counts) {
				sizes = append(sizes, fraction*math.Exp(randomLength*random.NormFloat64()))
			}
		}
		k.shape.Sizes = sizes
	}
	return setupOf(NewCluster(types, specs...), kinds, speeds)
}

// randomTypesOf makes types of GPUs and the speeds of all kinds on them, by kind and type.
func randomTypesOf(random *rand.Rand, kinds int) ([]scheduler.GPUType, [][]float64) {
	usual := random.Float64() < randomUsual
	n := len(defaultTypes)
	if !usual {
		n = 1 + random.IntN(randomTypes)
	}
	types, speeds := make([]scheduler.GPUType, n), make([][]float64, kinds)
	for k := range speeds {
		speeds[k] = make([]float64, n)
	}
	for t := range types {
		base, overall, noise := t, 1.0, 0.0
		if !usual {
			base = random.IntN(len(defaultTypes))
			overall = randomSlowest * math.Pow(randomFastest/randomSlowest, random.Float64())
			noise = randomNoise
		}
		types[t] = defaultTypes[base]
		if !usual {
			types[t].Name = fmt.Sprintf("type%d", t)
			// each type holds every kind alone, but not every pair of kinds
			types[t].Memory = [...]float64{12, 16, 16, 32}[random.IntN(4)] * gib
		}
		for k := range speeds {
			speeds[k][t] = defaultKinds[k].speed[base] * overall * math.Exp(noise*random.NormFloat64())
		}
	}
	return types, speeds
}
