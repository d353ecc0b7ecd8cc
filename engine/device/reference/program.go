package reference

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

type program struct {
	dev    *Device
	steps  []step
	closed bool
}

// step is a checked device.Step: one of the pointers is set.
type step struct {
	launch       *device.Launch
	kernel       *kernel
	record, wait *event
}

// NewProgram implements device.Device.
func (d *Device) NewProgram(steps []device.Step) (device.Program, error) {
	if err := d.use(); err != nil {
		return nil, err
	}
	p := &program{dev: d, steps: make([]step, len(steps))}
	for i, s := range steps {
		checked, err := d.checkStep(s)
		if err != nil {
			return nil, fmt.Errorf("reference: program: step %d: %w", i, err)
		}
		p.steps[i] = checked
	}
	return p, nil
}

func (d *Device) checkStep(s device.Step) (step, error) {
	set := 0
	for _, there := range []bool{s.Launch != nil, s.Record != nil, s.Wait != nil} {
		if there {
			set++
		}
	}
	if set != 1 {
		return step{}, fmt.Errorf("got %d of launch, record and wait, want exactly 1", set)
	}
	var out step
	var err error
	switch {
	case s.Record != nil:
		if out.record, err = d.event(s.Record); err != nil {
			err = fmt.Errorf("record: %w", err)
		}
	case s.Wait != nil:
		if out.wait, err = d.event(s.Wait); err != nil {
			err = fmt.Errorf("wait: %w", err)
		}
	default:
		launch := *s.Launch
		launch.In = append([]device.Region(nil), launch.In...)
		launch.Out = append([]device.Region(nil), launch.Out...)
		out.launch = &launch
		if out.kernel, err = d.checkLaunch(&launch); err != nil {
			err = fmt.Errorf("launch %q: %w", launch.Name, err)
		}
	}
	return out, err
}

func (d *Device) checkLaunch(l *device.Launch) (*kernel, error) {
	k, ok := l.Kernel.(*kernel)
	switch {
	case !ok || k == nil || k.dev != d:
		return nil, fmt.Errorf("got a kernel of another device (%T), want one of %s", l.Kernel, d.name)
	case k.closed:
		return nil, fmt.Errorf("%s: kernel is closed", k.op.Kind())
	case len(l.In) != len(k.in) || len(l.Out) != len(k.out):
		return nil, fmt.Errorf("%s: got %d inputs and %d outputs, want %d and %d", k.op.Kind(), len(l.In), len(l.Out), len(k.in), len(k.out))
	}
	if err := d.checkRegions(k, "input", l.In, k.in); err != nil {
		return nil, err
	}
	if err := d.checkRegions(k, "output", l.Out, k.out); err != nil {
		return nil, err
	}
	return k, checkSharing(k, l)
}

func (d *Device) checkRegions(k *kernel, side string, regions []device.Region, specs []device.TensorSpec) error {
	for i, r := range regions {
		b, err := d.resolve(r)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %s %d: %w", k.op.Kind(), side, i, err)
		case b.host:
			return fmt.Errorf("%s: %s %d: got host memory, want device memory", k.op.Kind(), side, i)
		case r.Bytes != specs[i].Size():
			return fmt.Errorf("%s: %s %d: got a region of %d bytes, want the %d of %v", k.op.Kind(), side, i, r.Bytes, specs[i].Size(), specs[i])
		}
	}
	return nil
}

// checkSharing allows an output to lie where an input is only as the op demands or the kernel offers.
func checkSharing(k *kernel, l *device.Launch) error {
	may := append(device.Aliases(k.op), k.inPlace...)
	for _, a := range device.Aliases(k.op) {
		if l.Out[a.Out] != l.In[a.In] {
			return fmt.Errorf("%s: output %d: got other memory than that of input %d, which it updates", k.op.Kind(), a.Out, a.In)
		}
	}
	for o, out := range l.Out {
		for i, in := range l.In {
			if overlap(out, in) && !(out == in && shares(may, o, i)) {
				return fmt.Errorf("%s: output %d overlaps input %d", k.op.Kind(), o, i)
			}
		}
		for other := range o {
			if overlap(out, l.Out[other]) {
				return fmt.Errorf("%s: outputs %d and %d overlap", k.op.Kind(), other, o)
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

func (p *program) Close() error {
	if p.closed {
		return fmt.Errorf("reference: program closed twice")
	}
	p.closed = true
	return nil
}

// run executes one step. What a launch is bound to was checked when the program was made; memory that was freed since is found again.
func (s step) run() error {
	switch {
	case s.record != nil:
		s.record.finish()
		return nil
	case s.wait != nil:
		<-s.wait.completion()
		return nil
	}
	in, err := s.operands("input", s.launch.In, s.kernel.in)
	if err != nil {
		return err
	}
	out, err := s.operands("output", s.launch.Out, s.kernel.out)
	if err != nil {
		return err
	}
	if err := s.kernel.run(in, out); err != nil {
		return fmt.Errorf("launch %q: %w", s.launch.Name, err)
	}
	return nil
}

func (s step) operands(side string, regions []device.Region, specs []device.TensorSpec) ([]operand, error) {
	out := make([]operand, len(regions))
	for i, r := range regions {
		if r.Buffer.Host() == nil {
			return nil, fmt.Errorf("launch %q: %s %d: its buffer was freed", s.launch.Name, side, i)
		}
		out[i] = operand{spec: specs[i], mem: r.Host()}
	}
	return out, nil
}
