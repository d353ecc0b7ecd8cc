package bookkeeping

import (
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Program is a list of checked steps.
type Program struct {
	Steps []Step

	dev    *Device
	closed bool
}

// Step is a checked device.Step: a launch with its kernel, or an event.
type Step struct {
	Launch       *device.Launch
	Kernel       *Kernel
	Record, Wait *Event
}

// NewProgram implements device.Device.
func (d *Device) NewProgram(steps []device.Step) (device.Program, error) {
	if err := d.Use(); err != nil {
		return nil, err
	}
	p := &Program{dev: d, Steps: make([]Step, len(steps))}
	for i, s := range steps {
		checked, err := d.checkStep(s)
		if err != nil {
			return nil, fmt.Errorf("%s: program: step %d: %w", d.Name, i, err)
		}
		p.Steps[i] = checked
	}
	return p, nil
}

func (d *Device) checkStep(s device.Step) (Step, error) {
	set := 0
	for _, there := range []bool{s.Launch != nil, s.Record != nil, s.Wait != nil} {
		if there {
			set++
		}
	}
	if set != 1 {
		return Step{}, fmt.Errorf("got %d of launch, record and wait, want exactly 1", set)
	}
	var out Step
	var err error
	switch {
	case s.Record != nil:
		if out.Record, err = d.Event(s.Record); err != nil {
			err = fmt.Errorf("record: %w", err)
		}
	case s.Wait != nil:
		if out.Wait, err = d.Event(s.Wait); err != nil {
			err = fmt.Errorf("wait: %w", err)
		}
	default:
		launch := *s.Launch
		launch.In = append([]device.Region(nil), launch.In...)
		launch.Out = append([]device.Region(nil), launch.Out...)
		out.Launch = &launch
		if out.Kernel, err = d.checkLaunch(&launch); err != nil {
			err = fmt.Errorf("launch %q: %w", launch.Name, err)
		}
	}
	return out, err
}

func (d *Device) checkLaunch(l *device.Launch) (*Kernel, error) {
	k, ok := l.Kernel.(*Kernel)
	switch {
	case !ok || k == nil || k.dev != d:
		return nil, fmt.Errorf("got a kernel of another device (%T), want one of %s", l.Kernel, d.Name)
	case k.closed:
		return nil, fmt.Errorf("%s: kernel is closed", k.Op.Kind())
	case len(l.In) != len(k.in) || len(l.Out) != len(k.out):
		return nil, fmt.Errorf("%s: got %d inputs and %d outputs, want %d and %d", k.Op.Kind(), len(l.In), len(l.Out),
			len(k.in), len(k.out))
	}
	if err := d.checkRegions(k, "input", l.In, k.in); err != nil {
		return nil, err
	}
	if err := d.checkRegions(k, "output", l.Out, k.out); err != nil {
		return nil, err
	}
	return k, checkSharing(k, l)
}

func (d *Device) checkRegions(k *Kernel, side string, regions []device.Region, specs []device.TensorSpec) error {
	for i, r := range regions {
		b, err := d.resolve(r)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %s %d: %w", k.Op.Kind(), side, i, err)
		case b.host:
			return fmt.Errorf("%s: %s %d: got host memory, want device memory", k.Op.Kind(), side, i)
		case r.Bytes != specs[i].Size():
			return fmt.Errorf("%s: %s %d: got a region of %d bytes, want %d bytes, the size of %v", k.Op.Kind(), side,
				i, r.Bytes, specs[i].Size(), specs[i])
		}
	}
	return nil
}

// checkSharing returns an error if an output overlaps an input, unless the op requires it or the kernel allows it.
func checkSharing(k *Kernel, l *device.Launch) error {
	may := append(device.Aliases(k.Op), k.shared...)
	for _, a := range device.Aliases(k.Op) {
		if l.Out[a.Out] != l.In[a.In] {
			return fmt.Errorf("%s: output %d updates input %d in place: got a different region, want the same region",
				k.Op.Kind(), a.Out, a.In)
		}
	}
	for o, out := range l.Out {
		for i, in := range l.In {
			if overlap(out, in) && !(out == in && shares(may, o, i)) {
				return fmt.Errorf("%s: output %d overlaps input %d", k.Op.Kind(), o, i)
			}
		}
		for other := range o {
			if overlap(out, l.Out[other]) {
				return fmt.Errorf("%s: outputs %d and %d overlap", k.Op.Kind(), other, o)
			}
		}
	}
	return nil
}

func shares(pairs []device.Alias, out, in int) bool {
	for _, p := range pairs {
		if p.Out == out && p.In == in {
			return true
		}
	}
	return false
}

// Describe implements device.DescribedProgram.
func (p *Program) Describe() []device.StepInfo {
	infos := make([]device.StepInfo, len(p.Steps))
	for i, s := range p.Steps {
		if s.Launch != nil {
			infos[i] = device.StepInfo{Name: s.Launch.Name, Op: s.Kernel.Op, In: s.Kernel.in, Out: s.Kernel.out}
		}
		infos[i].Waits = s.Wait != nil
	}
	return infos
}

func (p *Program) Close() error {
	if p.closed {
		return fmt.Errorf("%s: program closed twice", p.dev.Name)
	}
	p.closed = true
	return nil
}

// Program returns p as a program of this device, or an error.
func (d *Device) Program(p device.Program) (*Program, error) {
	if err := d.Use(); err != nil {
		return nil, err
	}
	prog, ok := p.(*Program)
	if !ok || prog == nil || prog.dev != d {
		return nil, fmt.Errorf("%s: run: got a program of another device (%T), want one of %s", d.Name, p, d.Name)
	}
	if prog.closed {
		return nil, fmt.Errorf("%s: run: program is closed", d.Name)
	}
	return prog, nil
}

// CheckElapsed returns an error unless there is one time per step.
func (p *Program) CheckElapsed(elapsed []time.Duration) error {
	if len(elapsed) != len(p.Steps) {
		return fmt.Errorf("%s: run timed: elapsed: got %d entries, want one for each of the %d steps", p.dev.Name,
			len(elapsed), len(p.Steps))
	}
	return nil
}

// Begin resets every event that the program will record.
func (p *Program) Begin() {
	for _, s := range p.Steps {
		if s.Record != nil {
			s.Record.Begin()
		}
	}
}

// fail marks as failed the events that the program would record from the given step on.
func (p *Program) fail(step int, err error) {
	for _, s := range p.Steps[step:] {
		if s.Record != nil {
			s.Record.Fail(err)
		}
	}
}
