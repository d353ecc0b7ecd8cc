package timeline

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

func noted(kind Kind, name string, lane int, begin, end int64) Span {
	s := Span{Track: Device, Kind: kind, Name: name, Lane: lane, Begin: begin, Took: end - begin}
	if kind == Launch {
		s.Code = name
	}
	return s
}

func called(name string, thread int, begin, end int64) Span {
	return Span{Track: Calls, Kind: Work, Name: name, Lane: thread, Begin: begin, Took: end - begin}
}

func stepAt(begin, end int64) Span {
	return Span{Track: Steps, Name: "step", Begin: begin, Took: end - begin}
}

func TestUseOfTakesWhatADeviceDidApart(t *testing.T) {
	for _, c := range []struct {
		name  string
		spans []Span
		want  *Use
	}{
		{"no steps", []Span{noted(Launch, "a", 7, 10, 20)}, nil},
		{"nothing noted", []Span{stepAt(0, 100), {Track: Stream, Begin: 5, Took: 90}}, nil},
		{"kernels that touch", []Span{stepAt(0, 100), noted(Launch, "a", 7, 10, 20), noted(Launch, "b", 7, 20, 50)},
			&Use{Steps: 1, Window: 100, Busy: 40, Code: []CodeTime{{"b", "", 1, 30}, {"a", "", 1, 10}}}},
		{"a gap, given in no order",
			[]Span{noted(Launch, "b", 7, 30, 50), stepAt(0, 100), noted(Launch, "a", 7, 10, 20)},
			&Use{Steps: 1, Window: 100, Busy: 30, Gaps: []Gap{{20, 10, "a", "b", false}},
				Code: []CodeTime{{"b", "", 1, 20}, {"a", "", 1, 10}}}},
		{"what another stream does fills it", []Span{stepAt(0, 100), noted(Launch, "a", 7, 10, 20),
			noted(Copy, "copy", 8, 15, 32), noted(Launch, "a", 7, 30, 50)},
			&Use{Steps: 1, Window: 100, Busy: 40, Copies: 10, Code: []CodeTime{{"a", "", 2, 30}, {"copy", "", 1, 17}}}},
		{"a long one around short ones", []Span{stepAt(0, 100), noted(Launch, "long", 7, 10, 60),
			noted(Launch, "a", 8, 20, 30), noted(Launch, "a", 8, 70, 80)},
			&Use{Steps: 1, Window: 100, Busy: 60, Gaps: []Gap{{60, 10, "long", "a", false}},
				Code: []CodeTime{{"long", "", 1, 50}, {"a", "", 2, 20}}}},
		{"between steps", []Span{stepAt(0, 100), stepAt(110, 200), noted(Launch, "a", 7, 0, 90),
			noted(Launch, "a", 7, 120, 200)},
			&Use{Steps: 2, Window: 200, Busy: 170, Gaps: []Gap{{90, 30, "a", "a", true}},
				Code: []CodeTime{{"a", "", 2, 170}}}},
		{"before and behind the steps",
			[]Span{stepAt(50, 100), noted(Launch, "a", 7, 0, 60), noted(Launch, "b", 7, 90, 140)},
			&Use{Steps: 1, Begin: 50, Window: 50, Busy: 20, Gaps: []Gap{{60, 30, "a", "b", false}},
				Code: []CodeTime{{"a", "", 1, 10}, {"b", "", 1, 10}}}},
		{"what was over before the step",
			[]Span{stepAt(50, 100), noted(Launch, "a", 7, 0, 40), noted(Launch, "b", 7, 60, 70)},
			&Use{Steps: 1, Begin: 50, Window: 50, Busy: 10, Code: []CodeTime{{"b", "", 1, 10}}}},
	} {
		if got := UseOf(c.spans); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestUseOfAddsUp compares two functions with a count over every nanosecond of random spans: UseOf, and Explain for
// each step.
func TestUseOfAddsUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 500 {
		spans := []Span{stepAt(20, 120), stepAt(120, 230)}
		var kernel, work [300]bool
		for range rng.IntN(30) {
			begin := rng.Int64N(250)
			end := begin + 1 + rng.Int64N(min(40, 299-begin))
			kind := Kind(rng.IntN(2)) // Launch or Copy
			spans = append(spans, noted(kind, "x", rng.IntN(3), begin, end))
			for ns := begin; ns < end; ns++ {
				work[ns] = true
				kernel[ns] = kernel[ns] || kind == Launch
			}
		}
		busy, copies, idle, longest := int64(0), int64(0), int64(0), int64(0)
		for ns := 20; ns < 230; ns++ {
			if work[ns] {
				busy++
				if !kernel[ns] {
					copies++
				}
				longest, idle = max(longest, idle), 0
			} else if busy > 0 {
				idle++
			}
		}
		u := UseOf(spans)
		if u == nil {
			if len(spans) > 2 {
				t.Fatalf("round %d: %d spans are of no use", round, len(spans)-2)
			}
			continue
		}
		if u.Busy != busy || u.Copies != copies {
			t.Fatalf("round %d: got %d ns busy, %d only copying, want %d and %d, of %+v", round, u.Busy, u.Copies, busy,
				copies, spans)
		}
		if busy > 0 && len(u.Gaps) > 0 && u.Gaps[0].Took < longest {
			t.Fatalf("round %d: got a longest gap of %d ns, want %d, of %+v", round, u.Gaps[0].Took, longest, spans)
		}
		explained := int64(0)
		for _, e := range Explain(spans) {
			explained += e.Total - e.Gap
		}
		if explained != busy {
			t.Fatalf("round %d: %d ns of steps are explained, want %d, of %+v", round, explained, busy, spans)
		}
		total := u.Busy
		for _, g := range u.Gaps {
			total += g.Took
		}
		if total > u.Window {
			t.Fatalf("round %d: busy and gaps are %d ns of %d", round, total, u.Window)
		}
	}
}

func TestHostWaitsAreCountedByStep(t *testing.T) {
	spans := []Span{
		noted(Launch, "a", 7, 10, 190), stepAt(0, 100), stepAt(100, 200),
		called("cudaStreamSynchronize", 1, -20, -10), // before the first step
		called("cudaGraphLaunch", 1, 1, 3), called("cudaMemcpy", 1, 4, 8), called("cudaGraphLaunch", 1, 9, 12),
		// the second call is inside the first one
		called("cudaStreamSynchronize", 1, 15, 95), called("cuStreamSynchronize", 1, 16, 94),
		called("cudaGraphLaunch", 1, 101, 103), called("cudaStreamSynchronize_ptsz", 1, 104, 196),
		called("cudaEventQuery", 1, 197, 198),
		called("cuStreamSynchronize", 2, 150, 160), // a call of another thread
	}
	want := []HostWaits{{"cudaMemcpy", 1, 4, 1}, {"cudaStreamSynchronize", 1, 80, 0},
		{"cudaStreamSynchronize_ptsz", 1, 92, 0}, {"cuStreamSynchronize", 1, 10, 0}}
	if got := UseOf(spans).Host; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for call, want := range map[string][2]bool{"cudaMemcpyAsync": {false, true}, "cudaMemcpy": {true, false},
		"cuMemcpyHtoD_v2": {true, false}, "cudaLaunchKernelExC": {false, true},
		"cuMemcpyHtoDAsync_v2": {false, true}, "cudaEventRecord": {false, false}, "cudaFreeAsync": {false, true},
		"cudaStreamWaitEvent": {false, false}} {
		if got := [2]bool{waits(call), gives(call)}; got != want {
			t.Errorf("%s: waits, gives: got %v, want %v", call, got, want)
		}
	}
}

// AddActivities must name activities by their layers, and must leave out activities outside of the steps.
func TestActivitiesGoByTheLayerThatTheyWereFor(t *testing.T) {
	_, program, _, _ := rig(t)
	r := NewNoted(3)
	begun := time.Now()
	r.Begin(begun)
	r.PartAt("forward", begun, time.Millisecond)
	time.Sleep(2 * time.Millisecond)
	r.Step()
	span := func(kind device.ActivityKind, name string, begin time.Duration, p device.Program,
		step int) device.Activity {
		return device.Activity{Kind: kind, Name: name, Lane: 7, Begin: begin, End: begin + time.Microsecond, Program: p,
			Step: step}
	}
	err := r.AddActivities(device.Activities{Zero: begun, List: []device.Activity{
		span(device.KernelActivity, "relu<float>", 10*time.Microsecond, program, 0),
		span(device.KernelActivity, "other", 20*time.Microsecond, program, 1), // this step only records an event
		span(device.KernelActivity, "gone", 30*time.Microsecond, program, 99),
		span(device.CopyActivity, "", 40*time.Microsecond, nil, 0),
		span(device.FillActivity, "", 50*time.Microsecond, nil, 0),
		span(device.CallActivity, "cudaGraphLaunch", 60*time.Microsecond, nil, 0),
		span(device.KernelActivity, "late", time.Hour, nil, 0),
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range r.Spans() {
		got = append(got, s.Track.String()+"/"+s.Kind.String()+"/"+s.Name+"/"+s.Op+"/"+s.Code)
	}
	want := []string{"parts/launch/forward//", "steps/launch/step 3//", "gpu stream/launch/layer/unary/relu<float>",
		"gpu stream/launch/other//other", "gpu stream/launch/gone//gone",
		"gpu stream/copy/copy//", "gpu stream/copy/fill//", "calls of thread/host/cudaGraphLaunch//"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	e := Explain(r.Spans())[0]
	if busy := e.Kinds[Launch] + e.Kinds[Copy]; busy != 5000 || e.Gap != e.Total-busy {
		t.Errorf("got %+v, want 5 us of launches and copies, and the rest a gap", e)
	}
}
