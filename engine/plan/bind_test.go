package plan

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func TestBindWantsAnArenaThatHoldsAndTheModelsState(t *testing.T) {
	g := classifierGraph(t, small, 2, 8, tensor.F32, true)
	r := newRig(t, reference.New(), g)
	defer r.close()
	need := r.plan.ArenaBytes()
	larger, err := r.dev.Alloc(need + 256)
	if err != nil {
		t.Fatal(err)
	}
	defer larger.Free()
	// stranger is another first plan. Its parameter layout is another object with the same contents.
	stranger, err := Compile(r.cache, g, nil)
	if err != nil {
		t.Fatal(err)
	}
	strange, err := NewState(r.cache, stranger.Params())
	if err != nil {
		t.Fatal(err)
	}
	defer strange.Close()
	for _, c := range []struct {
		name  string
		arena device.Region
		state *State
		want  string // part of the error; "": no error
	}{
		{"exactly enough", device.Region{Buffer: larger, Bytes: need}, r.state, ""},
		{"enough behind other things", device.Region{Buffer: larger, Offset: 256, Bytes: need}, r.state, ""},
		{"one byte too few", device.Region{Buffer: larger, Bytes: need - 1}, r.state,
			fmt.Sprintf("arena: got %d bytes, want at least %d", need-1, need)},
		{"beyond its buffer", device.Region{Buffer: larger, Offset: 320, Bytes: need}, r.state, "outside its buffer"},
		{"no buffer", device.Region{Bytes: need}, r.state, "without a buffer"},
		{"not on a cache line", device.Region{Buffer: larger, Offset: 32, Bytes: need}, r.state,
			"got offset 32, want a multiple of 64"},
		{"another model's state", device.Region{Buffer: larger, Bytes: need}, strange, "another parameter layout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := r.plan.Bind(c.arena, c.state)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			r.batch()
			r.run(true) // after a refused Bind, the plan must keep its earlier binding
		})
	}
}

func TestPlanBoundAgainComputesTheSame(t *testing.T) {
	r := newRig(t, openParticular(moody(4)), classifierGraph(t, twoConvs, 3, 4, tensor.F32, true))
	r.batch()
	r.run(true)
	loss, grad := r.outputBytes("loss"), r.gradient("conv2.weight")
	old := r.arena
	r.bind()
	fill(old.Host(), 0) // the plan must not use its old arena
	if err := old.Free(); err != nil {
		t.Fatal(err)
	}
	r.run(true)
	if !bytes.Equal(r.outputBytes("loss"), loss) || !slices.Equal(r.gradient("conv2.weight"), grad) {
		t.Error("loss or gradient differ in another arena")
	}
	r.close()
}

func TestPlanThatIsNotBoundDoesNotRun(t *testing.T) {
	dev := reference.New()
	cache := NewCache(dev)
	defer cache.Close()
	p, err := Compile(cache, classifierGraph(t, small, 2, 8, tensor.F32, true), nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for name, f := range map[string]func() error{
		"Prepare":  func() error { return p.Prepare(stream) },
		"Forward":  func() error { return p.Forward(stream) },
		"Backward": func() error { return p.Backward(stream) },
		"RunTimed": func() error { return p.RunTimed(stream, make([]time.Duration, len(p.Launches()))) },
		"Input":    func() error { _, _, err := p.Input("images"); return err },
		"Output":   func() error { _, _, err := p.Output("loss"); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "before Bind") &&
			!strings.Contains(err.Error(), "not bound") {
			t.Errorf("%s: got %v, want an error that the plan is not bound", name, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Errorf("closing a plan that was never bound: %v", err)
	}
}

// faulty is a device. After a number of programs, its NewProgram fails.
type faulty struct {
	device.Device
	programs int // number of programs before NewProgram fails
}

func (d *faulty) NewProgram(steps []device.Step) (device.Program, error) {
	if d.programs--; d.programs < 0 {
		return nil, device.ErrDevice
	}
	return d.Device.NewProgram(steps)
}

func TestBindThatFailsHalfwayLeavesThePlanUnbound(t *testing.T) {
	dev := &faulty{reference.New(), 1000}
	r := newRig(t, dev, classifierGraph(t, small, 2, 8, tensor.F32, true))
	dev.programs = 1
	if err := r.plan.Bind(device.Whole(r.arena), r.state); !errors.Is(err, device.ErrDevice) {
		t.Errorf("got %v, want the device's error", err)
	}
	if err := r.plan.Forward(r.stream); err == nil || !strings.Contains(err.Error(), "before Bind") {
		t.Errorf("got %v, want an error about Bind", err)
	}
	dev.programs = 1000
	if err := r.plan.Bind(device.Whole(r.arena), r.state); err != nil {
		t.Fatal(err)
	}
	r.batch()
	r.run(true)
	r.close()
}

// The trainer runs plans for training and plans for evaluation alternately, in one arena.
func TestPlansShareAnArena(t *testing.T) {
	r := newRig(t, openParticular(tasteOfConvs), classifierGraph(t, twoConvs, 3, 4, tensor.F32, true))
	eval := r.compile(classifierGraph(t, twoConvs, 2, 4, tensor.F32, false))
	turns := func() (losses [][]byte) {
		for _, p := range r.state.Params.States {
			r.write(r.state.States, p, initial(p))
		}
		for range 2 {
			for _, r := range []*rig{r, eval} {
				r.batch()
				r.run(true)
				losses = append(losses, r.outputBytes("loss"))
			}
		}
		return losses
	}
	want := turns()
	shared, err := r.dev.Alloc(max(r.plan.ArenaBytes(), eval.plan.ArenaBytes()))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*rig{r, eval} {
		if err := r.plan.Bind(device.Whole(shared), r.state); err != nil {
			t.Fatal(err)
		}
	}
	if got := turns(); !reflect.DeepEqual(got, want) {
		t.Errorf("losses in a shared arena: got %v, want %v", got, want)
	}
	eval.release()
	if err := shared.Free(); err != nil {
		t.Error(err)
	}
	r.close()
}
