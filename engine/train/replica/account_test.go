package replica

import (
	"errors"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/dry"
	"github.com/hetero-train/hetero-train/engine/memory"
)

// hosted returns options with a limit of the process, a program of 1,000 bytes, and 100 bytes of batches per sample.
func hosted(o Options, limit int64) Options {
	o.Host = &Host{Limit: memory.Limit{Bytes: limit, Source: "the test"},
		Program: func() []memory.Part { return []memory.Part{{Name: Program, Bytes: 1000}} },
		Parts:   func(share int) []memory.Part { return []memory.Part{{Name: "batches", Bytes: 100 * int64(share)}} },
		Copies:  true}
	return o
}

// needs returns the account of a number of samples, from a plan without limits.
func needs(t *testing.T, dev device.Device, o Options, samples int) memory.Account {
	t.Helper()
	o = hosted(o, 0)
	o.Planning = true
	planner := dry.New(dev, 1<<40)
	defer planner.Close()
	r, err := New(planner, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := r.Footprint(samples)
	if err != nil {
		t.Fatal(err)
	}
	return f.Account
}

func TestAccountContainsAllMemory(t *testing.T) {
	for name, o := range map[string]Options{"images": testOptions(), "language": languageOptions(0.1)} {
		dev := openReference(t)
		planned := needs(t, dev, o, testBatch)
		r, err := New(dev, hosted(o, 1<<40))
		if err != nil {
			t.Fatal(name, err)
		}
		defer r.Close()
		a := r.Account()
		allocated, _ := dev.Memory()
		if a.DeviceBytes() != allocated || planned.DeviceBytes() != allocated {
			t.Errorf("%s: the account has %d bytes of the device, the plan %d, the device gave out %d", name,
				a.DeviceBytes(), planned.DeviceBytes(), allocated)
		}
		if a.HostBytes() != planned.HostBytes() || !a.Unified {
			t.Errorf("%s: the account has %d bytes, the plan had %d", name, a.HostBytes(), planned.HostBytes())
		}
		var passes int64
		for _, p := range append(r.now.training(), r.now.eval) {
			passes += p.host.Bytes()
		}
		parts := map[string]int64{}
		for _, p := range append(a.Host, a.Optional...) {
			parts[p.Name] = p.Bytes
		}
		if parts[Results] != passes || parts[Program] != 1000 || parts["batches"] != 100*testBatch ||
			parts[Staging] != r.state.HostBytes() {
			t.Errorf("%s: got parts %v, want %d bytes of passes, %d of staging", name, parts, passes,
				r.state.HostBytes())
		}
		model, optimizer, err := r.Copies()
		if err != nil {
			t.Fatal(err)
		}
		var copied int64
		for _, tensor := range append(model, optimizer...) {
			copied += int64(tensorBytes(tensor))
			if buffer := r.copied[tensor.Name]; buffer.Len() != tensorBytes(tensor) {
				t.Errorf("%s: the copy of %s has %d bytes, want %d", name, tensor.Name, buffer.Len(),
					tensorBytes(tensor))
			}
		}
		if parts[CheckpointCopy] < copied {
			t.Errorf("%s: the account has %d bytes for copies of %d bytes", name, parts[CheckpointCopy], copied)
		}
	}
}

// A batch is refused exactly if its account exceeds the limit, before the arena exists.
func TestBatchesBeyondTheLimitAreRefused(t *testing.T) {
	o := testOptions()
	o.Recompute = RecomputeNever
	dev := openReference(t)
	want := needs(t, dev, o, testBatch)
	fits, fewer := want.HostBytes(), needs(t, dev, o, testBatch-1).HostBytes()
	r, err := New(dev, hosted(o, fits))
	if err != nil {
		t.Fatalf("a limit of exactly the account: %v", err)
	}
	if r.CanCopy() {
		t.Error("no memory is left, but the replica would copy checkpoints")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var refused *MemoryError
	for _, c := range []struct {
		limit int64
		fit   int
	}{{fits - 1, testBatch - 1}, {fewer, testBatch - 1}, {fewer - 1, testBatch - 2}} {
		_, err := New(dev, hosted(o, c.limit))
		if !errors.As(err, &refused) || !errors.Is(err, device.ErrOutOfMemory) || refused.Fit != c.fit ||
			refused.Samples != testBatch || refused.Model {
			t.Fatalf("limit of %d bytes, %d are needed: got %v, want a refusal with %d samples", c.limit, fits, err,
				c.fit)
		}
		if _, peak := dev.Memory(); peak > want.DeviceBytes() {
			t.Errorf("%d bytes of the device were allocated", peak)
		}
	}
	_, err = New(dev, hosted(o, 1100))
	if !errors.As(err, &refused) || !refused.Model || !strings.Contains(err.Error(), "no number of samples fits") {
		t.Errorf("a limit below the weights: got %v", err)
	}
	if left, _ := dev.Memory(); left != 0 {
		t.Errorf("%d bytes are left after refusals", left)
	}
}

// The program of a run is a little larger than that of a plan, and must not refuse what the plan promised.
func TestARunToleratesThatItsProgramIsLargerThanThatOfThePlan(t *testing.T) {
	dev := openReference(t)
	o := testOptions()
	o.Recompute = RecomputeNever
	need := needs(t, dev, o, testBatch).HostBytes()
	for _, c := range []struct {
		files int64
		fits  bool
	}{{400, true}, {404, false}} { // a quarter of the files is tolerated
		with := hosted(o, need+300)
		with.Host.Program = func() []memory.Part {
			return []memory.Part{{Name: Program, Bytes: 1000}, {Name: ProgramFiles, Bytes: c.files}}
		}
		r, err := New(dev, with)
		if (err == nil) != c.fits {
			t.Errorf("%d bytes of files: got %v, want that the batch fits: %v", c.files, err, c.fits)
		}
		if err == nil {
			r.Close()
		}
	}
}

func TestLargestFitKeepsToTheLimitOfTheProcess(t *testing.T) {
	o := testOptions()
	o.Recompute = RecomputeNever
	dev := openReference(t)
	limit := needs(t, dev, o, 40).HostBytes()
	for _, c := range []struct {
		limit int64
		want  int
	}{{limit, 40}, {limit - 1, 39}, {1000, 0}} {
		with := hosted(o, c.limit)
		with.Planning = true
		planner := dry.New(dev, 1<<40)
		r, err := New(planner, with)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.LargestFit(0, 1000); got != c.want || err != nil {
			t.Errorf("%d bytes: got %d samples, %v; want %d", c.limit, got, err, c.want)
		}
		if err := errors.Join(r.Close(), planner.Close()); err != nil {
			t.Error(err)
		}
	}
}
