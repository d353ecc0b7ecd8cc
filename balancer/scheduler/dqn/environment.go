package dqn

import "fmt"

// Shape is the size of an observation and of the set of actions.
//
// Action j·Columns + c starts job j of the queue on the GPUs of column c. Then follow Extra actions of the environment,
// which have features of their own. The last action waits.
type Shape struct {
	Channels int // image: channels for each GPU
	Machines int // image: rows
	Slots    int // image: GPUs of a machine
	Facts    int // numbers about the cluster and the queue
	Jobs     int // jobs of the queue that an action can start
	Columns  int // sets of GPUs that an action can start a job on
	Extra    int // further actions
	Pair     int // numbers about each pair of a job and a column, and about each further action
}

// Actions is the number of actions.
func (s Shape) Actions() int { return s.rows() + 1 }

// Wait is the action that waits for the next event.
func (s Shape) Wait() int { return s.rows() }

// rows is the number of actions that have features: all except Wait.
func (s Shape) rows() int { return s.Jobs*s.Columns + s.Extra }

// Floats is the length of Observation.State.
func (s Shape) Floats() int { return s.image() + s.Facts + s.pairs() }

func (s Shape) image() int { return s.Channels * s.Machines * s.Slots }
func (s Shape) pairs() int { return s.rows() * s.Pair }

func (s Shape) check() error {
	for _, n := range []int{s.Channels, s.Machines, s.Slots, s.Facts, s.Jobs, s.Columns, s.Pair} {
		if n < 1 {
			return fmt.Errorf("shape of the observations: got %+v, want sizes of at least 1", s)
		}
	}
	if s.Extra < 0 {
		return fmt.Errorf("shape of the observations: got %d extra actions, want at least 0", s.Extra)
	}
	return nil
}

// Observation is the input of the network before a decision.
type Observation struct {
	State []float32 // Image, Facts and Pairs, one after another
	Image []float32 // (Channels, Machines, Slots)
	Facts []float32 // (Facts)
	Pairs []float32 // (Jobs·Columns + Extra, Pair)
	Mask  []bool    // (Actions): whether the action is possible; at least one is
}

// NewObservation allocates an observation.
func NewObservation(s Shape) *Observation {
	return s.view(make([]float32, s.Floats()), make([]bool, s.Actions()))
}

// view returns an observation in the given memory.
func (s Shape) view(state []float32, mask []bool) *Observation {
	image, facts := s.image(), s.image()+s.Facts
	return &Observation{State: state, Image: state[:image:image], Facts: state[image:facts:facts], Pairs: state[facts:], Mask: mask}
}

// Outcome is the result of an action.
type Outcome struct {
	Reward   float64
	Discount float64 // factor of the value of the next state, between 0 and 1; ignored if Done
	Done     bool    // the episode has ended; the next call must be Reset
}

// Environment is a problem that a Learner learns to solve. It must be deterministic: equal seeds and equal actions give
// equal observations and outcomes. A learner that resumes relies on this to restore its environments.
type Environment interface {
	Shape() Shape
	// Reset starts the episode of a seed.
	Reset(seed uint64) error
	// Observe writes the current observation. It overwrites all values.
	Observe(o *Observation)
	// Step takes an action that Mask allows.
	Step(action int) (Outcome, error)
}

// Adviser is an Environment with a baseline, which a learner may imitate at first.
type Adviser interface {
	Environment
	// Advise returns the action of the baseline in the current state, or -1 if no action of the network equals it.
	Advise() int
}
