package timeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Track is the resource on which a span happened.
type Track uint8

// The tracks.
const (
	Steps      Track = iota // whole optimizer steps
	Parts                   // parts of a step: data, forward, backward, communication, optimizer
	Stream                  // work on the device's stream: launches, copies, and waits within programs
	Host                    // work and waits of the training thread
	Gradients               // sums of gradients over ranks, on the communicator's thread
	Statistics              // exchanges of batch normalisation, on the communicator's thread
	Device                  // kernels, copies and fills that the device recorded, one lane per stream
	Calls                   // calls of the device's library by the host, one lane per thread
	Tracks                  // number of tracks
)

// String implements fmt.Stringer.
func (t Track) String() string {
	return [...]string{"steps", "parts", "stream", "host", "gradients", "statistics", "gpu stream",
		"calls of thread"}[t]
}

// Kind is the kind of a span of Stream, Host or Device.
type Kind uint8

// The kinds.
const (
	Launch Kind = iota
	Copy
	Wait // wait for other ranks, or for data
	Work // work of the host
)

// String implements fmt.Stringer.
func (k Kind) String() string { return [...]string{"launch", "copy", "wait", "host"}[k] }

// Span is an interval of time.
type Span struct {
	Track Track
	Kind  Kind
	Lane  int // number of the stream (track Device) or of the thread (track Calls); spans of one lane may overlap
	Name  string
	Code  string // name of the kernel in the device's library (track Device)
	Part  string // name of the part of the step that the span belongs to
	Op    string // kind of the kernel's op
	Specs string // operands of a launch: inputs, "->", outputs
	Begin int64  // start, ns since 1970
	Took  int64  // duration, ns
	FLOPs int64
	Bytes int64 // bytes of all operands, of a copy, or on the wire
}

// End returns the end of the span, in ns since 1970.
func (s *Span) End() int64 { return s.Begin + s.Took }

// Recorder collects spans.
type Recorder struct {
	epoch time.Time
	spans []Span
	part  int // index of the first span after the last part
	next  int64
	begun time.Time // start of the current step; zero outside of a step
	noted bool      // the device records its own activity

	programs map[device.Program][]Span // one span per step of each program, without times
}

// New creates a Recorder. first is the number of the first step.
func New(first int64) *Recorder {
	return &Recorder{epoch: time.Now(), next: first, programs: map[device.Program][]Span{}}
}

// Spans returns all spans recorded so far. The Recorder owns the slice.
func (r *Recorder) Spans() []Span { return r.spans }

// at converts t to ns since 1970, the time of spans.
func (r *Recorder) at(t time.Time) int64 { return r.epoch.UnixNano() + int64(t.Sub(r.epoch)) }

func (r *Recorder) add(s Span, begun, ended time.Time) {
	s.Begin = r.at(begun)
	s.Took = r.at(ended) - s.Begin
	r.spans = append(r.spans, s)
}

// Host records a span of the training thread, from begun until now.
func (r *Recorder) Host(kind Kind, name string, begun time.Time) {
	r.add(Span{Track: Host, Kind: kind, Name: name}, begun, time.Now())
}

// betweenSteps is the part name of spans outside of steps, such as evaluations and checkpoints.
const betweenSteps = "between steps"

// Part records a part of a step. All spans since the previous part belong to this part. The first part starts the step.
func (r *Recorder) Part(name string, begun, ended time.Time) {
	for i := r.part; i < len(r.spans); i++ {
		s := &r.spans[i]
		if s.Part = name; r.begun.IsZero() && s.Begin < r.at(begun) {
			s.Part = betweenSteps
		}
	}
	if r.begun.IsZero() {
		r.begun = begun
	}
	r.add(Span{Track: Parts, Name: name, Part: name}, begun, ended)
	r.part = len(r.spans)
}

// PartAt records a part that the device timed.
func (r *Recorder) PartAt(name string, begun time.Time, took time.Duration) {
	r.add(Span{Track: Parts, Name: name, Part: name}, begun, begun.Add(took))
	r.part = len(r.spans)
}

