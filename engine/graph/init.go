package graph

import "fmt"

// InitKind names a distribution.
type InitKind uint8

// The distributions of initial values.
const (
	Constant InitKind = iota // A
	Gaussian                 // mean A, standard deviation B
	Interval                 // uniform in [A, B)
)

// Init says how a parameter or state starts.
type Init struct {
	Kind InitKind
	A, B float64
}

// Const sets every element to v.
func Const(v float64) Init { return Init{Kind: Constant, A: v} }

// Normal draws from a normal distribution around 0.
func Normal(std float64) Init { return Init{Kind: Gaussian, B: std} }

// Uniform draws from [-bound, bound).
func Uniform(bound float64) Init { return Init{Kind: Interval, A: -bound, B: bound} }

func (i Init) String() string {
	switch i.Kind {
	case Constant:
		return fmt.Sprintf("constant %g", i.A)
	case Gaussian:
		return fmt.Sprintf("normal mean %g deviation %g", i.A, i.B)
	}
	return fmt.Sprintf("uniform in [%g, %g)", i.A, i.B)
}
