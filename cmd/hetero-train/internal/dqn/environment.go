package dqn

import "fmt"

// Shape is the size of an observation and of the set of actions. The weights of a network fit any number of rows and
// slots. If the observations of an environment fill only a part of the rows and slots, the rest is 0.
//
// Action (j·Ways + w)·Rows + r starts job j of the queue on row r in way w. The next Extra actions are defined by the
// environment. The last action waits.
type Shape struct {
	Channels int // image: number of planes of the matrix of GPUs; the first planes are [Weights]
	Rows     int // image: number of sets of GPUs on which an action can start a job
	Slots    int // image: maximum number of GPUs in a row
	Facts    int // number of values about the cluster and the queue
	Jobs     int // number of jobs of the queue that actions can start
	Ways     int // number of ways in which a job can use a row, such as alone and sharing
	Extra    int // number of further actions
	Pair     int // number of values about each triple (job, way, row), and about each further action
}

// Weights are the first planes of an image. The network reads them like the other planes, and also uses them to compute
// means.
const (
	WeightUp      = iota // 1 for a GPU, 0 for an empty slot
	WeightRow            // 1 / (number of GPUs in the row); 0 for an empty slot
	WeightCluster        // 1 / (number of GPUs in all rows); 0 for an empty slot
	Weights              // number of these planes
)

// Actions is the number of actions.
func (s Shape) Actions() int { return s.triples() + s.Extra + 1 }

// Wait is the action that waits for the next event.
func (s Shape) Wait() int { return s.Actions() - 1 }

// triples is the number of actions that start a job on a row.
func (s Shape) triples() int { return s.Jobs * s.Ways * s.Rows }

// numbered is the number of actions with a row in Observation.Pairs.
func (s Shape) numbered() int { return s.triples() + s.Extra }

// Floats is the length of Observation.State.
func (s Shape) Floats() int { return s.image() + s.Facts + s.pairs() }

func (s Shape) image() int { return s.Channels * s.Rows * s.Slots }
func (s Shape) pairs() int { return s.numbered() * s.Pair }

func (s Shape) check() error {
	for _, n := range []int{s.Channels - Weights + 1, s.Rows, s.Slots, s.Facts, s.Jobs, s.Ways, s.Pair} {
		if n < 1 {
			return fmt.Errorf(
				"shape of the observations: got %+v, want at least %d channels and at least 1 everywhere else", s,
				Weights)
		}
	}
	if s.Extra < 0 {
		return fmt.Errorf("shape of the observations: got %d extra actions, want at least 0", s.Extra)
	}
	return nil
}

// Observation is the input of the network before a decision.
type Observation struct {
	State []float32 // memory of Image, Facts and Pairs, one after the other
	Image []float32 // (Channels, Rows, Slots)
	Facts []float32 // (Facts)
	Pairs []float32 // (Jobs·Ways·Rows + Extra, Pair)
	Mask  []bool    // (Actions): whether the action is possible; at least one must be possible
}

// NewObservation allocates an observation.
func NewObservation(s Shape) *Observation {
	return s.view(make([]float32, s.Floats()), make([]bool, s.Actions()))
}

// view returns an observation that uses the given memory.
func (s Shape) view(state []float32, mask []bool) *Observation {
	image, facts := s.image(), s.image()+s.Facts
	return &Observation{State: state, Image: state[:image:image], Facts: state[image:facts:facts], Pairs: state[facts:],
		Mask: mask}
}

// Outcome is the result of an action.
type Outcome struct {
	Reward   float64
	Discount float64 // factor for the value of the next state, from 0 to 1; has no effect if Done
	Done     bool    // the episode has ended; the next call must be Reset
}

// Environment is a problem that a Learner learns to solve. It must be deterministic: equal seeds and equal actions give
// equal observations and outcomes. A learner that resumes relies on this to restore its environments.
type Environment interface {
	Shape() Shape
	// Reset starts the episode that a seed determines.
	Reset(seed uint64) error
	// Observe writes the current observation. It overwrites all values.
	Observe(o *Observation)
	// Step takes an action that Mask allows.
	Step(action int) (Outcome, error)
}

// Adviser is an Environment with a baseline, which a learner may imitate at first.
type Adviser interface {
	Environment
	// Advise returns the action of the baseline in the current state, or -1 if the network has no such action.
	Advise() int
}

// Counter is an Environment that counts its jobs. The learner records the largest number in Progress.Jobs.
type Counter interface {
	Environment
	// Jobs returns the number of jobs that wait or run in the current state.
	Jobs() int
}
