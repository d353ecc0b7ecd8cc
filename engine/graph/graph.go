package graph

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Role is the origin of a value.
type Role uint8

// The roles.
const (
	Computed Role = iota // computed by a node
	Input                // the host writes the value before a run
	Param                // trained parameter
	State                // kept between steps; a node updates the value in place (running statistics)
)

// Phase is the part of a step that a node belongs to.
type Phase uint8

// The phases, in order.
const (
	Forward Phase = iota
	Backward
)

// Value is one tensor of a graph.
type Value struct {
	Name  string // name of the input, parameter or state; for a computed value, name of its node
	Shape tensor.Shape
	DType tensor.DType
	Role  Role
	Init  Init // distribution of the initial values of a parameter or state
	// A frozen parameter gets no gradient. No node updates a frozen state.
	Frozen bool
	// Layer is the number of model layers before the layer of this parameter. See Graph.NextLayer.
	Layer int
	Node  *Node // node that computes the value; nil for inputs, parameters and states
	Index int   // position of the value among the node's outputs
	// Follows is the value that determines the memory layout of this value. The gradient of a value follows that value.
	Follows *Value
}

// Spec returns the device spec of v in plain layout.
func (v *Value) Spec() device.TensorSpec {
	return device.TensorSpec{Shape: v.Shape, DType: v.DType}
}

func (v *Value) String() string {
	if v == nil {
		return "no value"
	}
	return fmt.Sprintf("%s %v%v", v.Name, v.DType, v.Shape)
}

// Node is one op with its operands.
type Node struct {
	Name  string
	Op    device.Op
	In    []*Value
	Out   []*Value
	Phase Phase
	Layer int // number of model layers before the layer of this node

	Recomputed bool // whether the node repeats a node of the forward pass in the backward pass; see Graph.Recompute
}

// Gradient pairs a parameter with its gradient.
type Gradient struct{ Param, Value *Value }

// Output is a value that the host reads, by name.
type Output struct {
	Name  string
	Value *Value
}

// Graph is a computation. Nodes are in a valid order of execution.
type Graph struct {
	Nodes     []*Node
	Inputs    []*Value
	Params    []*Value // parameters in the order of their declaration
	States    []*Value // states that nodes update, then frozen states
	Outputs   []Output
	Gradients []Gradient // gradients in the order in which the backward pass completes them

	paramType  tensor.DType
	phase      Phase
	cast       map[*Value]*Value // parameter -> its copy in the compute type
	synced     map[*Value]*Ranks // ranks whose samples a statistic covers, by the value of the mean
	names      map[string]bool   // names of all parameters and states
	frozen     func(name string, layer int) bool
	layer      int
	weights    map[*Value]*Value // Term.Weights, by loss
	recomputed map[*Value]*Value // value of the forward pass, by recomputed value
	recompute  int               // number of layers that the backward pass recomputes
}

// BuildError names the node of a graph that cannot be built, and the cause.
type BuildError struct {
	Node string
	Err  error
}

func (e *BuildError) Error() string { return fmt.Sprintf("graph: %s: %v", e.Node, e.Err) }

// Unwrap returns the cause.
func (e *BuildError) Unwrap() error { return e.Err }

// Build runs f on an empty graph and returns the graph, or the BuildError with which f panicked.
func Build(f func(g *Graph)) (g *Graph, err error) {
	defer func() {
		if r := recover(); r != nil {
			be, ok := r.(*BuildError)
			if !ok {
				panic(r)
			}
			g, err = nil, be
		}
	}()
	g = &Graph{paramType: tensor.F32, cast: map[*Value]*Value{}, synced: map[*Value]*Ranks{}, names: map[string]bool{},
		recomputed: map[*Value]*Value{}}
	f(g)
	return g, nil
}

// UseF64 sets the type of later parameters and states to f64. Tests compare other runs with such exact runs on the
// reference device.
func (g *Graph) UseF64() { g.paramType = tensor.F64 }

// Freeze freezes every later parameter for which frozen returns true. layer is the parameter's Value.Layer.
func (g *Graph) Freeze(frozen func(name string, layer int) bool) { g.frozen = frozen }

// NextLayer starts the next layer of the model: later parameters belong to it. Layers are numbered from 0. Learning
// rates and freezing can depend on this number. A model starts in layer 0.
func (g *Graph) NextLayer() { g.layer++ }

// ParamType returns the element type of parameters and states.
func (g *Graph) ParamType() tensor.DType { return g.paramType }

// fail panics with a BuildError.
func fail(node, format string, args ...any) {
	panic(&BuildError{Node: node, Err: fmt.Errorf(format, args...)})
}

