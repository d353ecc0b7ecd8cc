package plan

import (
	"errors"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
)

// oracle runs a graph without a plan, one node after the other, on the reference device. Every tensor is plain and has
// its own memory. A plan may share memory, and may fuse, reorder or omit nodes, but its results must be the same.
type oracle struct {
	dev    *reference.Device
	stream device.Stream
	values map[*graph.Value]device.Buffer
	all    []device.Buffer
}

// newOracle computes every value of g. given contains the inputs, parameters and states by name.
func newOracle(t tb, g *graph.Graph, given map[string][]byte) *oracle {
	t.Helper()
	o := &oracle{dev: reference.New(), values: map[*graph.Value]device.Buffer{}}
	var err error
	if o.stream, err = o.dev.NewStream(); err != nil {
		t.Fatal(err)
	}
	for _, vs := range [][]*graph.Value{g.Inputs, g.Params, g.States} {
		for _, v := range vs {
			b, ok := given[v.Name]
			if !ok || int64(len(b)) != v.Spec().Size() {
				t.Fatalf("oracle: %v: got %d bytes", v, len(b))
			}
			if o.values[v], err = o.alloc(v.Spec()); err != nil {
				t.Fatal(err)
			}
			copy(o.values[v].Host(), b)
		}
	}
	for _, n := range g.Nodes {
		if err := o.node(n); err != nil {
			t.Fatalf("oracle: %s: %v", n.Name, err)
		}
	}
	return o
}

func (o *oracle) alloc(s device.TensorSpec) (device.Buffer, error) {
	b, err := o.dev.Alloc(s.Size())
	if err == nil {
		o.all = append(o.all, b)
	}
	return b, err
}

func (o *oracle) node(n *graph.Node) error {
	specs := func(vs []*graph.Value) (list []device.TensorSpec) {
		for _, v := range vs {
			list = append(list, v.Spec())
		}
		return list
	}
	k, err := o.dev.Compile(n.Op, specs(n.In), specs(n.Out))
	if err != nil {
		return err
	}
	l := &device.Launch{Name: n.Name, Kernel: k}
	for _, v := range n.In {
		l.In = append(l.In, device.Whole(o.values[v]))
	}
	for i, s := range k.Out() {
		b, err := o.alloc(s)
		if err != nil {
			return err
		}
		for _, a := range device.Aliases(n.Op) {
			if a.Out == i {
				b = o.values[n.In[a.In]]
			}
		}
		o.values[n.Out[i]] = b
		l.Out = append(l.Out, device.Whole(b))
	}
	prog, err := o.dev.NewProgram([]device.Step{{Launch: l}})
	if err != nil {
		return err
	}
	return errors.Join(o.stream.Run(prog), prog.Close(), k.Close())
}

// bytes returns a value in plain layout. For a state, this is the value after the run.
func (o *oracle) bytes(v *graph.Value) []byte { return o.values[v].Host() }
