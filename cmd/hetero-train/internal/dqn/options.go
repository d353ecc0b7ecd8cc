package dqn

import (
	"fmt"
	"math"
)

// Options configures a Learner. Start from Defaults, because a zero field does not select a default.
type Options struct {
	Network Network `json:"network"`
	Seed    uint64  `json:"seed"` // seed of the initial weights, the episodes and the exploration

	// Environments is the number of environments that act in lockstep: one pass of the network decides for all of them.
	// With more environments, decisions are faster, but there are more decisions between two updates of the weights.
	Environments int `json:"environments"`

	Batch  int `json:"batch"`  // number of transitions in an update
	Replay int `json:"replay"` // number of transitions in the replay memory, at least Batch
	Warm   int `json:"warm"`   // number of transitions before the first update, at least Batch
	Every  int `json:"every"`  // number of decisions of each environment between two updates
	Target int `json:"target"` // number of updates between two copies of the weights to the target weights

	Rate Schedule `json:"rate"` // learning rate of Adam
	Clip float64  `json:"clip"` // largest norm of the gradient; 0: no limit

	// Exploration is the probability of a random action. It falls linearly from From to To over the first Over
	// episodes.
	Exploration Schedule `json:"exploration"`

	// Double enables double DQN: the trained weights select the action of the target, and the target weights give its
	// value.
	Double bool `json:"double"`
	// Prioritised enables prioritised replay, which samples transitions in proportion to (error + 0.001)^Alpha. Weights
	// in the loss correct the sampling bias with exponent Beta.
	Prioritised bool    `json:"prioritised"`
	Alpha       float64 `json:"alpha"`
	Beta        float64 `json:"beta"`
	// Steps is the number of rewards in a target (n-step returns). The value from the target weights is added to them.
	// 1 gives the plain DQN.
	Steps int `json:"steps"`

	// Imitate is the number of episodes in which the learner imitates the environment's Adviser; 0: never. The
	// probability that the baseline acts, and the weight of the imitation loss, fall linearly from 1 to 0. The loss is
	// max over a of (Q(a) + Margin·[a is not the baseline's action]) - Q(baseline's action).
	Imitate int64   `json:"imitate"`
	Margin  float64 `json:"margin"` // margin of the imitation loss, in units of the reward
}

// Schedule is a value that changes linearly over episodes.
type Schedule struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Over int64   `json:"over"` // number of episodes; 0: the value is always To
}

// At returns the value after a number of episodes.
func (s Schedule) At(episodes int64) float64 {
	if episodes >= s.Over {
		return s.To
	}
	return s.From + (s.To-s.From)*float64(episodes)/float64(s.Over)
}

// Defaults returns the options with which the results in docs/benchmarks/scheduling.md were measured. The learning rate
// falls over 15,000 episodes. A longer training run continues with the small rate.
func Defaults() Options {
	return Options{
		Network: DefaultNetwork(), Seed: 1, Environments: 16, Batch: 64, Replay: 40000, Warm: 512, Every: 1,
		Target: 250,
		Rate:   Schedule{From: 1e-3, To: 1e-5, Over: 15000}, Clip: 10,
		Exploration: Schedule{From: 0.05, To: 0.01, Over: 4000},
		Double:      true, Prioritised: true, Alpha: 0.6, Beta: 0.4, Steps: 4, Imitate: 300, Margin: 0.05,
	}
}

func (o Options) check() error {
	if err := o.Network.check(); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		got  int
	}{{"environments", o.Environments}, {"batch", o.Batch}, {"replay", o.Replay}, {"warm", o.Warm}, {"every", o.Every},
		{"target", o.Target}, {"steps", o.Steps}} {
		if f.got < 1 {
			return fmt.Errorf("learner: %s: got %d, want at least 1", f.name, f.got)
		}
	}
	if o.Replay < o.Batch || o.Warm < o.Batch || o.Replay < o.Warm {
		return fmt.Errorf("learner: got a batch of %d transitions, a warm-up of %d and a replay memory of %d, want batch <= warm-up <= replay memory",
			o.Batch, o.Warm, o.Replay)
	}
	for _, f := range []struct {
		name      string
		got       float64
		low, high float64
	}{
		{"rate from", o.Rate.From, 0, 1}, {"rate to", o.Rate.To, 0, 1}, {"clip", o.Clip, 0, math.MaxFloat64},
		{"exploration from", o.Exploration.From, 0, 1}, {"exploration to", o.Exploration.To, 0, 1},
		{"alpha", o.Alpha, 0, 1}, {"beta", o.Beta, 0, 1}, {"margin", o.Margin, 0, math.MaxFloat64},
	} {
		if !(f.got >= f.low && f.got <= f.high) {
			return fmt.Errorf("learner: %s: got %v, want %v to %v", f.name, f.got, f.low, f.high)
		}
	}
	if o.Imitate < 0 || o.Exploration.Over < 0 || o.Rate.Over < 0 {
		return fmt.Errorf(
			"learner: number of episodes: got %d of imitation, %d of exploration and %d of the rate, want at least 0",
			o.Imitate, o.Exploration.Over, o.Rate.Over)
	}
	return nil
}
