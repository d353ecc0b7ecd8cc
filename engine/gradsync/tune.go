package gradsync

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// MeasureLink measures all-reduces of a small buffer, whose transfer time is negligible, and of a large buffer, whose
// latency is negligible. The constants are the sizes and the numbers of repetitions.
const (
	smallBytes, largeBytes = 4 << 10, 8 << 20
	smallRounds            = 20
	largeRounds            = 5
)

// Tuning is the result of Tune: its measurement and its choice.
type Tuning struct {
	Ends         []int64 // ends of buckets, for Options.Ends
	Link         Link    // measured cost of an all-reduce; bytes are bytes of gradients
	ReadySeconds []float64
}

// Tune chooses the ends of buckets by measurement. The parameter elapsed contains the mean launch times of a few
// typical passes of p, measured by Plan.RunTimed. It is nil on a rank whose share is 0. All ranks call Tune and get the
// same result, because it uses the slowest rank's times. The parameter grads is device memory that Tune overwrites; up
// to 8 MB, more memory gives a more exact result. The parameter wire is the type in transit.
func Tune(ctx context.Context, comm collective.Communicator, dev device.Device, p *plan.Plan, elapsed []time.Duration,
	grads device.Buffer, wire tensor.DType) (Tuning, error) {
	params := p.Params()
	link, err := MeasureLink(ctx, comm, dev, grads)
	if err != nil {
		return Tuning{}, err
	}
	if wire != tensor.Invalid {
		link.BytesPerSecond *= float64(params.DType.Size()) / float64(wire.Size())
	}
	ready := make([]float64, params.Trained)
	if elapsed != nil {
		for i, t := range p.GradientTimes(elapsed) {
			ready[i] = t.Seconds()
		}
	}
	if ready, err = largest(ctx, comm, dev, "times of gradients", ready); err != nil {
		return Tuning{}, fmt.Errorf("choosing buckets: %w", err)
	}
	return Tuning{Ends: Choose(ends(params), ready, link), Link: link, ReadySeconds: ready}, nil
}

// MeasureLink measures all-reduces while nothing else runs, and returns the cost on the slowest rank. It overwrites
// scratch, which is device memory.
func MeasureLink(ctx context.Context, comm collective.Communicator, dev device.Device, scratch device.Buffer) (Link,
	error) {
	large := min(largeBytes, scratch.Bytes()/64*64)
	if large == 0 {
		return Link{}, fmt.Errorf("measuring all-reduces: got %d bytes of memory, want at least 64", scratch.Bytes())
	}
	if mem := scratch.Host(); mem != nil {
		clear(mem[:large]) // arithmetic on NaN or denormal values could be slow
	}
	seconds := make([]float64, 2)
	for i, m := range []struct {
		bytes  int64
		rounds int
	}{{min(smallBytes, large), smallRounds}, {large, largeRounds}} {
		took, err := collective.MeasureAllReduce(ctx, comm, device.Region{Buffer: scratch, Bytes: m.bytes}, m.rounds)
		if err != nil {
			return Link{}, err
		}
		slices.Sort(took)
		seconds[i] = took[len(took)/2].Seconds()
	}
	seconds, err := largest(ctx, comm, dev, "times of all-reduces", seconds)
	if err != nil {
		return Link{}, fmt.Errorf("measuring all-reduces: %w", err)
	}
	latency := max(seconds[0], 1e-7)
	transfer := max(seconds[1]-latency, 0.1*seconds[1], 1e-9)
	return Link{LatencySeconds: latency, BytesPerSecond: float64(large) / transfer}, nil
}

// largest returns the maximum of each value over all ranks.
func largest(ctx context.Context, comm collective.Communicator, dev device.Device, name string, values []float64) (
	[]float64, error) {
	var part []byte
	for _, v := range values {
		part = binary.LittleEndian.AppendUint64(part, math.Float64bits(v))
	}
	parts, err := gather(ctx, comm, dev, name, part)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(values))
	for _, p := range parts {
		for i := range out {
			out[i] = max(out[i], math.Float64frombits(binary.LittleEndian.Uint64(p[8*i:])))
		}
	}
	return out, nil
}
