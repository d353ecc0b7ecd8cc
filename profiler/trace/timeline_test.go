package trace

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/hetero-train/hetero-train/engine/timeline"
)

const day = int64(1_800_000_000_000_000_000)

// rankSpans returns the spans of one step of a rank. Its clock is ahead by this number of ns.
func rankSpans(ahead int64) []timeline.Span {
	at := day + ahead
	return []timeline.Span{
		{Track: timeline.Stream, Name: "conv1", Part: "forward", Op: "conv2d", Specs: "f32(1) -> f32(1)", Begin: at + 1,
			Took: 2_000, FLOPs: 8_000, Bytes: 4_000},
		{Track: timeline.Parts, Name: "forward", Part: "forward", Begin: at, Took: 2_500},
		{Track: timeline.Gradients, Name: "bucket 0", Part: "communication", Begin: at + 2_500, Took: 499, Bytes: 100},
		{Track: timeline.Steps, Name: "step 3", Begin: at, Took: 3_000},
	}
}

func TestATimelineIsWrittenAsPerfettoReadsIt(t *testing.T) {
	ranks := []Rank{{Rank: 0, Name: "cpu:0", Host: "a", Spans: rankSpans(0)},
		{Rank: 1, Name: "cpu:0", Host: "b", Spans: rankSpans(777_123)}, {Rank: 2, Host: "a", Spans: rankSpans(50)}}
	Align(ranks)
	if ranks[1].Offset != 777_123 || ranks[2].Offset != 0 {
		t.Errorf("offsets: got %d and %d, want 777123 and 0: ranks of one host share a clock", ranks[1].Offset,
			ranks[2].Offset)
	}
	var text bytes.Buffer
	if err := WriteTimeline(&text, ranks, map[string]any{"explained": 0.99}); err != nil {
		t.Fatal(err)
	}
	var file struct {
		OtherData   map[string]float64
		TraceEvents []struct {
			Name, Ph string
			Ts, Dur  float64
			Pid, Tid int
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(text.Bytes(), &file); err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
	names := map[[2]int]string{}
	complete := 0
	for _, e := range file.TraceEvents {
		if e.Ph == "M" {
			if e.Name == "thread_name" {
				names[[2]int{e.Pid, e.Tid}] = e.Args["name"].(string)
			}
			continue
		}
		complete++
		want := 0.0
		if e.Pid == 2 {
			want = 0.05
		}
		if e.Name == "step 3" && (math.Abs(e.Ts-want) > 1e-9 || e.Dur != 3 || names[[2]int{e.Pid, e.Tid}] != "steps") {
			t.Errorf("step of rank %d: got %+v on %q, want it at %v us", e.Pid, e, names[[2]int{e.Pid, e.Tid}], want)
		}
		if e.Name == "conv1" && (math.Abs(e.Ts-want-0.001) > 1e-9 || e.Args["kernel"] != "conv2d" ||
			e.Args["pass"] != "forward" || e.Args["GFLOP/s"] != 4.0 || e.Args["GB/s"] != 2.0) {
			t.Errorf("launch of rank %d: got %+v", e.Pid, e)
		}
	}
	if complete != 12 || file.OtherData["explained"] != 0.99 {
		t.Errorf("got %d events and %v", complete, file.OtherData)
	}
}

func TestPackedTimelinesFit(t *testing.T) {
	r := Rank{Rank: 3, Name: "cpu:0", Host: "h"}
	for i := range 500 {
		for _, s := range rankSpans(int64(i) * 10_000) {
			s.Took += int64(i * i % 977)
			r.Spans = append(r.Spans, s)
		}
	}
	packed, err := Pack(r, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Unpack(packed)
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("got %d spans and %v, want the %d that were packed", len(got.Spans), err, len(r.Spans))
	}
	small, err := Pack(r, len(packed)/3)
	if err != nil || len(small) > len(packed)/3 {
		t.Fatalf("got %d bytes and %v, want at most %d", len(small), err, len(packed)/3)
	}
	if got, err = Unpack(small); err != nil || len(got.Spans) == 0 ||
		!reflect.DeepEqual(got.Spans, r.Spans[:len(got.Spans)]) {
		t.Errorf("got %d spans and %v, want the first of those that were packed", len(got.Spans), err)
	}
	if _, err := Pack(r, 10); err == nil {
		t.Error("packed into 10 bytes")
	}
	if _, err := Unpack(packed[:len(packed)/2]); err == nil {
		t.Error("unpacked half a timeline")
	}
}

// Viewers draw spans of the same thread as nested. Overlapping spans of a lane must therefore be on different threads.
func TestSpansOfALaneThatOverlapGetThreadsOfTheirOwn(t *testing.T) {
	on := func(track timeline.Track, lane int, begin, took int64) timeline.Span {
		return timeline.Span{Track: track, Lane: lane, Begin: begin, Took: took}
	}
	spans := []timeline.Span{
		on(timeline.Device, 13, 40, 10), on(timeline.Steps, 0, 0, 100), on(timeline.Device, 7, 10, 30),
		on(timeline.Device, 7, 20, 5), on(timeline.Device, 7, 25, 10),
		on(timeline.Device, 7, 40, 5), on(timeline.Calls, 7, 0, 90), on(timeline.Calls, 7, 10, 20),
	}
	ids, threads := layThreads(spans)
	names := map[int]string{}
	for _, th := range threads {
		if names[th.id] != "" {
			t.Errorf("thread %d is both %q and %q", th.id, names[th.id], th.name)
		}
		names[th.id] = th.name
	}
	var got []string
	for _, id := range ids {
		got = append(got, names[id])
	}
	want := []string{"gpu stream 13", "steps", "gpu stream 7", "gpu stream 7 (2)", "gpu stream 7 (2)", "gpu stream 7",
		"calls of thread 7", "calls of thread 7 (2)"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