// Input declares a value that the host writes before each run. Names are unique among inputs.
func (g *Graph) Input(name string, dt tensor.DType, shape ...int) *Value {
	if slices.ContainsFunc(g.Inputs, func(v *Value) bool { return v.Name == name }) {
		fail(name, "two inputs have this name")
	}
	v := g.declare(name, Input, dt, shape)
	g.Inputs = append(g.Inputs, v)
	return v
}

// Param declares a trained parameter. Names are unique; checkpoints use them.
func (g *Graph) Param(name string, init Init, shape ...int) *Value {
	v := g.named(name, Param, init, shape)
	v.Layer = g.layer
	v.Frozen = g.frozen != nil && g.frozen(name, g.layer)
	g.Params = append(g.Params, v)
	return v
}

// State declares a value that nodes update in place.
func (g *Graph) State(name string, init Init, shape ...int) *Value {
	v := g.named(name, State, init, shape)
	at := slices.IndexFunc(g.States, func(s *Value) bool { return s.Frozen })
	if at < 0 {
		at = len(g.States)
	}
	g.States = slices.Insert(g.States, at, v)
	return v
}

// FrozenState declares a value that is kept like a state but never updated.
func (g *Graph) FrozenState(name string, init Init, shape ...int) *Value {
	v := g.named(name, State, init, shape)
	v.Frozen = true
	g.States = append(g.States, v)
	return v
}

func (g *Graph) named(name string, role Role, init Init, shape []int) *Value {
	if g.names[name] {
		fail(name, "two parameters or states have this name")
	}
	g.names[name] = true
	v := g.declare(name, role, g.paramType, shape)
	if v.Init = init; init.Kind == Given && int64(len(*init.Values)) != v.Shape.Elements() {
		fail(name, "got %d values, want %d for shape %v", len(*init.Values), v.Shape.Elements(), v.Shape)
	}
	return v
}

func (g *Graph) declare(name string, role Role, dt tensor.DType, shape []int) *Value {
	s := tensor.Shape(shape).Clone()
	if err := s.Check(); err != nil {
		fail(name, "%w", err)
	}
	return &Value{Name: name, Shape: s, DType: dt, Role: role}
}

// Output declares that the host reads value v after a run. v is a computed value or an input. Names are unique among
// outputs.
func (g *Graph) Output(name string, v *Value) {
	if slices.ContainsFunc(g.Outputs, func(o Output) bool { return o.Name == name }) {
		fail(name, "two outputs have this name")
	}
	if v == nil || v.Role == Param || v.Role == State || v.DType == tensor.Opaque {
		fail(name, "output: got %v, want a computed value or an input; parameters and states are read through the model's state",
			v)
	}
	g.Outputs = append(g.Outputs, Output{Name: name, Value: v})
}

// Apply appends a node and returns its outputs.
func (g *Graph) Apply(name string, op device.Op, in ...*Value) []*Value {
	n, err := NewNode(name, op, in...)
	if err != nil {
		panic(&BuildError{Node: name, Err: err})
	}
	n.Phase, n.Layer = g.phase, g.layer
	g.Nodes = append(g.Nodes, n)
	return n.Out
}

// one is like Apply, for an op with a single output.
func (g *Graph) one(name string, op device.Op, in ...*Value) *Value {
	return g.Apply(name, op, in...)[0]
}

// NewNode creates a node that belongs to no graph and infers its outputs. The planner's decompositions use it.
func NewNode(name string, op device.Op, in ...*Value) (*Node, error) {
	specs := make([]device.TensorSpec, len(in))
	for i, v := range in {
		if v == nil {
			return nil, fmt.Errorf("%s: input %d: got no value", op.Kind(), i)
		}
		specs[i] = v.Spec()
	}
	outs, err := op.Infer(specs)
	if err != nil {
		return nil, err
	}
	n := &Node{Name: name, Op: op, In: in, Out: make([]*Value, len(outs))}
	for i, s := range outs {
		n.Out[i] = &Value{Name: name, Shape: s.Shape, DType: s.DType, Node: n, Index: i}
	}
	return n, nil
}

// ParamCount returns the number of trained elements.
func (g *Graph) ParamCount() int64 {
	var n int64
	for _, p := range g.Params {
		n += p.Shape.Elements()
	}
	return n
}

// FLOPs returns the nominal number of floating-point operations of one run, including the backward pass if the graph
// has one. A recomputed node counts once.
func (g *Graph) FLOPs() int64 {
	var total int64
	for _, n := range g.Nodes {
		if n.Recomputed {
			continue
		}
		total += device.FLOPs(n.Op, specs(n.In), specs(n.Out))
	}
	return total
}

func specs(vs []*Value) []device.TensorSpec {
	out := make([]device.TensorSpec, len(vs))
	for i, v := range vs {
		out[i] = v.Spec()
	}
	return out
}
