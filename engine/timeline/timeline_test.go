package timeline

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func TestExplainTakesStepsApart(t *testing.T) {
	step := func(begin, took int64) Span { return Span{Track: Steps, Name: "step", Begin: begin, Took: took} }
	on := func(track Track, kind Kind, begin, took int64) Span {
		return Span{Track: track, Kind: kind, Begin: begin, Took: took}
	}
	for _, c := range []struct {
		name  string
		spans []Span
		want  Explanation // explanation of the last step
	}{
		{"nothing is known", []Span{step(0, 100)}, Explanation{Total: 100, Gap: 100}},
		{"launches with gaps", []Span{step(0, 100), on(Stream, Launch, 10, 30), on(Stream, Launch, 40, 50)},
			Explanation{Total: 100, Kinds: [4]int64{80, 0, 0, 0}, Gap: 20}},
		{"a copy within the host's work", []Span{step(0, 100), on(Stream, Copy, 20, 30), on(Host, Work, 10, 60)},
			Explanation{Total: 100, Kinds: [4]int64{0, 30, 0, 30}, Gap: 40}},
		{"a launch within a wait, from its start", []Span{step(0, 100), on(Stream, Launch, 0, 30),
			on(Host, Wait, 0, 100)}, Explanation{Total: 100, Kinds: [4]int64{30, 0, 70, 0}}},
		{"two waits of the host", []Span{step(0, 100), on(Host, Wait, 0, 10), on(Stream, Launch, 10, 70),
			on(Host, Wait, 80, 20)}, Explanation{Total: 100, Kinds: [4]int64{70, 0, 30, 0}}},
		{"other tracks are no part of it", []Span{step(0, 100), on(Gradients, Launch, 0, 100),
			on(Parts, Launch, 0, 100)}, Explanation{Total: 100, Gap: 100}},
		{"what began in the step before", []Span{step(0, 50), step(50, 100), on(Host, Wait, 20, 60),
			on(Stream, Launch, 40, 30)}, Explanation{Total: 100, Kinds: [4]int64{20, 0, 10, 0}, Gap: 70}},
		{
			"what a step before did", []Span{step(0, 50), step(60, 100), on(Stream, Launch, 0, 50),
				on(Stream, Launch, 60, 90), on(Stream, Launch, 155, 30)},
			Explanation{Total: 100, Kinds: [4]int64{95, 0, 0, 0}, Gap: 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := Explain(c.spans)
			got := all[len(all)-1]
			if c.want.Step = "step"; got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if want := 1 - float64(c.want.Gap)/100; got.Explained() != want {
				t.Errorf("explained: got %v, want %v", got.Explained(), want)
			}
		})
	}
}

// rig returns a stream, a program and two buffers of the reference device. The program computes out = relu(in), then
// records an event.
func rig(t testing.TB) (device.Stream, device.Program, device.Buffer, device.Buffer) {
	t.Helper()
	dev, err := reference.Driver{}.Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	spec := []device.TensorSpec{device.Spec(tensor.F32, 64)}
	k, err := dev.Compile(device.Unary{Func: device.ReLU}, spec, spec)
	if err != nil {
		t.Fatal(err)
	}
	in, err := dev.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	host, err := dev.AllocHost(256)
	if err != nil {
		t.Fatal(err)
	}
	out, err := dev.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	done, err := dev.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	p, err := dev.NewProgram(
		[]device.Step{
			{Launch: &device.Launch{Name: "layer", Kernel: k, In: []device.Region{device.Whole(in)},
				Out: []device.Region{device.Whole(out)}}}, {Record: done}, {Wait: done}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	return s, p, in, host
}

func TestARecorderNotesWhatAStreamDoes(t *testing.T) {
	s, p, in, host := rig(t)
	rec := New(7)
	traced := rec.Stream(s)
	if err := traced.Copy(device.Whole(in), device.Whole(host)); err != nil {
		// This copy is outside of a step, like the copies of an evaluation.
		t.Fatal(err)
	}
	begun := time.Now()
	if err := errors.Join(traced.Copy(device.Whole(in), device.Whole(host)), traced.Run(p), traced.Sync()); err != nil {
		t.Fatal(err)
	}
	rec.Part("forward", begun, time.Now())
	rec.Exchange(Gradients, "bucket 0", begun, begun.Add(time.Millisecond), 512)
	rec.Part("backward", time.Now(), time.Now())
	rec.Step()
	rec.Step() // no step is in progress
	var got []string
	for _, span := range rec.Spans() {
		got = append(got, span.Track.String()+"/"+span.Kind.String()+"/"+span.Name+"/"+span.Part)
	}
	want := "stream/copy/copy/between steps stream/copy/copy/forward stream/host/note this timeline/forward stream/launch/layer/forward stream/host/wake the sender/forward " +
		"stream/wait/wait for other ranks/forward stream/host/note this timeline/forward parts/launch/forward/forward " +
		"gradients/launch/bucket 0/backward parts/launch/backward/backward steps/launch/step 7/"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %v\nwant %v", strings.Join(got, " "), want)
	}
	layer := rec.Spans()[3]
	if layer.Op != "unary" || layer.Bytes != 512 || layer.Specs != "f32(64) -> f32(64)" || layer.Took <= 0 {
		t.Errorf("got %+v", layer)
	}
	step := rec.Spans()[10]
	for _, span := range rec.Spans()[1:8] {
		if span.Begin < step.Begin || span.End() > step.End() {
			t.Errorf("%+v lies outside its step %+v", span, step)
		}
	}
	if e := Explain(rec.Spans())[0]; e.Total != step.Took || e.Kinds[Launch] != layer.Took || e.Gap < 0 {
		t.Errorf("got %+v", e)
	}
}

// BenchmarkRun runs the program of rig on a plain stream, and on a stream with a Recorder.
func BenchmarkRun(b *testing.B) {
	s, p, _, _ := rig(b)
	rec := New(1)
	for name, stream := range map[string]device.Stream{"plain": s, "noted": rec.Stream(s)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := stream.Run(p); err != nil {
					b.Fatal(err)
				}
				if len(rec.spans) > 1<<16 {
					rec.spans = rec.spans[:0]
				}
			}
		})
	}
}
