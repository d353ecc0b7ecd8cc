package plan

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Plan is a graph that is compiled for one device.
type Plan struct {
	cache      *Cache
	kernels    *lease
	params     *Params
	arenaBytes int64
	usage      Usage // contents of the arena at the launch that uses the most memory
	inputs     map[string]*version
	inputNames []string
	outputs    map[string]*version

	prepare, forward, backward []*launch
	bound                      bool
	arena                      device.Region
	programs                   [4]device.Program // program of each phase; nil if the phase has no steps
	// for each step of a program, the index of its launch; nil if the steps are exactly the launches
	owners [3][]int
}

// The programs of a plan.
const (
	prepare = iota
	forward
	backward
	backwardFinal // the backward pass with the steps of Wiring.Gradients; its program is nil without such steps
)

// ArenaBytes returns the memory that Bind needs: activations, their gradients, copies of parameters, scratch, inputs
// and outputs.
func (p *Plan) ArenaBytes() int64 { return p.arenaBytes }

// Params returns the layout of the plan's parameters and states.
func (p *Plan) Params() *Params { return p.params }

// Bind makes the plan runnable in arena, with the model's parameters. A plan may be bound again to other memory.
func (p *Plan) Bind(arena device.Region, state *State) error {
	return p.BindWired(arena, state, Wiring{})
}

// BindWired is Bind for a plan that exchanges values with other ranks. The events of w, and everything that the steps
// of w.Gradients use, must exist as long as the binding.
func (p *Plan) BindWired(arena device.Region, state *State, w Wiring) error {
	if err := p.checkBinding(arena, state, w); err != nil {
		return err
	}
	if err := p.Close(); err != nil {
		return err
	}
	p.arena = arena
	b := binder{arena: arena, state: state}
	events := &pairs{w.Ready, w.Done}
	for i, launches := range [][]*launch{p.prepare, p.forward, p.backward} {
		steps, owners := b.steps(launches, events)
		if p.owners[i] = nil; len(steps) != len(launches) {
			p.owners[i] = owners
		}
		if err := p.program(i, steps); err != nil {
			return err
		}
		if i == backward && len(w.Gradients) > 0 {
			if err := p.program(backwardFinal, p.insert(steps, owners, w.Gradients)); err != nil {
				return err
			}
		}
	}
	p.bound = true
	return nil
}

func (p *Plan) checkBinding(arena device.Region, state *State, w Wiring) error {
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
		return errors.New("plan: got a state of another parameter layout")
	}
	return w.check(p)
}

// program compiles one of the plan's programs.
func (p *Plan) program(i int, steps []device.Step) error {
	if len(steps) == 0 {
		return nil
	}
	prog, err := p.cache.Device.NewProgram(steps)
	if err != nil {
		return errors.Join(fmt.Errorf("plan: program %d: %w", i, err), p.Close())
	}
	p.programs[i] = prog
	return nil
}

// binder computes the memory regions of tensors, given the arena and the state that a plan is bound to.
type binder struct {
	arena device.Region
	state *State
}

// steps returns the steps of launches, and the launch of each step.
func (b binder) steps(launches []*launch, events *pairs) (steps []device.Step, owners []int) {
	add := func(s device.Step, owner int) { steps, owners = append(steps, s), append(owners, owner) }
	under := map[*launch]device.Event{} // exchanges whose results no launch has read yet, with their Done events
	began := map[*launch]int{}
	for i, l := range launches {
		if l.kernel == nil {
			ready, done := events.next()
			add(device.Step{Record: ready}, i)
			if under[l], began[l] = done, i; l.unread() {
				add(device.Step{Wait: done}, i)
				delete(under, l)
			}
			continue
		}
		for _, v := range l.in {
			if done, ok := under[v.producer]; ok {
				add(device.Step{Wait: done}, began[v.producer])
				delete(under, v.producer)
			}
		}
		add(device.Step{Launch: b.launch(l)}, i)
	}
	return steps, owners
}

// unread reports whether no launch reads the results of exchange l.
func (l *launch) unread() bool {
	for _, v := range l.out {
		if v.readers > 0 {
			return false
		}
	}
	return true
}

func (b binder) launch(l *launch) *device.Launch {
	s := &device.Launch{Name: l.name, Kernel: l.kernel}
	for _, v := range l.in {
		s.In = append(s.In, b.region(v.mem, v.at, v.spec.Size()))
	}
	for _, v := range l.out {
		s.Out = append(s.Out, b.region(v.mem, v.at, v.spec.Size()))
	}
	if l.workspace != nil {
		s.Workspace = b.region(l.workspace, 0, l.workspace.bytes)
	}
	return s
}

// region returns the part of storage s with the given number of bytes, from byte offset at on.
func (b binder) region(s *storage, at, bytes int64) device.Region {
	s = s.root()
	r := device.Region{Offset: s.offset + at, Bytes: bytes}
	switch s.buffer {
	case inArena:
		r.Buffer, r.Offset = b.arena.Buffer, b.arena.Offset+s.offset+at
	case inValues:
		r.Buffer = b.state.Values
	case inGrads:
		r.Buffer = b.state.Grads
	case inStates:
		r.Buffer = b.state.States
	}
	return r
}

