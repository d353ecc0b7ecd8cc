//go:build cgo && linux

package native

// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/device"
)

// program implements device.Program.
type program struct {
	dev   *Device
	ptr   *C.ht_program
	steps []device.StepInfo
	born  int64    // creation time in ns of CLOCK_MONOTONIC
	held  []*holds // holds of kernels, buffers and events, one entry per use
	holds holds    // counts runs in progress
}

// NewProgram implements device.Device.
func (d *Device) NewProgram(steps []device.Step) (device.Program, error) {
	if err := d.hold(); err != nil {
		return nil, err
	}
	p := &program{dev: d, steps: make([]device.StepInfo, len(steps))}
	var a arena
	defer a.free()
	list := array[C.ht_step](&a, len(steps))
	for i, s := range steps {
		p.steps[i] = describe(s)
		if err := p.bind(&a, &list[i], s); err != nil {
			p.release()
			return nil, fmt.Errorf("%s: program: step %d: %w", d.info.Name, i, err)
		}
	}
	r := C.ht_do_program_create(d.api, d.ptr, unsafe.SliceData(list), C.int32_t(len(steps)))
	if err := check(r, d.info.Name+": program"); err != nil {
		p.release()
		return nil, err
	}
	p.ptr = (*C.ht_program)(r.value)
	p.born = int64(C.ht_monotonic_ns())
	d.programs.Store(p.ptr, p)
	return p, nil
}

// describe returns the name and the op of a step.
func describe(s device.Step) device.StepInfo {
	info := device.StepInfo{Waits: s.Wait != nil}
	if s.Launch != nil {
		info.Name = s.Launch.Name
		if k, ok := s.Launch.Kernel.(*kernel); ok && k != nil {
			info.Op, info.In, info.Out = k.op, k.in, k.out
		}
	}
	return info
}

// Describe implements device.DescribedProgram.
func (p *program) Describe() []device.StepInfo { return p.steps }

// bind checks a step and converts it to its C struct. The program holds all objects of the step.
func (p *program) bind(a *arena, c *C.ht_step, s device.Step) error {
	set := 0
	for _, there := range []bool{s.Launch != nil, s.Record != nil, s.Wait != nil} {
		if there {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("got %d of launch, record and wait, want exactly 1", set)
	case s.Launch != nil:
		if err := p.bindLaunch(a, c, s.Launch); err != nil {
			return fmt.Errorf("launch %q: %w", s.Launch.Name, err)
		}
		return nil
	case s.Record != nil:
		c.kind = C.HT_STEP_RECORD
		return p.bindEvent(c, s.Record)
	default:
		c.kind = C.HT_STEP_WAIT
		return p.bindEvent(c, s.Wait)
	}
}

func (p *program) bindEvent(c *C.ht_step, e device.Event) error {
	ev, err := p.dev.event(e)
	if err != nil {
		return err
	}
	p.held = append(p.held, &ev.holds)
	c.event = ev.ptr
	return nil
}

func (p *program) bindLaunch(a *arena, c *C.ht_step, l *device.Launch) error {
	k, ok := l.Kernel.(*kernel)
	if !ok || k == nil || k.dev != p.dev {
		return fmt.Errorf("got a kernel of another device (%T), want one of %s", l.Kernel, p.dev.info.Name)
	}
	if !k.holds.acquire() {
		return fmt.Errorf("%s: kernel is closed", k.name)
	}
	p.held = append(p.held, &k.holds)
	c.kind, c.kernel = C.HT_STEP_LAUNCH, k.ptr
	in, err := p.bindRegions(a, k, "input", l.In, k.in)
	if err != nil {
		return err
	}
	out, err := p.bindRegions(a, k, "output", l.Out, k.out)
	if err != nil {
		return err
	}
	c.in, c.out = unsafe.SliceData(in), unsafe.SliceData(out)
	if err := p.bindWorkspace(c, k, l); err != nil {
		return err
	}
	return checkSharing(k, l)
}

func (p *program) bindRegions(a *arena, k *kernel, side string, regions []device.Region, specs []device.TensorSpec) (
	[]unsafe.Pointer, error) {
	if len(regions) != len(specs) {
		return nil, fmt.Errorf("%s: got %d %ss, want %d", k.name, len(regions), side, len(specs))
	}
	addresses := array[unsafe.Pointer](a, len(regions))
	for i, r := range regions {
		ptr, err := p.bindRegion(r)
		if err == nil && r.Bytes != specs[i].Size() {
			err = fmt.Errorf("got a region of %d bytes, want %d bytes, the size of %v", r.Bytes, specs[i].Size(),
				specs[i])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s %d: %w", k.name, side, i, err)
		}
		addresses[i] = ptr
	}
	return addresses, nil
}

func (p *program) bindRegion(r device.Region) (unsafe.Pointer, error) {
	b, ptr, err := p.dev.at(r)
	if err != nil {
		return nil, err
	}
	p.held = append(p.held, &b.holds)
	if b.host {
		return nil, fmt.Errorf("got host memory, want device memory")
	}
	return ptr, nil
}

func (p *program) bindWorkspace(c *C.ht_step, k *kernel, l *device.Launch) error {
	if k.workspace == 0 {
		return nil
	}
	ptr, err := p.bindRegion(l.Workspace)
	if err == nil && l.Workspace.Bytes < k.workspace {
		err = fmt.Errorf("got %d bytes, want %d", l.Workspace.Bytes, k.workspace)
	}
	if err != nil {
		return fmt.Errorf("%s: workspace: %w", k.name, err)
	}
	c.workspace = ptr
	for _, r := range append(append([]device.Region(nil), l.In...), l.Out...) {
		if overlap(l.Workspace, r) {
			return fmt.Errorf("%s: the workspace overlaps an operand", k.name)
		}
	}
	return nil
}

// checkSharing returns an error if an output overlaps an input, unless the op requires it or the kernel allows it.
func checkSharing(k *kernel, l *device.Launch) error {
	for _, a := range k.aliases {
		if l.Out[a.Out] != l.In[a.In] {
			return fmt.Errorf("%s: output %d updates input %d in place: got a different region, want the same region",
				k.name, a.Out, a.In)
		}
	}
	for o, out := range l.Out {
		for i, in := range l.In {
			if overlap(out, in) && !(out.Offset == in.Offset && k.mayShare(device.Alias{Out: o, In: i})) {
				return fmt.Errorf("%s: output %d overlaps input %d", k.name, o, i)
			}
		}
		for other := range o {
			if overlap(out, l.Out[other]) {
				return fmt.Errorf("%s: outputs %d and %d overlap", k.name, other, o)
			}
		}
	}
	return nil
}

// overlap reports whether two regions have common bytes.
func overlap(a, b device.Region) bool {
	return a.Buffer == b.Buffer && a.Bytes > 0 && b.Bytes > 0 && a.Offset < b.Offset+b.Bytes &&
		b.Offset < a.Offset+a.Bytes
}

// release releases all objects that the program holds, and the program.
func (p *program) release() {
	for _, h := range p.held {
		h.release()
	}
	p.held = nil
	p.dev.holds.release()
}

func (p *program) Close() error {
	if err := p.holds.close(p.dev.info.Name+": close a program", "runs"); err != nil {
		return err
	}
	p.dev.programs.Delete(p.ptr)
	C.ht_do_program_free(p.dev.api, p.ptr)
	p.release()
	return nil
}
