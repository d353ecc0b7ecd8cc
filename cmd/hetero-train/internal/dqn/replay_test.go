package dqn

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The tree must draw items in proportion to their weights, and never an item of weight 0.
func TestSumTreeDrawsInProportionToWeights(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, items := range []int{1, 2, 3, 7, 64, 100} {
		tree, weights, sum := newSumTree(items), make([]float64, items), 0.0
		for range 3 * items {
			i := random.IntN(items)
			weights[i] = float64(random.IntN(4))
			tree.set(i, weights[i])
		}
		tree.set(items-1, 2)
		weights[items-1] = 2
		for _, w := range weights {
			sum += w
		}
		if tree.total() != sum {
			t.Fatalf("%d items: total %v, want %v", items, tree.total(), sum)
		}
		// The items cover [0, sum) in their order. The length of each is its weight.
		at := 0.0
		for i, w := range weights {
			for _, inside := range []float64{0, 0.5, 0.999} {
				if got := tree.find(at + inside*w); w > 0 && got != i {
					t.Errorf("%d items: position %v is item %d, want %d", items, at+inside*w, got, i)
				}
			}
			at += w
		}
		if got := tree.find(sum); weights[got] == 0 {
			t.Errorf("%d items: the end of the range is item %d of weight 0", items, got)
		}
	}
}

// The memory must return the transitions that were written. The sums of rewards must stop at the end of an episode.
func TestReplayReturnsWhatWasWritten(t *testing.T) {
	shape := Shape{Channels: Weights, Rows: 1, Slots: 1, Facts: 1, Jobs: 1, Ways: 1, Pair: 1}
	for _, prioritised := range []bool{false, true} {
		const envs, steps, rows = 3, 2, 40
		r := newReplay(shape, envs, 30, steps, prioritised)
		random := rand.New(rand.NewPCG(2, 2))
		done := func(t int64, env int) bool { return (t+int64(env))%5 == 0 }
		for range rows {
			at := r.begin()
			for env := range envs {
				i := r.at(at, env)
				r.state(i)[0] = float32(100*at + int64(env))
				r.rewards[i], r.discounts[i] = float32(at), 0.5
				if done(at, env) {
					r.discounts[i] = 0
				}
			}
			from, to := r.bounds()
			if to != max(from, r.written-steps) || to-from > int64(r.rows-steps) {
				t.Fatalf("after %d rows: transitions from %d to %d", r.written, from, to)
			}
			if to == from {
				continue
			}
			for range 50 {
				row, env, weight := r.sample(random, 0.5)
				if row < from || row >= to || weight <= 0 || math.IsInf(weight, 0) {
					t.Fatalf("after %d rows: sampled row %d with weight %v, want %d to %d", r.written, row, weight,
						from, to-1)
				}
				if got, want := r.state(r.at(row, env))[0], float32(100*row+int64(env)); got != want {
					t.Fatalf("state of row %d, environment %d: got %v, want %v", row, env, got, want)
				}
				reward, discount, next := r.reward(row, env)
				want, factor := float64(row)+0.5*float64(row+1), 0.25
				switch {
				case done(row, env):
					want, factor = float64(row), 0
				case done(row+1, env):
					factor = 0
				}
				if reward != want || discount != factor {
					t.Fatalf("row %d, environment %d: got reward %v and discount %v, want %v and %v", row, env, reward,
						discount, want, factor)
				}
				if factor > 0 && r.state(next)[0] != float32(100*(row+2)+int64(env)) {
					t.Fatalf("row %d, environment %d: the next state is %v", row, env, r.state(next)[0])
				}
				r.prioritise(row, env, random.Float64(), 0.6)
			}
		}
	}
}
