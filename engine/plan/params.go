package plan

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// alignBytes aligns every tensor to a cache line and to the widest vector.
const alignBytes = 64

func alignUp(n int64) int64 { return (n + alignBytes - 1) / alignBytes * alignBytes }

// ParamInfo describes one parameter, or one state, and its offset.
type ParamInfo struct {
	Name   string
	Init   graph.Init
	Spec   device.TensorSpec // canonical spec: shape, type, layout, bytes
	Offset int64             // bytes from the start of the flat buffer
	Frozen bool              // a parameter that is not trained, or a state that is not updated
	Layer  int               // for a parameter: number of layers before the parameter's layer
}

// Params is the memory layout of a model's parameters and states. It is the same for all plans of the model.
type Params struct {
	// in the order of the flat buffer: parameters as the backward pass completes their gradients, then frozen ones
	Params []ParamInfo
	// Trained is the number of parameters, at the start of Params, for which the backward pass computes gradients. The
	// gradients of the remaining parameters stay zero.
	Trained int
	Bytes   int64 // size of the flat buffer of values
	// TrainBytes is the size of the part of the flat buffer before the frozen parameters. The flat buffers of gradients
	// and moments have this size.
	TrainBytes int64
	States     []ParamInfo // running statistics, in another flat buffer; frozen ones last
	// StateBytes is the size of the states' buffer. MovingBytes is the size of the part of this buffer before the
	// frozen states.
	StateBytes, MovingBytes int64
	DType                   tensor.DType // type of every parameter

	index map[string]int
	plain bool // made by CompilePlain
}

// Elements returns the length of the flat buffer in elements, including padding.
func (p *Params) Elements() int { return int(p.Bytes / p.DType.Size()) }

// TrainElements returns the length of the flat buffers of gradients and moments in elements.
func (p *Params) TrainElements() int { return int(p.TrainBytes / p.DType.Size()) }

// Find returns the position of a parameter by name.
func (p *Params) Find(name string) (int, bool) {
	i, ok := p.index[name]
	return i, ok
}

// newParams assigns offsets to the parameters in the given order, with their canonical specs.
func newParams(g *graph.Graph, order []*graph.Value, spec func(*graph.Value) device.TensorSpec) *Params {
	p := &Params{DType: g.ParamType(), Trained: len(g.Gradients), index: map[string]int{}}
	for _, v := range order {
		info := ParamInfo{Name: v.Name, Init: v.Init, Spec: spec(v), Offset: p.Bytes, Frozen: v.Frozen, Layer: v.Layer}
		p.index[v.Name] = len(p.Params)
		p.Params = append(p.Params, info)
		if p.Bytes += alignUp(info.Spec.Size()); !v.Frozen {
			p.TrainBytes = p.Bytes
		}
	}
	for _, v := range g.States {
		info := ParamInfo{Name: v.Name, Init: v.Init, Spec: v.Spec(), Offset: p.StateBytes, Frozen: v.Frozen}
		p.States = append(p.States, info)
		if p.StateBytes += alignUp(info.Spec.Size()); !v.Frozen {
			p.MovingBytes = p.StateBytes
		}
	}
	return p
}

// check compares the parameters of a graph with the fixed layout.
func (p *Params) check(g *graph.Graph) error {
	if len(g.Params) != len(p.Params) || len(g.States) != len(p.States) {
		return fmt.Errorf("plan: graph has %d parameters and %d states, want the %d and %d of the model", len(g.Params),
			len(g.States), len(p.Params), len(p.States))
	}
	if g.ParamType() != p.DType {
		return fmt.Errorf("plan: graph has parameters of type %v, want the model's %v", g.ParamType(), p.DType)
	}
	for _, v := range g.Params {
		i, ok := p.Find(v.Name)
		if !ok {
			return fmt.Errorf("plan: got a graph with parameter %s, which the model does not have", v.Name)
		}
		if want := p.Params[i].Spec.Shape; !v.Shape.Equal(want) {
			return fmt.Errorf("plan: parameter %s: got shape %v, want the model's %v", v.Name, v.Shape, want)
		}
	}
	for i, v := range g.States {
		if v.Name != p.States[i].Name || !v.Shape.Equal(p.States[i].Spec.Shape) {
			return fmt.Errorf("plan: state %d: got %s %v, want %s %v", i, v.Name, v.Shape, p.States[i].Name,
				p.States[i].Spec.Shape)
		}
	}
	return nil
}
