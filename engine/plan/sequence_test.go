package plan

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// roomy is a reference device whose kernels need a workspace.
type roomy struct {
	device.Device
	bytes      int64
	workspaces []int64 // those of the launches of the last program
}

type roomyKernel struct {
	device.Kernel
	bytes int64
}

func (k roomyKernel) Workspace() int64 { return k.bytes }

func (d *roomy) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	k, err := d.Device.Compile(op, in, out)
	return roomyKernel{k, d.bytes}, err
}

func (d *roomy) NewProgram(steps []device.Step) (device.Program, error) {
	d.workspaces = nil
	var plain []device.Step
	for _, s := range steps {
		l := *s.Launch
		d.workspaces = append(d.workspaces, l.Workspace.Bytes)
		l.Kernel, l.Workspace = l.Kernel.(roomyKernel).Kernel, device.Region{}
		plain = append(plain, device.Step{Launch: &l})
	}
	return d.Device.NewProgram(plain)
}

func TestSequenceRunsItsOpsInOrderWithTheirWorkspace(t *testing.T) {
	for _, workspace := range []int64{0, 192} {
		dev := &roomy{Device: reference.New(), bytes: workspace}
		cache := NewCache(dev)
		spec := device.Spec(tensor.F32, 3)
		buffer, err := dev.Alloc(2 * spec.Size())
		if err != nil {
			t.Fatal(err)
		}
		first, second := At(buffer, 0, spec), At(buffer, spec.Size(), spec)
		copy(buffer.Host(), reference.Encode(tensor.F32, []float64{1, 2, 3}))

		ops := NewSequence(cache)
		ops.Launch("square", device.Unary{Func: device.Square}, []Operand{first}, second)
		ops.Launch("add", device.Binary{Func: device.Add}, []Operand{first, second}, first)
		program, err := ops.Program()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ops.Program(); again != program || err != nil {
			t.Errorf("second call of Program: got %v, %v, want the same program", again, err)
		}
		stream, err := dev.NewStream()
		if err == nil {
			err = errors.Join(stream.Run(program), stream.Sync())
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, want := reference.Decode(tensor.F32, buffer.Host()),
			[]float64{2, 6, 12, 1, 4, 9}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if want := []int64{workspace, workspace}; !slices.Equal(dev.workspaces, want) || ops.Bytes() != 2*workspace {
			t.Errorf("workspaces: got %v, in total %d bytes, want %v", dev.workspaces, ops.Bytes(), want)
		}
		if err := errors.Join(ops.Close(), stream.Close(), buffer.Free(), cache.Close()); err != nil {
			t.Error(err)
		}
		if used, _ := dev.Memory(); used != 0 {
			t.Errorf("after Close: got %d allocated bytes, want 0", used)
		}
	}
}

func TestSequenceKeepsItsFirstFailure(t *testing.T) {
	dev := reference.New()
	cache := NewCache(dev)
	defer cache.Close()
	spec := device.Spec(tensor.F32, 3)
	buffer, err := dev.Alloc(spec.Size())
	if err != nil {
		t.Fatal(err)
	}
	defer buffer.Free()
	x := At(buffer, 0, spec)

	ops := NewSequence(cache)
	defer ops.Close()
	ops.Launch("sum of one", device.Binary{Func: device.Add}, []Operand{x}, x)
	ops.Launch("double", device.Binary{Func: device.Add}, []Operand{x, x}, x)
	if _, err := ops.Program(); err == nil || err != ops.Err() || !strings.HasPrefix(err.Error(), "sum of one: ") {
		t.Errorf("got %v, want an error of the launch %q", err, "sum of one")
	}
}