// Step ends the current step, which began with its first part or with Begin.
func (r *Recorder) Step() {
	if r.begun.IsZero() {
		return
	}
	r.add(Span{Track: Steps, Name: fmt.Sprintf("step %d", r.next)}, r.begun, time.Now())
	r.begun, r.part = time.Time{}, len(r.spans)
	r.next++
}

// Exchange records an operation of a communicator.
func (r *Recorder) Exchange(track Track, name string, begun, ended time.Time, bytes int64) {
	r.add(Span{Track: track, Name: name, Bytes: bytes}, begun, ended)
}

// Stream returns a stream that runs on s and records its operations.
func (r *Recorder) Stream(s device.Stream) device.Stream { return &stream{Stream: s, rec: r} }

// stream wraps a device's stream.
type stream struct {
	device.Stream
	rec  *Recorder
	took []time.Duration
}

// Waited implements device.WaitingStream.
func (s *stream) Waited() (time.Duration, bool) {
	if w, ok := s.Stream.(device.WaitingStream); ok {
		return w.Waited()
	}
	return 0, false
}

// Run implements device.Stream.
func (s *stream) Run(p device.Program) error {
	begun := time.Now()
	steps, err := s.rec.describe(p)
	if err != nil {
		return err
	}
	s.took = slices.Grow(s.took[:0], len(steps))[:len(steps)]
	clear(s.took)
	s.rec.spans = slices.Grow(s.rec.spans, len(steps)+2)
	s.rec.add(recording, begun, time.Now())
	begun = time.Now()
	if err := s.Stream.RunTimed(p, s.took); err != nil {
		return err
	}
	ended := time.Now()
	at := s.rec.at(begun)
	for i, step := range steps {
		step.Begin, step.Took = at, int64(s.took[i])
		at += step.Took
		s.rec.spans = append(s.rec.spans, step)
	}
	s.rec.add(recording, ended, time.Now())
	return nil
}

// recording is the span of the Recorder's own work.
var recording = Span{Track: Stream, Kind: Work, Name: "note this timeline"}

// describe returns one span, without times, for each step of a program, and caches these spans.
func (r *Recorder) describe(p device.Program) ([]Span, error) {
	if steps, ok := r.programs[p]; ok {
		return steps, nil
	}
	d, ok := p.(device.DescribedProgram)
	if !ok {
		return nil, fmt.Errorf("timeline: a program of type %T does not list its steps", p)
	}
	var steps []Span
	for _, info := range d.Describe() {
		s := Span{Track: Stream, Name: info.Name}
		switch {
		case info.Waits:
			s.Kind, s.Name = Wait, "wait for other ranks"
		case info.Op == nil: // a recorded event: its waiters continue
			s.Kind, s.Name = Work, "wake the sender"
		default:
			s.Op, s.FLOPs, s.Bytes = info.Op.Kind(), device.FLOPs(info.Op, info.In, info.Out),
				device.MovedBytes(info.In, info.Out)
			s.Specs = specs(info.In) + " -> " + specs(info.Out)
		}
		steps = append(steps, s)
	}
	r.programs[p] = steps
	return steps, nil
}

func specs(list []device.TensorSpec) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = s.String()
	}
	return strings.Join(texts, " ")
}

// noted calls do, and records the call as a span of the stream.
func (s *stream) noted(kind Kind, name string, bytes int64, do func() error) error {
	begun := time.Now()
	err := do()
	s.rec.add(Span{Track: Stream, Kind: kind, Name: name, Bytes: bytes}, begun, time.Now())
	return err
}

// Copy implements device.Stream. It waits until the copy is done.
func (s *stream) Copy(dst, src device.Region) error {
	return s.noted(Copy, "copy", src.Bytes, func() error {
		if err := s.Stream.Copy(dst, src); err != nil {
			return err
		}
		return s.Stream.Sync()
	})
}

// Wait implements device.Stream.
func (s *stream) Wait(e device.Event) error {
	return s.noted(Wait, "wait for an event", 0, func() error { return s.Stream.Wait(e) })
}
