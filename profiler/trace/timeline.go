package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"github.com/hetero-train/hetero-train/engine/timeline"
)

// Rank contains the spans of one rank.
type Rank struct {
	Rank   int
	Name   string // name of the rank's device
	Host   string // name of the host; ranks on the same host have the same clock
	Offset int64  // time by which the clock of this rank is ahead of rank 0's, ns
	Spans  []timeline.Span
}

// Align sets the clock offsets of the ranks that are not on the first rank's host. An all-reduce ends at nearly the
// same time on all ranks, so the offset is the median difference of the ends of all-reduces. A rank without all-reduces
// keeps its offset.
func Align(ranks []Rank) {
	if len(ranks) == 0 {
		return
	}
	first := sumsOf(ranks[0].Spans)
	for i := range ranks[1:] {
		r := &ranks[1+i]
		if r.Host == ranks[0].Host {
			continue
		}
		var apart []int64
		own := sumsOf(r.Spans)
		for k := range min(len(own), len(first)) {
			apart = append(apart, own[k].End()-first[k].End())
		}
		if len(apart) > 0 {
			slices.Sort(apart)
			r.Offset = apart[(len(apart)-1)/2]
		}
	}
}

// sumsOf returns the spans of all-reduces of gradients. Their order is the same on all ranks.
func sumsOf(spans []timeline.Span) (sums []timeline.Span) {
	for _, s := range spans {
		if s.Track == timeline.Gradients {
			sums = append(sums, s)
		}
	}
	return sums
}

// Pack encodes a rank in at most limit bytes, for sending. If there are too many spans, it omits the last ones.
func Pack(r Rank, limit int) ([]byte, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer encoder.Close()
	for {
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(r); err != nil {
			return nil, fmt.Errorf("pack the timeline of rank %d: %w", r.Rank, err)
		}
		packed := encoder.EncodeAll(b.Bytes(), nil)
		if len(packed) <= limit {
			return packed, nil
		}
		if len(r.Spans) == 0 {
			return nil, fmt.Errorf("pack the timeline of rank %d: got a buffer of %d bytes, want at least %d", r.Rank,
				limit, len(packed))
		}
		r.Spans = r.Spans[:len(r.Spans)*3/4]
	}
}

// Unpack decodes a rank that Pack encoded.
func Unpack(packed []byte) (r Rank, err error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		return r, err
	}
	defer decoder.Close()
	plain, err := decoder.DecodeAll(packed, nil)
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(plain)).Decode(&r)
	}
	if err != nil {
		return r, fmt.Errorf("unpack a timeline: %w", err)
	}
	return r, nil
}

