package simulate_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// permuted returns the same cluster and speeds with another order of the types: type t becomes type to[t]. Machines and
// GPUs keep their order.
func permuted(c *scheduler.Cluster, speeds *workload.Table, to []int) (*scheduler.Cluster, *workload.Table) {
	out := *c
	out.Types, out.GPUs = make([]scheduler.GPUType, len(c.Types)), slices.Clone(c.GPUs)
	for t, typ := range c.Types {
		out.Types[to[t]] = typ
	}
	for g := range out.GPUs {
		out.GPUs[g].Type = to[out.GPUs[g].Type]
	}
	table := &workload.Table{}
	for _, k := range speeds.Kinds {
		kind := workload.Rates{Types: make([][]workload.Rate, len(to))}
		for t, rates := range k.Types {
			kind.Types[to[t]] = rates
		}
		table.Kinds = append(table.Kinds, kind)
	}
	if err := table.Build(len(to)); err != nil {
		panic(err)
	}
	return &out, table
}

// unequal sets a random speed for each kind on each type, so no two types are equally fast for a kind. If two types
// were equally fast, the lower one would be used.
func unequal(random *rand.Rand, speeds *workload.Table, types int) *workload.Table {
	table := &workload.Table{}
	for _, k := range speeds.Kinds {
		kind := workload.Rates{Types: make([][]workload.Rate, types)}
		for t, rates := range k.Types {
			factor := math.Exp(0.5 * random.NormFloat64())
			for _, r := range rates {
				kind.Types[t] = append(kind.Types[t],
					workload.Rate{GPUs: r.GPUs, Packed: r.Packed * factor, Spread: r.Spread * factor})
			}
		}
		table.Kinds = append(table.Kinds, kind)
	}
	if err := table.Build(types); err != nil {
		panic(err)
	}
	return table
}

// The order of GPU types must not affect policy maxmin: each job must have the same completion time. There are no ties
// between types: no two types are equally fast for a kind, and no job runs on several types.
func TestOrderOfTypesHasNoEffectOnMaxmin(t *testing.T) {
	random := rand.New(rand.NewPCG(17, 19))
	moved := 0
	for n := range 500 {
		setup := workload.Random(random.Uint64())
		types := len(setup.Cluster.Types)
		setup.Speeds = unequal(random, setup.Speeds, types)
		w, err := workload.Generate(setup, workload.Arrivals{Jobs: 10 + random.IntN(40), Load: 0.3 + 2*random.Float64(),
			Seed: random.Uint64()})
		if err != nil {
			t.Fatal(err)
		}
		var changes []simulate.Change
		for range random.IntN(3) { // failures with repairs
			gpu, at := random.IntN(len(setup.Cluster.GPUs)), 10000*random.Float64()
			changes = append(changes, simulate.Change{At: at, GPU: gpu},
				simulate.Change{At: at + 5000, GPU: gpu, Up: true})
		}
		slices.SortFunc(changes, func(a, b simulate.Change) int { return cmp.Compare(a.At, b.At) })
		p, err := scheduler.New("maxmin", scheduler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{Changes: changes})
		if err != nil {
			t.Fatal(err)
		}
		to := random.Perm(types)
		cluster, speeds := permuted(setup.Cluster, setup.Speeds, to)
		got, err := simulate.Run(p, cluster, w, speeds, simulate.Options{Changes: changes})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(to) {
			moved++
		}
		for job := range want.Jobs {
			if a, b := got.Jobs[job].Finish, want.Jobs[job].Finish; math.Abs(a-b) > 1e-9*b {
				t.Errorf("run %d: %d types in the order %v: job %d of %d: got the end at %v s, want %v s", n, types, to,
					job, len(want.Jobs), a, b)
				break
			}
		}
	}
	if moved < 100 {
		t.Errorf("got %d runs with another order, want at least 100", moved)
	}
}
