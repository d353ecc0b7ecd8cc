package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/dry"
	"github.com/hetero-train/hetero-train/engine/memory"
)

// hosted returns options with a memory limit of the process. The program needs 1,000 bytes, and batches need 100 bytes
// per sample.
func hosted(o Options, limit int64) Options {
	o.Host = &Host{Limit: memory.Limit{Bytes: limit, Source: "the test"},
		Program: func() []memory.Part { return []memory.Part{{Name: Program, Bytes: 1000}} },
		Parts:   func(share int) []memory.Part { return []memory.Part{{Name: "batches", Bytes: 100 * int64(share)}} },
		Copies:  true}
	return o
}

// needs returns the memory account of a plan without limits, for a number of samples.
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

// The account lacks the addresses of kernels of further shares. Without the measured rest of the limit, the copy of a
// checkpoint would end the process.
func TestCopiesNeedAddresses(t *testing.T) {
	o := hosted(testOptions(), 1<<40)
	left, limited := int64(0), true
	o.Host.AddressesLeft = func() (int64, bool) { return left, limited }
	r, err := New(openReference(t), o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, c := range []struct {
		left    int64
		limited bool
		want    bool
	}{{r.copyBytes() - 1, true, false}, {-1, true, false}, {0, false, true}, {r.copyBytes(), true, true}} {
		if left, limited = c.left, c.limited; r.CanCopy() != c.want {
			t.Errorf("%d bytes of addresses are left (limited: %v), a copy needs %d: got a copy %v", left, limited,
				r.copyBytes(), !c.want)
		}
	}
	if _, _, err := r.Copies(); err != nil {
		t.Fatal(err)
	}
	if left, limited = 0, true; !r.CanCopy() {
		t.Error("the copy exists already, but the replica would not use it")
	}
}

// If a limit of addresses is the reason for a failed allocation, the error contains the account and the least limit.
func TestAFailedAllocationNamesTheLimitOfAddresses(t *testing.T) {
	o := hosted(testOptions(), 1<<30)
	o.Host.Limit.Addresses, o.Host.Limit.Flag, o.Host.Limit.Source = true, "-d", "RLIMIT_DATA"
	o.Host.Limit.Excluded = 1 << 20
	left := int64(1 << 40)
	o.Host.AddressesLeft = func() (int64, bool) { return left, true }
	dev := openReference(t)
	r, err := New(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const bytes = 5 << 20
	failed := func() error { return tooLarge(dev, testBatch, bytes, device.ErrOutOfMemory) }
	var refused *MemoryError
	if err := r.explainAddresses(failed(), bytes); !errors.As(err, &refused) || refused.Account != nil {
		t.Errorf("the addresses suffice, but got %v", err)
	}
	left = 2 << 20
	err = r.explainAddresses(failed(), bytes)
	least := o.Host.Limit
	want := least.Raise(least.Bytes + bytes - left)
	if !errors.As(err, &refused) || !errors.Is(err, device.ErrOutOfMemory) || refused.Account == nil ||
		!strings.HasSuffix(err.Error(), "; "+want) ||
		strings.Contains(err.Error(), "samples fit") || !strings.Contains(err.Error(), "RLIMIT_DATA") ||
		!strings.Contains(err.Error(), OtherKernels) {
		t.Errorf("got %v, want the account and: %s", err, want)
	}
	if n := len(r.Account().Host); n > 0 && r.Account().Host[n-1].Name == OtherKernels {
		t.Error("the error has changed the account of the replica")
	}
}

// A batch must be refused if its account exceeds the limit, and only then. At this time, the arena must not exist.
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
	// The replica may exceed the memory that is available now, but not the memory of the machine (Hard).
	for _, c := range []struct {
		hard int64
		fits bool
	}{{fits, true}, {fits - 1, false}} {
		swapping := hosted(o, fewer)
		swapping.Host.Limit.Hard = c.hard
		r, err := New(dev, swapping)
		if (err == nil) != c.fits {
			t.Fatalf("hard limit of %d bytes, %d are needed: got %v", c.hard, fits, err)
		}
		if err != nil {
			continue
		}
		if l := r.Account().Limit; l.Bytes != fits || l.Hard != 0 {
			t.Errorf("got limit %+v, want that of the machine", l)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
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

// The program of a run is a little larger than that of a plan. The run must not refuse a batch that the plan accepted.
func TestARunToleratesThatItsProgramIsLargerThanThatOfThePlan(t *testing.T) {
	dev := openReference(t)
	o := testOptions()
	o.Recompute = RecomputeNever
	need := needs(t, dev, o, testBatch).HostBytes()
	for _, c := range []struct {
		files     int64
		addresses bool // the limit counts reserved addresses; no memory can be reclaimed for them
		fits      bool
	}{{400, false, true}, {404, false, false}, {400, true, false}, {300, true, true}} { // a quarter is tolerated
		with := hosted(o, need+300)
		with.Host.Limit.Addresses = c.addresses
		with.Host.Program = func() []memory.Part {
			return []memory.Part{{Name: Program, Bytes: 1000}, {Name: ProgramFiles, Bytes: c.files}}
		}
		r, err := New(dev, with)
		if (err == nil) != c.fits {
			t.Errorf("%d bytes of files, a limit of addresses %v: got %v, want that the batch fits: %v", c.files,
				c.addresses, err, c.fits)
		}
		if err == nil {
			r.Close()
		}
	}
}

// The plans for a smaller last step exist in addition to the other plans.
func TestAccountContainsThePlansOfTheLastStep(t *testing.T) {
	o := testOptions()
	o.LastBatch = testBatch - 1
	r, err := New(openReference(t), hosted(o, 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.part == nil {
		t.Fatal("there are no plans for the last step")
	}
	held := r.now.hostBytes() + r.part.hostBytes()
	for _, p := range r.Account().Host {
		if p.Name == Results && (p.Bytes < held || p.Bytes > held+held/4) {
			t.Errorf("the account has %d bytes of inputs and results, the plans %d", p.Bytes, held)
		}
	}
}

func TestMemoryIsDividedByNeeds(t *testing.T) {
	for _, c := range []struct {
		whole int64
		needs []int64
		want  []int64
	}{
		{100, []int64{70, 10}, []int64{80, 20}},          // the rest is divided into equal parts
		{100, []int64{90, 10}, []int64{90, 10}},          // both needs fit exactly
		{100, []int64{95, 10}, []int64{90, 10}},          // only the large need is reduced
		{100, []int64{60, 80}, []int64{42, 57}},          // the needs are too large for both
		{120, []int64{100, 60, 10}, []int64{68, 41, 10}}, // the two large ones divide the remaining 110
	} {
		if got := partsOf(c.whole, c.needs); !slices.Equal(got, c.want) {
			t.Errorf("%d bytes for needs of %v: got %v, want %v", c.whole, c.needs, got, c.want)
		}
	}
}

func TestLimitsAreCoarse(t *testing.T) {
	for _, c := range [][4]int{ // fit, most, unit, want
		{242, 1000, 1, 240}, {243, 1000, 1, 243}, {242, 242, 1, 242}, {5, 13, 1, 5}, {1008, 4000, 8, 1008},
		{1016, 4000, 8, 1016}, {20000, 60000, 1, 19968}, {0, 10, 4, 0}} {
		if got := coarse(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("%d of %d samples in units of %d: got %d, want %d", c[0], c[1], c[2], got, c[3])
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
