package gradsync

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Fingerprint returns the properties that must be equal on all ranks, one per line: parameters, statistics, buckets and
// exchanges. p is any plan of the model. Callers put further properties (version, settings) before these lines, and
// pass all lines to Compare.
func (s *Sync) Fingerprint(p *plan.Plan) []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	params := s.state.Params
	lines = append(lines, parameters(s.dev, params)...)
	for i, info := range params.States {
		add("statistic %d: %s %v", i, info.Name, device.Spec(info.Spec.DType, info.Spec.Shape...))
	}
	for i, b := range s.bucket {
		add("bucket %d: bytes %d to %d, %v in transit", i, b.Offset, b.Offset+b.Bytes, s.opts.Wire)
	}
	for i, e := range p.Exchanges() {
		what := fmt.Sprintf("gathered from %d ranks", e.Ranks)
		if e.Sum {
			what = "summed"
		}
		add("exchange %d: %s, %s, %d of %v, %s", i, e.Name, passes[e.Phase], e.Elements, e.DType, what)
	}
	add("running statistics: averaged %t, over groups of %d", s.opts.AverageStates, s.opts.GhostGroup)
	return lines
}

var passes = [...]string{graph.Forward: "forward", graph.Backward: "backward"}

// parameters returns the offsets and layouts of a model's parameters, one per line.
func parameters(dev device.Device, params *plan.Params) []string {
	lines := make([]string, len(params.Params))
	for i, info := range params.Params {
		lines[i] = fmt.Sprintf("parameter %d: %s %v, %s, bytes %d to %d", i, info.Name,
			device.Spec(info.Spec.DType, info.Spec.Shape...), layout(dev, info.Spec.Layout),
			info.Offset, info.Offset+info.Spec.Size())
	}
	return lines
}

// layout returns the name of a layout. Names can be compared between devices of one kind; numbers of private layouts
// cannot.
func layout(dev device.Device, l device.Layout) string {
	if l == device.Plain {
		return "plain"
	}
	if n, ok := dev.(device.LayoutNamer); ok {
		return n.LayoutName(l)
	}
	return fmt.Sprintf("layout %d of %s", l, dev.Info().Kind)
}

// SameLayouts reports whether the first plans of all ranks put parameters at the same offsets in the same layouts. The
// result is equal on all ranks. If it is false, every rank must make its first plan with plan.CompilePlain.
func SameLayouts(ctx context.Context, comm collective.Communicator, dev device.Device, params *plan.Params) (bool,
	error) {
	text := strings.Join(parameters(dev, params), "\n")
	sums, err := gather(ctx, comm, dev, "layouts", binary.LittleEndian.AppendUint64(nil, hashBytes([]byte(text))))
	if err != nil {
		return false, fmt.Errorf("comparing layouts: %w", err)
	}
	for _, s := range sums {
		if string(s) != string(sums[0]) {
			return false, nil
		}
	}
	return true, nil
}

// DifferenceError reports ranks with different lines. Every rank gets the same error.
type DifferenceError struct {
	Ranks []RankDifference // ranks that differ, ascending
}

// RankDifference describes how a rank differs from rank 0.
type RankDifference struct {
	Rank  int
	Line  int    // number of the first line that differs, from 1
	Got   string // "" if the rank lacks this line
	Want  string // the line of rank 0
	Lines int    // number of lines that differ
}

func (e *DifferenceError) Error() string {
	var b strings.Builder
	b.WriteString("ranks do not train the same model: ")
	for i, d := range e.Ranks {
		if i == 3 {
			fmt.Fprintf(&b, "; %d more ranks differ", len(e.Ranks)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "rank %d: got %q, want %q as on rank 0", d.Rank, orNothing(d.Got), orNothing(d.Want))
		if d.Lines > 1 {
			fmt.Fprintf(&b, " (line %d, and %d more lines differ)", d.Line, d.Lines-1)
		}
	}
	return b.String()
}

func orNothing(line string) string {
	if line == "" {
		return "nothing"
	}
	return line
}

// Compare returns a DifferenceError on every rank unless all ranks pass the same lines. All ranks must call it. comm
// must accept host memory of dev.
func Compare(ctx context.Context, comm collective.Communicator, dev device.Device, lines []string) error {
	text := strings.Join(lines, "\n")
	sums, err := gather(ctx, comm, dev, "fingerprint", binary.LittleEndian.AppendUint64(nil, hashBytes([]byte(text))))
	if err != nil {
		return fmt.Errorf("comparing ranks: %w", err)
	}
	same := true
	for _, s := range sums {
		same = same && string(s) == string(sums[0])
	}
	if same {
		return nil
	}
	texts, err := gatherUnequal(ctx, comm, dev, "fingerprint text", []byte(text))
	if err != nil {
		return fmt.Errorf("comparing ranks: %w", err)
	}
	e := &DifferenceError{}
	want := strings.Split(string(texts[0]), "\n")
	for rank, t := range texts {
		if d := difference(strings.Split(string(t), "\n"), want); d.Lines > 0 {
			d.Rank = rank
			e.Ranks = append(e.Ranks, d)
		}
	}
	return e
}

// difference returns the first line that differs, and the number of such lines.
func difference(got, want []string) (d RankDifference) {
	at := func(list []string, i int) string {
		if i < len(list) {
			return list[i]
		}
		return ""
	}
	for i := range max(len(got), len(want)) {
		g, w := at(got, i), at(want, i)
		if g == w {
			continue
		}
		if d.Lines++; d.Lines == 1 {
			d.Line, d.Got, d.Want = i+1, g, w
		}
	}
	return d
}

// gather returns the part of each rank. All ranks must pass parts of the same length.
func gather(ctx context.Context, comm collective.Communicator, dev device.Device, name string, part []byte) ([][]byte,
	error) {
	counts := make([]int64, comm.Size())
	for i := range counts {
		counts[i] = int64(len(part))
	}
	return gatherParts(ctx, comm, dev, name, part, counts)
}

// gatherUnequal is like gather, but the lengths may differ between ranks.
func gatherUnequal(ctx context.Context, comm collective.Communicator, dev device.Device, name string,
	part []byte) ([][]byte, error) {
	lengths, err := gather(ctx, comm, dev, name+" length", binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
	if err != nil {
		return nil, err
	}
	counts := make([]int64, len(lengths))
	for i, l := range lengths {
		counts[i] = int64(binary.LittleEndian.Uint64(l))
	}
	return gatherParts(ctx, comm, dev, name, part, counts)
}

func gatherParts(ctx context.Context, comm collective.Communicator, dev device.Device, name string, part []byte,
	counts []int64) ([][]byte, error) {
	starts, total := make([]int64, len(counts)+1), int64(0)
	for i, n := range counts {
		total += n
		starts[i+1] = total
	}
	if total == 0 {
		return make([][]byte, len(counts)), nil
	}
	memory, err := dev.AllocHost(total)
	if err != nil {
		return nil, err
	}
	defer memory.Free()
	host := memory.Host()
	copy(host[starts[comm.Rank()]:], part)
	err = comm.Enqueue(collective.AllGather{Name: name, Buffer: device.Region{Buffer: memory, Bytes: total},
		DType: tensor.U8, Counts: counts})
	if err == nil {
		err = comm.Sync(ctx)
	}
	if err != nil {
		comm.Abort(err)
		_ = comm.Sync(context.Background()) // wait until the memory is unused; err already holds the first error
		return nil, err
	}
	out := make([][]byte, len(counts))
	for i := range out {
		out[i] = append([]byte(nil), host[starts[i]:starts[i+1]]...)
	}
	return out, nil
}
