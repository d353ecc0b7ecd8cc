package plan

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/golden"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// syncedGraph returns the graph of twoConvs over n samples, for one of several ranks. number is the rank, and total is
// the number of samples of all ranks. If ranks is 0, ranks do not exchange statistics.
func syncedGraph(t tb, n, number, ranks, total int) *graph.Graph {
	t.Helper()
	return classifierGraph(t, func(net *nn.Net, x *graph.Value, classes int) *graph.Value {
		if ranks > 0 {
			net.Sync = &graph.Ranks{Rank: number, Count: ranks, Samples: net.Graph.Input("samples", tensor.I32, ranks),
				Total: total}
		}
		return twoConvs(net, x, classes)
	}, n, 4, tensor.F32, true)
}

// wire binds the plan with events. All Done events are complete from the start, as if no other rank took part in the
// exchanges.
func (r *rig) wire(insertions ...Insertion) {
	r.t.Helper()
	w := Wiring{Gradients: insertions}
	for range r.plan.Exchanges() {
		ready, done := newEvent(r.t, r.dev), newEvent(r.t, r.dev)
		if err := done.Complete(); err != nil {
			r.t.Fatal(err)
		}
		w.Ready, w.Done = append(w.Ready, ready), append(w.Done, done)
	}
	if err := r.plan.BindWired(device.Whole(r.arena), r.state, w); err != nil {
		r.t.Fatal(err)
	}
}