// event is an entry of traceEvents. Times are in us.
type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"` // "X": complete, "M": metadata
	Cat   string         `json:"cat,omitempty"`
	Time  json.Number    `json:"ts,omitempty"`
	Took  json.Number    `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// WriteTimeline writes ranks in the trace-event format of Perfetto and chrome://tracing. Each rank is a process, and
// each track or lane is a thread. The map facts becomes the field otherData.
func WriteTimeline(w io.Writer, ranks []Rank, facts map[string]any) error {
	start := int64(0)
	for _, r := range ranks {
		for _, s := range r.Spans {
			if at := s.Begin - r.Offset; start == 0 || at < start {
				start = at
			}
		}
	}
	other, err := json.Marshal(facts)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<16)
	fmt.Fprintf(out, "{\"displayTimeUnit\":\"ms\",\"otherData\":%s,\"traceEvents\":[", other)
	separator := "\n"
	put := func(e event) {
		text, marshalErr := json.Marshal(e)
		err = cmp.Or(err, marshalErr)
		out.WriteString(separator)
		out.Write(text)
		separator = ",\n"
	}
	for _, r := range ranks {
		put(event{Name: "process_name", Phase: "M", PID: r.Rank,
			Args: map[string]any{"name": fmt.Sprintf("rank %d: %s", r.Rank, r.Name)}})
		put(event{Name: "process_sort_index", Phase: "M", PID: r.Rank, Args: map[string]any{"sort_index": r.Rank}})
		threads, names := layThreads(r.Spans)
		for _, n := range names {
			put(event{Name: "thread_name", Phase: "M", PID: r.Rank, TID: n.id, Args: map[string]any{"name": n.name}})
			put(event{Name: "thread_sort_index", Phase: "M", PID: r.Rank, TID: n.id,
				Args: map[string]any{"sort_index": n.id - 1}})
		}
		for i := range r.Spans {
			put(complete(r.Rank, threads[i], &r.Spans[i], start+r.Offset))
		}
	}
	out.WriteString("\n]}\n")
	return cmp.Or(err, out.Flush())
}

// thread is a row in the viewer.
type thread struct {
	id   int
	name string
}

// firstLane is the number of the first thread of a track with lanes.
const firstLane = 100

// layThreads assigns a thread to each span. There is one thread per track, or per lane of a track with lanes. If spans
// in a lane overlap, the lane gets additional threads.
func layThreads(spans []timeline.Span) (ids []int, threads []thread) {
	ids = make([]int, len(spans))
	order := make([]int, 0, len(spans))
	for track := range timeline.Tracks {
		there := false
		for i := range spans {
			if s := &spans[i]; s.Track != track {
				continue
			} else if track == timeline.Device || track == timeline.Calls {
				order = append(order, i)
			} else {
				ids[i], there = int(track)+1, true
			}
		}
		if there {
			threads = append(threads, thread{int(track) + 1, track.String()})
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &spans[a], &spans[b]
		return cmp.Or(cmp.Compare(x.Track, y.Track), cmp.Compare(x.Lane, y.Lane), cmp.Compare(x.Begin, y.Begin),
			cmp.Compare(y.Took, x.Took))
	})
	var ends []int64 // end of the last span in each thread of a lane
	lane := firstLane
	for k, i := range order {
		s := &spans[i]
		if k > 0 && (spans[order[k-1]].Track != s.Track || spans[order[k-1]].Lane != s.Lane) {
			lane, ends = lane+len(ends), nil
		}
		n := slices.IndexFunc(ends, func(end int64) bool { return end <= s.Begin })
		if n < 0 {
			n = len(ends)
			ends = append(ends, 0)
			name := fmt.Sprintf("%v %d", s.Track, s.Lane)
			if n > 0 {
				name += fmt.Sprintf(" (%d)", n+1)
			}
			threads = append(threads, thread{lane + n, name})
		}
		ends[n], ids[i] = s.End(), lane+n
	}
	return ids, threads
}

// complete converts a span to an event.
func complete(rank, thread int, s *timeline.Span, start int64) event {
	e := event{Name: s.Name, Phase: "X", Cat: s.Track.String(), Time: microseconds(s.Begin - start),
		Took: microseconds(s.Took), PID: rank, TID: thread}
	args := map[string]any{}
	if s.Part != "" && s.Track != timeline.Parts {
		args["pass"] = s.Part
	}
	if s.Op != "" {
		args["kernel"], args["operands"], e.Cat = s.Op, s.Specs, s.Op
	}
	if s.Code != "" {
		args["code"] = s.Code
	}
	if s.Bytes > 0 {
		args["bytes"] = s.Bytes
		if s.Took > 0 {
			args["GB/s"] = float64(s.Bytes) / float64(s.Took)
		}
	}
	if s.FLOPs > 0 {
		args["FLOPs"] = s.FLOPs
		if s.Took > 0 {
			args["GFLOP/s"] = float64(s.FLOPs) / float64(s.Took)
		}
	}
	if len(args) > 0 {
		e.Args = args
	}
	return e
}

// microseconds formats a time in ns exactly, so that adjacent spans are also adjacent in the file.
func microseconds(ns int64) json.Number {
	text := strconv.FormatInt(ns/1000, 10)
	if rest := ns % 1000; rest != 0 {
		text += fmt.Sprintf(".%03d", rest)
	}
	return json.Number(text)
}
