package plan

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Sequence compiles a list of ops that run outside a graph, such as the update of an optimizer. It owns the workspace
// of the kernels. After a failure, a Sequence does nothing, and Err and Program return the failure.
type Sequence struct {
	cache   *Cache
	steps   []device.Step
	ops     []device.Op     // of the steps
	memory  []device.Buffer // workspace
	program device.Program
	err     error
}

// Operand is a tensor in device memory.
type Operand struct {
	Spec device.TensorSpec
	At   device.Region
}

// At returns the tensor at an offset in bytes of a buffer.
func At(b device.Buffer, offset int64, spec device.TensorSpec) Operand {
	return Operand{spec, device.Region{Buffer: b, Offset: offset, Bytes: spec.Size()}}
}

// NewSequence returns an empty sequence. The caller closes it before cache.
func NewSequence(cache *Cache) *Sequence { return &Sequence{cache: cache} }

// Launch appends an op. It also returns the step, for programs with further steps.
func (s *Sequence) Launch(name string, op device.Op, in []Operand, out ...Operand) device.Step {
	if s.err != nil {
		return device.Step{}
	}
	split := func(list []Operand) (specs []device.TensorSpec, at []device.Region) {
		for _, o := range list {
			specs, at = append(specs, o.Spec), append(at, o.At)
		}
		return specs, at
	}
	l := &device.Launch{Name: name}
	var inSpecs, outSpecs []device.TensorSpec
	inSpecs, l.In = split(in)
	outSpecs, l.Out = split(out)
	if l.Kernel, s.err = s.cache.Compile(op, inSpecs, outSpecs); s.err != nil {
		s.err = fmt.Errorf("%s: %w", name, s.err)
		return device.Step{}
	}
	if bytes := l.Kernel.Workspace(); bytes > 0 {
		var ws device.Buffer
		if ws, s.err = s.cache.Device.Alloc(bytes); s.err != nil {
			s.err = fmt.Errorf("%s: workspace of %d bytes: %w", name, bytes, s.err)
			return device.Step{}
		}
		s.memory, l.Workspace = append(s.memory, ws), device.Whole(ws)
	}
	step := device.Step{Launch: l}
	s.steps, s.ops = append(s.steps, step), append(s.ops, op)
	return step
}

// Launches returns the launches in order. Their phase is "update".
func (s *Sequence) Launches() []LaunchInfo {
	infos := make([]LaunchInfo, len(s.steps))
	for i, step := range s.steps {
		infos[i] = launchInfo(step.Launch.Name, "update", s.ops[i], step.Launch.Kernel.In(), step.Launch.Kernel.Out())
	}
	return infos
}

// Err returns the first failure of Launch.
func (s *Sequence) Err() error { return s.err }

// Program returns the program of all launches. The sequence owns it.
func (s *Sequence) Program() (device.Program, error) {
	if s.err == nil && s.program == nil {
		s.program, s.err = s.cache.Device.NewProgram(s.steps)
	}
	return s.program, s.err
}

// Bytes returns the size of the workspace in device memory.
func (s *Sequence) Bytes() (n int64) {
	for _, b := range s.memory {
		n += b.Bytes()
	}
	return n
}

// Close frees the program and the workspace. The caller first closes other programs with its steps.
func (s *Sequence) Close() error {
	var errs []error
	if s.program != nil {
		errs = append(errs, s.program.Close())
	}
	for _, b := range s.memory {
		errs = append(errs, b.Free())
	}
	s.program, s.memory, s.steps, s.ops = nil, nil, nil, nil
	return errors.Join(errs...)
}
