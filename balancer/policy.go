package balancer

import (
	"fmt"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// Policy divides the batch among the ranks, and changes the shares after an interval. Equal steps give equal decisions
// on all ranks of one processor architecture.
type Policy interface {
	// Start returns the shares of the first step.
	Start() []int
	// Observe takes the measurements of one step. At the end of an interval it returns a decision, otherwise nil and
	// false. The decision is valid until the next call.
	Observe(s *Step) (*Decision, bool)
}

// Opener is implemented by a Policy whose first decision does not come after the first interval.
type Opener interface {
	// Opening returns the number of steps before the first decision; 0 if the policy never changes shares.
	Opening() int
}

// Opening returns the number of steps before the first decision of a policy with this interval; 0 if the policy never
// changes shares.
func Opening(p Policy, interval int) int {
	if o, ok := p.(Opener); ok {
		return o.Opening()
	}
	return interval
}

// Learner is a policy that fits curves.
type Learner interface {
	// Curves returns the current curve of each rank, up to the largest share that the rank can hold; nil for a rank
	// that was never measured.
	Curves() []divide.Curve
}

// Sized is a policy that knows its memory.
type Sized interface {
	// Memory returns the memory that the policy holds, by purpose.
	Memory() []Memory
}

// Memory is memory for one purpose.
type Memory struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Maker creates a policy.
type Maker struct {
	Name string
	Doc  string                        // one sentence that describes how the policy divides the batch
	New  func(Options) (Policy, error) // called with valid options
	Traits
}

// Traits are the facts about a policy that the code around it needs. The zero value describes a policy that changes the
// shares, reads the scores, and neither fits curves nor minimises energy or cost.
type Traits struct {
	Static     bool // never changes the shares, and therefore needs no measured times
	Learns     bool // implements [Learner], starts with Options.Curves, and equalizes the measured times of the ranks
	Objectives bool // reads Options.Objective, Slowdown, Watts, IdleWatts and Bench
	Scoreless  bool // does not read Options.Scores
	// WithoutScores states what happens without Options.Scores, for a warning; "": scores are not necessary.
	WithoutScores string
}

// Make checks the options and creates the policy.
func (m Maker) Make(o Options) (Policy, error) {
	err := o.Check()
	if err == nil {
		var p Policy
		if p, err = m.New(o); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("policy %s: %w", m.Name, err)
}
