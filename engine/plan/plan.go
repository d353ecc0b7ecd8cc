package plan

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
)

// Plan is a graph made ready for one device.
type Plan struct {
	cache      *Cache
	graph      *graph.Graph
	params     *Params
	arenaBytes int64
	inputs     map[string]*version
	outputs    map[string]*version

	prepare, forward, backward []*launch
	bound                      bool
	arena                      device.Region
	programs                   [3]device.Program // prepare, forward, backward; nil where there is no launch
}

// ArenaBytes is what Bind needs: activations, gradients of activations, copies of parameters, scratch, inputs and outputs.
func (p *Plan) ArenaBytes() int64 { return p.arenaBytes }

// Params is the layout of parameters and states that the plan works on.
func (p *Plan) Params() *Params { return p.params }

// Bind makes the plan runnable in arena, with the model's parameters. A plan may be bound again, to other memory.
func (p *Plan) Bind(arena device.Region, state *State) error {
	if err := arena.Check(); err != nil {
		return fmt.Errorf("plan: arena: %w", err)
	}
	if arena.Offset%alignBytes != 0 {
		return fmt.Errorf("plan: arena: got offset %d, want a multiple of %d bytes", arena.Offset, alignBytes)
	}
	if arena.Bytes < p.arenaBytes {
		return fmt.Errorf("plan: arena: got %d bytes, want at least %d", arena.Bytes, p.arenaBytes)
	}
	if state.Params != p.params {
		return errors.New("plan: the state belongs to another parameter layout")
	}
	if err := p.Close(); err != nil {
		return err
	}
	p.arena = arena
	b := binder{arena: arena, state: state}
	for i, launches := range [][]*launch{p.prepare, p.forward, p.backward} {
		if len(launches) == 0 {
			continue
		}
		prog, err := p.cache.Device.NewProgram(b.steps(launches))
		if err != nil {
			return errors.Join(fmt.Errorf("plan: program %d: %w", i, err), p.Close())
		}
		p.programs[i] = prog
	}
	p.bound = true
	return nil
}

// binder turns places into regions.
type binder struct {
	arena device.Region
	state *State
}

func (b binder) steps(launches []*launch) []device.Step {
	steps := make([]device.Step, len(launches))
	for i, l := range launches {
		s := &device.Launch{Name: l.name, Kernel: l.kernel}
		for _, v := range l.in {
			s.In = append(s.In, b.region(v.mem, v.spec.Size()))
		}
		for _, v := range l.out {
			s.Out = append(s.Out, b.region(v.mem, v.spec.Size()))
		}
		if l.workspace != nil {
			s.Workspace = b.region(l.workspace, l.workspace.bytes)
		}
		steps[i] = device.Step{Launch: s}
	}
	return steps
}

func (b binder) region(s *storage, bytes int64) device.Region {
	s = s.root()
	r := device.Region{Offset: s.offset, Bytes: bytes}
	switch s.place {
	case inArena:
		r.Buffer, r.Offset = b.arena.Buffer, b.arena.Offset+s.offset
	case inValues:
		r.Buffer = b.state.Values
	case inGrads:
		r.Buffer = b.state.Grads
	case inStates:
		r.Buffer = b.state.States
	}
	return r
}

// Input is where the host writes an input, in plain layout. It stays as it is until it is written again.
func (p *Plan) Input(name string) (device.Region, device.TensorSpec, error) {
	return p.region("input", p.inputs, name)
}

// Output is where the host finds an output, in plain layout, after a run.
func (p *Plan) Output(name string) (device.Region, device.TensorSpec, error) {
	return p.region("output", p.outputs, name)
}

func (p *Plan) region(what string, of map[string]*version, name string) (device.Region, device.TensorSpec, error) {
	v := of[name]
	if v == nil {
		return device.Region{}, device.TensorSpec{}, fmt.Errorf("plan: no %s %q", what, name)
	}
	if !p.bound {
		return device.Region{}, device.TensorSpec{}, fmt.Errorf("plan: %s %q: the plan is not bound", what, name)
	}
	return binder{arena: p.arena}.region(v.mem, v.spec.Size()), v.spec, nil
}

// InputNames are the inputs, in the order of their declaration.
func (p *Plan) InputNames() []string {
	names := make([]string, len(p.graph.Inputs))
	for i, in := range p.graph.Inputs {
		names[i] = in.Name
	}
	return names
}