func newEvent(t tb, dev device.Device) device.Event {
	t.Helper()
	e, err := dev.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// newWiredRig is newRig for a graph that contains exchanges.
func newWiredRig(t tb, dev device.Device, g *graph.Graph) *rig {
	t.Helper()
	plain := newRig(t, dev, syncedGraph(t, 2, 0, 0, 0)) // creates the state
	r := *plain
	r.inputs = map[string][]byte{}
	var err error
	if r.plan, err = Compile(r.cache, g, r.state.Params); err != nil {
		t.Fatal(err)
	}
	plain.release()
	if r.arena, err = dev.Alloc(r.plan.ArenaBytes()); err != nil {
		t.Fatal(err)
	}
	r.wire()
	return &r
}

func TestPlanWithExchangesIsReadable(t *testing.T) {
	r := newWiredRig(t, reference.New(), syncedGraph(t, 2, 1, 3, 8))
	defer r.close()
	var got bytes.Buffer
	if _, err := r.plan.WriteTo(&got); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/plan_exchanges.txt", got.String())
}

func TestOneRankThatExchangesComputesWhatItDoesAlone(t *testing.T) {
	alone := newRig(t, reference.New(), syncedGraph(t, 5, 0, 0, 0))
	defer alone.close()
	r := newWiredRig(t, reference.New(), syncedGraph(t, 5, 0, 1, 5))
	defer r.close()
	r.input("samples", []float64{5})
	for _, x := range []*rig{alone, r} {
		x.batch()
		x.run(true)
	}
	if !bytes.Equal(r.outputBytes("loss"), alone.outputBytes("loss")) {
		t.Error("loss differs")
	}
	if !bytes.Equal(r.state.Grads.Host(), alone.state.Grads.Host()) ||
		!bytes.Equal(r.state.States.Host(), alone.state.States.Host()) {
		t.Error("gradients or running statistics differ")
	}
}

func TestExchangesAreTheSameForEveryShare(t *testing.T) {
	want := []Exchange{
		{Name: "bn1 gather", Phase: graph.Forward, DType: tensor.F32, Elements: 8, Ranks: 3},
		{Name: "bn1 diff sums", Phase: graph.Backward, Sum: true, DType: tensor.F32, Elements: 8},
	}
	r := newRig(t, reference.New(), syncedGraph(t, 2, 0, 0, 0))
	defer r.close()
	for _, n := range []int{0, 1, 2, 7} {
		p, err := compileFor(r, syncedGraph(t, max(n, 1), 2, 3, 9), n)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Exchanges(); !slices.Equal(got, want) {
			t.Errorf("%d samples: got %+v, want %+v", n, got, want)
		}
	}
}

func compileFor(r *rig, g *graph.Graph, samples int) (*Plan, error) {
	if samples == 0 {
		return CompileIdle(r.cache, g, r.state.Params)
	}
	return Compile(r.cache, g, r.state.Params)
}

func TestBindWantsEventsForExchangesAndInsertionsInOrder(t *testing.T) {
	r := newWiredRig(t, reference.New(), syncedGraph(t, 2, 0, 2, 4))
	defer r.close()
	e := func() device.Event { return newEvent(t, r.dev) }
	bytes := r.state.Params.Bytes
	for _, c := range []struct {
		name string
		w    Wiring
		want string
	}{
		{"no events", Wiring{}, "got 0 and 0 events for exchanges between ranks, want 2 of each"},
		{"events of one end alone", Wiring{Ready: []device.Event{e(), e()}}, "got 2 and 0 events"},
		{"descending insertions", Wiring{Ready: []device.Event{e(), e()}, Done: []device.Event{e(), e()},
			Gradients: []Insertion{{Bytes: 128}, {Bytes: 64}}},
			"insertion 1: got 64 bytes of gradients, want ascending"},
		{"more gradients than there are", Wiring{Ready: []device.Event{e(), e()}, Done: []device.Event{e(), e()},
			Gradients: []Insertion{{Bytes: bytes + 1}}},
			fmt.Sprintf("insertion 0: got %d bytes of gradients, want ascending numbers of at most %d bytes", bytes+1,
				bytes)},
	} {
		if err := r.plan.BindWired(device.Whole(r.arena), r.state, c.w); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// Each insertion copies the gradients that should be final, then overwrites them. If a later launch writes such a
// gradient, the overwritten bytes change. If a later launch reads such a gradient, the result of this launch is wrong.
func TestInsertionsRunWhenTheirGradientsAreFinal(t *testing.T) {
	for _, synced := range []bool{false, true} {
		r := newWiredRig(t, reference.New(), syncedGraph(t, 3, 0, map[bool]int{true: 1}[synced], 3))
		if synced {
			r.input("samples", []float64{3})
		}
		params := r.state.Params
		var insertions []Insertion
		var copies []device.Buffer
		for i := range params.Trained {
			end := params.Bytes
			if i+1 < len(params.Params) {
				end = params.Params[i+1].Offset
			}
			at, err := r.dev.Alloc(end)
			if err != nil {
				t.Fatal(err)
			}
			copies = append(copies, at)
			spec := device.Spec(tensor.U8, int(end))
			k, err := r.cache.Compile(device.Reorder{To: tensor.U8}, []device.TensorSpec{spec},
				[]device.TensorSpec{spec})
			if err != nil {
				t.Fatal(err)
			}
			there := device.Region{Buffer: r.state.Grads, Bytes: end}
			fillK, err := r.cache.Compile(device.Fill{DType: tensor.U8, Shape: spec.Shape, Value: 0x41}, nil,
				[]device.TensorSpec{spec})
			if err != nil {
				t.Fatal(err)
			}
			insertions = append(insertions, Insertion{Bytes: end, Steps: []device.Step{
				{Launch: &device.Launch{Name: "copy", Kernel: k, In: []device.Region{there},
					Out: []device.Region{device.Whole(at)}}},
				{Launch: &device.Launch{Name: "spoil", Kernel: fillK, Out: []device.Region{there}}},
			}})
		}
		r.wire(insertions...)
		r.batch()
		r.run(true)
		want := slices.Clone(r.state.Grads.Host())
		r.run(false)
		if err := r.plan.BackwardFinal(r.stream); err != nil {
			t.Fatal(err)
		}
		for i, at := range copies {
			from := int64(0)
			if i > 0 {
				from = insertions[i-1].Bytes
			}
			if !bytes.Equal(at.Host()[from:], want[from:insertions[i].Bytes]) {
				t.Errorf("synced %t: gradient %d, of %s, was not final", synced, i, params.Params[i].Name)
			}
		}
		for i, b := range r.state.Grads.Host()[:insertions[len(insertions)-1].Bytes] {
			if b != 0x41 {
				t.Errorf("synced %t: byte %d of the gradients was written after it was final", synced, i)
				break
			}
		}
		for _, at := range copies {
			if err := at.Free(); err != nil {
				t.Error(err)
			}
		}
		r.close()
	}
}

// The launch that computes the gradient of x reads the gradients of gamma and beta. Until then, these two gradients
// must not count as final.
func TestGradientsAreFinalAsEarlyAsTheyCanBe(t *testing.T) {
	r := newRig(t, reference.New(), classifierGraph(t, twoConvs, 2, 4, tensor.F32, true))
	defer r.close()
	infos := r.plan.Launches()
	elapsed := make([]time.Duration, len(infos))
	number := 0
	at := map[string]time.Duration{} // number of the launch in the backward pass, as seconds, by name
	for i, l := range infos {
		if l.Phase == "backward" {
			elapsed[i] = time.Second
			number++
			at[l.Name] = time.Duration(number) * time.Second
		}
	}
	var got []string
	for i, when := range r.plan.GradientTimes(elapsed) {
		got = append(got, fmt.Sprint(r.plan.Params().Params[i].Name, " ", when))
	}
	var want []string
	for _, p := range []struct{ param, launch string }{{"fc.weight", "fc diff weights"}, {"fc.bias", "fc diff weights"},
		{"conv2.weight", "conv2 diff weights"},
		{"conv2.bias", "conv2 diff weights"}, {"bn1.weight", "bn1 diff apply"}, {"bn1.bias", "bn1 diff apply"},
		{"conv1.weight", "conv1 diff weights"}} {
		want = append(want, fmt.Sprint(p.param, " ", at[p.launch]))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// If a gradient needs a reorder to its canonical layout, the reorder must follow directly, not at the end of the pass.
func TestReorderedGradientsAreFinalEarlyToo(t *testing.T) {
	dev := openParticular(tasteOfConvs)
	r := newRig(t, dev, classifierGraph(t, twoConvs, 2, 4, tensor.F32, true))
	defer r.close()
	dev.refuse = func(op device.Op, _, out []device.TensorSpec) bool {
		// From now on, the device refuses weight gradients in a layout that it has not chosen.
		_, ok := op.(device.Conv2DDiffWeights)
		return ok && out[0].Layout != device.Any
	}
	dev.taste = func(op device.Op, out bool, i int, have device.Layout) device.Layout {
		if _, ok := op.(device.Conv2DDiffWeights); ok && out {
			return device.Plain
		}
		return tasteOfConvs(op, out, i, have)
	}
	p, err := Compile(r.cache, classifierGraph(t, twoConvs, 3, 4, tensor.F32, true), r.state.Params)
	if err != nil {
		t.Fatal(err)
	}
	reorders := 0
	for i, l := range p.backward {
		if strings.HasSuffix(l.name, "gradient") && l.op.Kind() == "reorder" {
			reorders++
			if before := p.backward[i-1]; before != l.in[0].producer && before.op.Kind() != "reorder" {
				t.Errorf("%s comes behind %s, want it behind %s", l.name, before.name, l.in[0].producer.name)
			}
		}
	}
	if reorders == 0 {
		t.Fatal("no gradient is reordered: the test proves nothing")
	}
}

func TestWeightGradientRunsWhileStatisticsAreExchanged(t *testing.T) {
	r := newWiredRig(t, reference.New(), syncedGraph(t, 2, 0, 2, 4))
	defer r.close()
	var names []string
	for _, l := range r.plan.backward {
		names = append(names, l.name)
	}
	at := func(name string) int { return slices.Index(names, name) }
	sums, weights, apply := at("bn1 diff sums"), at("conv2 diff weights"), at("bn1 diff apply")
	if !(sums >= 0 && sums < weights && weights < apply) || at("fc diff weights") > at("fc diff src") {
		t.Errorf("got %q, want the weight gradient of conv2, and no other, between the exchange and what waits for it",
			names)
	}
}

func TestIdlePlanTakesPartAndHasNoGradients(t *testing.T) {
	r := newRig(t, reference.New(), syncedGraph(t, 2, 0, 0, 0))
	defer r.close()
	idle, err := CompileIdle(r.cache, syncedGraph(t, 1, 1, 2, 3), r.state.Params)
	if err != nil {
		t.Fatal(err)
	}
	if got := idle.InputNames(); !slices.Equal(got, []string{"samples"}) {
		t.Errorf("got inputs %q, want samples alone", got)
	}
	if _, _, err := idle.Output("loss"); err == nil {
		t.Error("a plan without samples has a loss")
	}
	r.release()
	r.plan = idle
	if r.arena, err = r.dev.Alloc(idle.ArenaBytes()); err != nil {
		t.Fatal(err)
	}
	r.wire()
	fill(r.state.Grads.Host(), 0xff)
	fill(r.arena.Host(), 0xff)
	mean := r.read(r.state.States, r.state.Params.States[0])
	gathered := idle.Exchanges()[0].Region
	// The contents are the statistics of rank 0: means and variances.
	copy(gathered.Host(), reference.Encode(tensor.F32, []float64{1, 2, 3, 4, 5, 6, 7, 8}))
	r.input("samples", []float64{3, 0})
	r.run(true)
	for i, b := range r.state.Grads.Host()[:r.state.Params.Bytes] {
		if b != 0 {
			t.Fatalf("byte %d of the gradients is %#x, want 0", i, b)
		}
	}
	for i, b := range idle.Exchanges()[1].Region.Host() {
		if b != 0 {
			t.Fatalf("byte %d of what is summed is %#x, want 0", i, b)
		}
	}
	for c, got := range r.read(r.state.States, r.state.Params.States[0]) {
		if want := mean[c] + 0.1*(float64(c+1)-mean[c]); math.Abs(got-want) > 1e-6 {
			t.Errorf("running mean of channel %d: got %g, want %g", c, got, want)
		}
	}
}

func TestTimedRunCountsWaitingWithTheExchange(t *testing.T) {
	r := newWiredRig(t, reference.New(), syncedGraph(t, 2, 0, 1, 2))
	defer r.close()
	r.input("samples", []float64{2})
	r.batch()
	r.run(true)
	infos := r.plan.Launches()
	elapsed := make([]time.Duration, len(infos))
	if err := r.plan.RunTimed(r.stream, elapsed); err != nil {
		t.Fatal(err)
	}
	exchanges := 0
	for i, l := range infos {
		if l.Op.Kind() == "all_gather" || l.Op.Kind() == "all_reduce" {
			exchanges++
		} else if elapsed[i] <= 0 {
			t.Errorf("%s took %v", l.Name, elapsed[i])
		}
	}
	if exchanges != 2 {
		t.Errorf("got %d exchanges in the list of launches, want 2", exchanges)
	}
}
