package cuda_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// activeRig is a program of three launches, and page-locked memory that each run first copies to the device.
type activeRig struct {
	t         *testing.T
	dev       device.Device
	noter     device.ActivityNoter
	stream    device.Stream
	steps     []device.Step
	program   device.Program
	host, mem device.Buffer
}

const rigValues = 256

func newActiveRig(t *testing.T) *activeRig {
	t.Helper()
	dev, err := loadShim(t).Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &activeRig{t: t, dev: dev, noter: dev.(device.ActivityNoter)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	spec := []device.TensorSpec{device.Spec(tensor.F32, rigValues)}
	kernel, err := dev.Compile(device.Unary{Func: device.ReLU}, spec, spec)
	must(err)
	r.host, err = dev.AllocHost(4 * rigValues)
	must(err)
	r.mem, err = dev.Alloc(4 * 4 * rigValues)
	must(err)
	region := func(i int64) []device.Region {
		return []device.Region{{Buffer: r.mem, Offset: i * 4 * rigValues, Bytes: 4 * rigValues}}
	}
	for i := range int64(3) {
		r.steps = append(r.steps,
			device.Step{Launch: &device.Launch{Name: "layer", Kernel: kernel, In: region(i), Out: region(i + 1)}})
	}
	r.program, err = dev.NewProgram(r.steps)
	must(err)
	r.stream, err = dev.NewStream()
	must(err)
	t.Cleanup(func() {
		for _, end := range []func() error{r.stream.Close, func() error { return r.program.Close() }, kernel.Close,
			r.mem.Free, r.host.Free, dev.Close} {
			must(end())
		}
	})
	return r
}

// run copies and runs the program the given number of times, then waits.
func (r *activeRig) run(times int) {
	r.t.Helper()
	for range times {
		if err := errors.Join(r.stream.Copy(device.Region{Buffer: r.mem, Bytes: 4 * rigValues}, device.Whole(r.host)),
			r.stream.Run(r.program)); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.stream.Sync(); err != nil {
		r.t.Fatal(err)
	}
}

// note calls run, with the given number of times, while the device records its activities. It returns the activities.
func (r *activeRig) note(times int) (device.Activities, error) {
	r.t.Helper()
	if err := r.noter.StartActivity(); err != nil {
		return device.Activities{}, err
	}
	r.run(times)
	return r.noter.StopActivity()
}

func ofKind(all device.Activities, kind device.ActivityKind) (some []device.Activity) {
	for _, a := range all.List {
		if a.Kind == kind {
			some = append(some, a)
		}
	}
	return some
}

// Each recorded kernel must carry the step of the program that launched it. This must also hold in a second session.
func TestAGPUNotesWhatItDoes(t *testing.T) {
	r := newActiveRig(t)
	r.run(3) // creates a graph without a recording
	for session := range 2 {
		before := time.Now()
		all, err := r.note(9)
		if err != nil {
			t.Fatal(err)
		}
		kernels, copies, calls := ofKind(all, device.KernelActivity), ofKind(all, device.CopyActivity),
			ofKind(all, device.CallActivity)
		if len(kernels) != 27 || len(copies) != 9 || all.Lost != 0 {
			t.Fatalf("session %d: got %d kernels, %d copies, %d lost, want 27, 9 and 0", session, len(kernels),
				len(copies), all.Lost)
		}
		for i, k := range kernels {
			if k.Program != r.program || k.Step != i%3 || k.Name != "apply<float, 4>" {
				t.Errorf("session %d, kernel %d: got %+v, want step %d of the program", session, i, k, i%3)
			}
			if i > 0 && k.Begin < kernels[i-1].End {
				t.Errorf("session %d, kernel %d begins at %d, before the end of the one before it, %d", session, i,
					k.Begin, kernels[i-1].End)
			}
			if k.Lane != copies[0].Lane || all.Zero.Add(k.Begin).Before(before) ||
				all.Zero.Add(k.End).After(time.Now()) {
				t.Errorf("session %d, kernel %d: got %+v, want it on stream %d since the session began", session, i, k,
					copies[0].Lane)
			}
		}
		for i, c := range copies {
			if c.Bytes != 4*rigValues || c.Program != nil {
				t.Errorf("session %d, copy %d: got %+v, want %d bytes of no program", session, i, c, 4*rigValues)
			}
		}
		count := map[string]int{}
		for _, c := range calls {
			count[c.Name]++
		}
		if count["cudaGraphLaunch"] != 9 || count["cudaGraphInstantiate"] != 1 || count["cudaMemcpyAsync"] != 9 ||
			count["cudaStreamSynchronize"] != 1 {
			t.Errorf("session %d: got calls %v", session, count)
		}
		r.run(2)
	}
}

// The next program is likely to have the address of the closed program. It must not get the activities of the closed
// program.
func TestActivitiesOfAClosedProgram(t *testing.T) {
	r := newActiveRig(t)
	if err := r.noter.StartActivity(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		r.run(1)
		if err := r.program.Close(); err != nil {
			t.Fatal(err)
		}
		var err error
		if r.program, err = r.dev.NewProgram(r.steps); err != nil {
			t.Fatal(err)
		}
	}
	r.run(1)
	all, err := r.noter.StopActivity()
	if err != nil {
		t.Fatal(err)
	}
	kernels := ofKind(all, device.KernelActivity)
	for i, k := range kernels {
		if known := k.Program == r.program; known != (i >= 12) || !known && k.Program != nil {
			t.Errorf("kernel %d: got %+v, want the program of the last 3 alone", i, k)
		}
	}
	if len(kernels) != 15 {
		t.Errorf("got %d kernels, want 15", len(kernels))
	}
}

func TestActivitiesWithoutNodesKeepTheirNames(t *testing.T) {
	t.Setenv("HETERO_SHIM_CUPTI", "no-nodes")
	all, err := newActiveRig(t).note(3)
	if err != nil {
		t.Fatal(err)
	}
	kernels := ofKind(all, device.KernelActivity)
	if len(kernels) != 9 ||
		slices.ContainsFunc(kernels, func(a device.Activity) bool { return a.Program != nil || a.Name == "" }) {
		t.Errorf("got %+v, want 9 kernels of no program", kernels)
	}
}

// 9 runs launch 27 kernels. With copies and API calls, the records fill several buffers of 16 records each.
func TestWhatCannotBeNotedIsCounted(t *testing.T) {
	r := newActiveRig(t)
	r.run(2)
	t.Setenv("HETERO_SHIM_CUPTI", "")
	whole, err := r.note(9)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		behaviour     string
		missing, lost int64
	}{
		{"backwards", 9, 9},
		{"unfinished", 9, 0}, // not lost: activities that still run have no record yet
		{"damaged", 16, 1},   // the number of records in the rest of a damaged buffer is unknown
		{"no-room", -1, -1},
		{"silent", int64(len(whole.List)), 0},
	} {
		t.Setenv("HETERO_SHIM_CUPTI", c.behaviour)
		got, err := r.note(9)
		if err != nil {
			t.Fatal(err)
		}
		missing := int64(len(whole.List) - len(got.List))
		if c.behaviour == "no-room" && missing >= 16 && missing == got.Lost {
			continue
		}
		if missing != c.missing || got.Lost != c.lost {
			t.Errorf("%s: %d of %d activities are missing, %d counted as lost, want %d and %d", c.behaviour, missing,
				len(whole.List), got.Lost, c.missing, c.lost)
		}
	}
}

// The device must not call CUPTI while it holds a lock that CUPTI's thread needs. The fake CUPTI ends the process if it
// does.
func TestCUPTIIsCalledWithoutALock(t *testing.T) {
	t.Setenv("HETERO_SHIM_CUPTI", "locks")
	all, err := newActiveRig(t).note(3)
	if err != nil {
		t.Fatal(err)
	}
	if kernels := ofKind(all, device.KernelActivity); len(kernels) != 9 || kernels[8].Step != 2 || all.Lost != 0 {
		t.Errorf("got %d kernels, %d lost, want 9 and 0, the last one of step 2", len(kernels), all.Lost)
	}
}

func TestWhyAGPUDoesNotNote(t *testing.T) {
	r := newActiveRig(t)
	for _, c := range []struct{ behaviour, want string }{
		{"privileges", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: this machine lets only administrators profile: load the driver with NVreg_RestrictProfilingToAdminUsers=0"},
		{"taken", "another profiler is active"},
		{"newer", "it may be newer than the driver"},
	} {
		t.Setenv("HETERO_SHIM_CUPTI", c.behaviour)
		if _, err := r.note(1); !errors.Is(err, device.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.behaviour, err, c.want)
		}
	}
	os.Unsetenv("HETERO_SHIM_CUPTI")
	if _, err := r.noter.StopActivity(); err == nil || !strings.Contains(err.Error(), "not recording") {
		t.Errorf("stopped without a start: got %v", err)
	}
	if err := r.noter.StartActivity(); err != nil {
		t.Fatal(err)
	}
	if err := r.noter.StartActivity(); err == nil || !strings.Contains(err.Error(), "already recording") {
		t.Errorf("started twice: got %v", err)
	}
	r.run(1)
	if all, err := r.noter.StopActivity(); err != nil || len(ofKind(all, device.KernelActivity)) != 3 {
		t.Errorf("after errors: got %d kernels and %v, want 3", len(ofKind(all, device.KernelActivity)), err)
	}
}