// Prepare makes the copies of parameters that kernels want. Run it after each change of parameters.
func (p *Plan) Prepare(s device.Stream) error { return p.run(s, 0) }

// Forward runs the forward pass: from inputs to outputs.
func (p *Plan) Forward(s device.Stream) error { return p.run(s, 1) }

// Backward runs the backward pass, after Forward: gradients are overwritten, not added to.
func (p *Plan) Backward(s device.Stream) error { return p.run(s, 2) }

func (p *Plan) run(s device.Stream, i int) error {
	if !p.bound {
		return errors.New("plan: run before Bind")
	}
	if p.programs[i] == nil {
		return nil
	}
	return s.Run(p.programs[i])
}

// Close frees the programs; the kernels belong to the cache, the memory to the caller.
func (p *Plan) Close() error {
	var errs []error
	for i, prog := range p.programs {
		if prog != nil {
			errs = append(errs, prog.Close())
		}
		p.programs[i] = nil
	}
	p.bound = false
	return errors.Join(errs...)
}

// LaunchInfo describes one launch to people and profilers.
type LaunchInfo struct {
	Name  string
	Op    device.Op
	Phase string // "prepare", "forward", "backward"
	In    []device.TensorSpec
	Out   []device.TensorSpec
	FLOPs int64
	Bytes int64 // every operand once
}

var phaseNames = [3]string{"prepare", "forward", "backward"}

// Launches lists what runs, in order.
func (p *Plan) Launches() []LaunchInfo {
	var infos []LaunchInfo
	for i, launches := range [][]*launch{p.prepare, p.forward, p.backward} {
		for _, l := range launches {
			in, out := specsOf(l.in), specsOf(l.out)
			infos = append(infos, LaunchInfo{Name: l.name, Op: l.op, Phase: phaseNames[i], In: in, Out: out,
				FLOPs: device.FLOPs(l.op, in, out), Bytes: device.MovedBytes(in, out)})
		}
	}
	return infos
}

// RunTimed runs prepare, forward and backward and adds each launch's time, in the order of Launches.
func (p *Plan) RunTimed(s device.Stream, elapsed []time.Duration) error {
	if !p.bound {
		return errors.New("plan: run before Bind")
	}
	for i, launches := range [][]*launch{p.prepare, p.forward, p.backward} {
		n := len(launches)
		if p.programs[i] != nil {
			if err := s.RunTimed(p.programs[i], elapsed[:n]); err != nil {
				return err
			}
		}
		elapsed = elapsed[n:]
	}
	return nil
}

// WriteTo writes the plan as a table: launches with layouts and places.
func (p *Plan) WriteTo(w io.Writer) (int64, error) {
	count := &countingWriter{w: w}
	t := tabwriter.NewWriter(count, 0, 0, 2, ' ', 0)
	layout := func(l device.Layout) string { return fmt.Sprint("layout ", uint32(l)) }
	if n, ok := p.cache.Device.(device.LayoutNamer); ok {
		layout = n.LayoutName
	}
	operand := func(v *version) string {
		s := v.mem.root()
		name := "plain"
		if v.spec.Layout != device.Plain {
			name = layout(v.spec.Layout)
		}
		return fmt.Sprintf("%v%v %s %s+%d", v.spec.DType, v.spec.Shape, name, placeNames[s.place], s.offset)
	}
	for i, launches := range [][]*launch{p.prepare, p.forward, p.backward} {
		for _, l := range launches {
			var operands []string
			for _, v := range l.in {
				operands = append(operands, operand(v))
			}
			operands = append(operands, "->")
			for _, v := range l.out {
				operands = append(operands, operand(v))
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", phaseNames[i], l.name, l.op.Kind(), strings.Join(operands, " "))
		}
	}
	if err := t.Flush(); err != nil {
		return count.n, err
	}
	_, err := fmt.Fprintf(count, "arena %d bytes, parameters %d bytes, %d launches\n", p.arenaBytes, p.params.Bytes, len(p.prepare)+len(p.forward)+len(p.backward))
	return count.n, err
}

var placeNames = [...]string{inArena: "arena", inValues: "values", inGrads: "grads", inStates: "states"}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
