package graph

import "fmt"

// InitKind names a distribution.
type InitKind uint8

// The distributions of initial values.
const (
	Constant InitKind = iota // every element is A
	Gaussian                 // mean A, standard deviation B
	Interval                 // uniform in [A, B)
	Given                    // the elements are those of Values
)

// Init is the distribution of a parameter's or state's initial values.
type Init struct {
	Kind   InitKind
	A, B   float64
	Values *[]float64 // row-major, one for each element; a pointer, so that an Init is comparable
}

// Const returns an Init that sets every element to v.
func Const(v float64) Init { return Init{Kind: Constant, A: v} }

// Normal returns an Init that draws from a normal distribution with mean 0.
func Normal(std float64) Init { return Init{Kind: Gaussian, B: std} }

// Uniform returns an Init that draws from [-bound, bound).
func Uniform(bound float64) Init { return Init{Kind: Interval, A: -bound, B: bound} }

// Values returns an Init that sets the elements, in row-major order, to values.
func Values(values []float64) Init { return Init{Kind: Given, Values: &values} }

func (i Init) String() string {
	switch i.Kind {
	case Given:
		return fmt.Sprintf("%d given values", len(*i.Values))
	case Constant:
		return fmt.Sprintf("constant %g", i.A)
	case Gaussian:
		return fmt.Sprintf("normal mean %g deviation %g", i.A, i.B)
	}
	return fmt.Sprintf("uniform in [%g, %g)", i.A, i.B)
}
