package dqn

import (
	"math"
	"math/rand/v2"
)

// replay keeps the latest transitions of all environments.
//
// The environments run in lockstep. Row t holds their states before decision t, their actions and the outcomes. The
// state after a transition is the state of the same environment in the next row, so the memory stores each state only
// once.
type replay struct {
	shape      Shape
	rows, envs int
	steps      int // number of outcomes that a transition adds up before the value of the network (n-step returns)

	states    []float32 // (rows, envs, Floats)
	masks     []bool    // (rows, envs, Actions)
	actions   []int32   // (rows, envs)
	advice    []int32   // (rows, envs): action of the baseline; -1: none
	rewards   []float32 // (rows, envs)
	discounts []float32 // (rows, envs); 0 at the end of an episode

	written int64 // number of rows begun in the whole run; the last row has no outcomes yet

	// Prioritised replay: the weight of each transition is (error + epsilon)^alpha. tree is nil for uniform sampling.
	tree    *sumTree
	largest float64 // largest weight so far, which transitions have until they are sampled
}

func newReplay(s Shape, envs, transitions, steps int, prioritised bool) *replay {
	rows := max((transitions+envs-1)/envs, 1) + steps + 1
	r := &replay{shape: s, rows: rows, envs: envs, steps: steps, largest: 1}
	r.states, r.masks = make([]float32, rows*envs*s.Floats()), make([]bool, rows*envs*s.Actions())
	r.actions, r.advice = make([]int32, rows*envs), make([]int32, rows*envs)
	r.rewards, r.discounts = make([]float32, rows*envs), make([]float32, rows*envs)
	if prioritised {
		r.tree = newSumTree(rows * envs)
	}
	return r
}

// at returns the index of environment env in row t of the run.
func (r *replay) at(t int64, env int) int { return int(t%int64(r.rows))*r.envs + env }

// state and mask return the memory of one state.
func (r *replay) state(i int) []float32 {
	n := r.shape.Floats()
	return r.states[i*n : (i+1)*n : (i+1)*n]
}

func (r *replay) mask(i int) []bool {
	n := r.shape.Actions()
	return r.masks[i*n : (i+1)*n : (i+1)*n]
}

// begin starts the next row and returns its number. If the memory is full, the transitions of the oldest row become
// unavailable. The transitions of the row that is now `steps` rows old have all their outcomes, and become available.
func (r *replay) begin() int64 {
	t := r.written
	r.written++
	if r.tree == nil {
		return t
	}
	for env := range r.envs {
		r.tree.set(r.at(t, env), 0)
		if full := t - int64(r.steps); full >= 0 {
			r.tree.set(r.at(full, env), r.largest)
		}
	}
	return t
}

// bounds returns the range of rows whose transitions are complete. A transition needs `steps` outcomes and the state
// after them, and the last row has no outcomes yet.
func (r *replay) bounds() (from, to int64) {
	from = max(0, r.written-int64(r.rows))
	return from, max(from, r.written-int64(r.steps))
}

// available returns the number of complete transitions.
func (r *replay) available() int {
	from, to := r.bounds()
	return int(to-from) * r.envs
}

// sample draws a transition. The result weight corrects for the probability of the transition: it is
// (1/(available·probability))^beta, not yet divided by the largest weight of the batch.
func (r *replay) sample(random *rand.Rand, beta float64) (t int64, env int, weight float64) {
	from, to := r.bounds()
	if r.tree == nil {
		i := random.Int64N((to - from) * int64(r.envs))
		return from + i/int64(r.envs), int(i % int64(r.envs)), 1
	}
	i := r.tree.find(random.Float64() * r.tree.total())
	row := int64(i / r.envs)
	t = from + (row-from%int64(r.rows)+int64(r.rows))%int64(r.rows)
	probability := r.tree.weight(i) / r.tree.total()
	return t, i % r.envs, math.Pow(1/(float64(r.available())*probability), beta)
}

// reward returns the sum of the discounted rewards of up to `steps` decisions, from transition (t, env) on. The result
// next is the state after these decisions, and discount is the factor for its value, 0 if the episode has ended.
func (r *replay) reward(t int64, env int) (reward, discount float64, next int) {
	discount = 1
	for range r.steps {
		i := r.at(t, env)
		reward += discount * float64(r.rewards[i])
		discount *= float64(r.discounts[i])
		t++
		if discount == 0 {
			break
		}
	}
	return reward, discount, r.at(t, env)
}

// prioritise sets the weight of a transition from its temporal-difference error.
func (r *replay) prioritise(t int64, env int, err, alpha float64) {
	if r.tree == nil {
		return
	}
	const least = 1e-3 // in the unit of the error; with it, transitions without an error are still sampled
	w := math.Pow(math.Abs(err)+least, alpha)
	r.largest = max(r.largest, w)
	r.tree.set(r.at(t, env), w)
}