// Input returns the region to which the host writes an input, in plain layout. The value remains until the host
// overwrites it.
func (p *Plan) Input(name string) (device.Region, device.TensorSpec, error) {
	return p.region("input", p.inputs, name)
}

// InputBytes returns the size of an input on the device, 0 if there is no such input. The plan need not be bound.
func (p *Plan) InputBytes(name string) int64 {
	if v := p.inputs[name]; v != nil {
		return v.spec.Size()
	}
	return 0
}

// OutputBytes returns the size of an output on the device, 0 if there is no such output. The plan need not be bound.
func (p *Plan) OutputBytes(name string) int64 {
	if v := p.outputs[name]; v != nil {
		return v.spec.Size()
	}
	return 0
}

// Output returns the region from which the host reads an output after a run, in plain layout.
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
	return binder{arena: p.arena}.region(v.mem, v.at, v.spec.Size()), v.spec, nil
}

// InputNames returns the names of the inputs, in the order of their declaration.
func (p *Plan) InputNames() []string {
	return slices.Clone(p.inputNames)
}

// Prepare writes the copies of parameters that kernels need. Call it after each change of parameters.
func (p *Plan) Prepare(s device.Stream) error { return p.run(s, prepare) }

// Forward runs the forward pass, from inputs to outputs. With gradients, outputs are complete after Backward.
func (p *Plan) Forward(s device.Stream) error { return p.run(s, forward) }

// Backward runs the backward pass, after Forward. It overwrites gradients.
func (p *Plan) Backward(s device.Stream) error { return p.run(s, backward) }

// BackwardFinal is Backward with the inserted steps, for the last micro-batch of an optimizer step.
func (p *Plan) BackwardFinal(s device.Stream) error {
	if p.programs[backwardFinal] == nil {
		return p.run(s, backward)
	}
	return p.run(s, backwardFinal)
}

func (p *Plan) run(s device.Stream, i int) error {
	if !p.bound {
		return errors.New("plan: Run was called before Bind")
	}
	if p.programs[i] == nil {
		return nil
	}
	return s.Run(p.programs[i])
}

// Close frees the programs. The cache owns the kernels, and the caller the memory. The plan may be bound again.
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

// Free closes the plan permanently, and frees the kernels that no other plan uses. Cache.Close frees the remaining
// kernels.
func (p *Plan) Free() error { return errors.Join(p.Close(), p.kernels.end()) }

// LaunchInfo describes one launch for reports and profilers.
type LaunchInfo struct {
	Name  string
	Op    device.Op
	Phase string // "prepare", "forward", "backward", "update"
	In    []device.TensorSpec
	Out   []device.TensorSpec
	FLOPs int64
	Bytes int64 // bytes of all operands together
}

var phaseNames = [3]string{"prepare", "forward", "backward"}

// Launches returns the launches in the order of execution.
func (p *Plan) Launches() []LaunchInfo {
	var infos []LaunchInfo
	for i, launches := range [][]*launch{p.prepare, p.forward, p.backward} {
		for _, l := range launches {
			infos = append(infos, launchInfo(l.name, phaseNames[i], l.op, specsOf(l.in), specsOf(l.out)))
		}
	}
	return infos
}

func launchInfo(name, phase string, op device.Op, in, out []device.TensorSpec) LaunchInfo {
	return LaunchInfo{Name: name, Op: op, Phase: phase, In: in, Out: out, FLOPs: device.FLOPs(op, in, out),
		Bytes: device.MovedBytes(in, out)}
}

// RunTimed runs prepare, forward and backward, and adds the time of launch i of Launches to elapsed[i].
func (p *Plan) RunTimed(s device.Stream, elapsed []time.Duration) error {
	if !p.bound {
		return errors.New("plan: Run was called before Bind")
	}
	for i, launches := range [][]*launch{p.prepare, p.forward, p.backward} {
		n := len(launches)
		if p.programs[i] != nil {
			if err := p.runTimed(s, i, elapsed[:n]); err != nil {
				return err
			}
		}
		elapsed = elapsed[n:]
	}
	return nil
}

// runTimed runs program i and adds to each launch the times of its steps. The time of an exchange is the time for which
// the pass waits for the exchange.
func (p *Plan) runTimed(s device.Stream, i int, elapsed []time.Duration) error {
	owners := p.owners[i]
	if owners == nil {
		return s.RunTimed(p.programs[i], elapsed)
	}
	steps := make([]time.Duration, len(owners))
	if err := s.RunTimed(p.programs[i], steps); err != nil {
		return err
	}
	for j, took := range steps {
		elapsed[owners[j]] += took
	}
	return nil
}

// WriteTo writes the plan as a table of launches, with the layout, buffer and offset of each operand.
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
		return fmt.Sprintf("%v%v %s %s+%d", v.spec.DType, v.spec.Shape, name, bufferNames[s.buffer], s.offset+v.at)
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
	_, err := fmt.Fprintf(count, "arena %d bytes, parameters %d bytes, %d launches\n", p.arenaBytes, p.params.Bytes,
		len(p.prepare)+len(p.forward)+len(p.backward))
	return count.n, err
}

var bufferNames = [...]string{inArena: "arena", inValues: "values", inGrads: "grads", inStates: "states"}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
