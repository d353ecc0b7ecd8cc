package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
)

// AllReduced is the measured time of an all-reduce of an f32 buffer over all ranks.
type AllReduced struct {
	Bytes     int64   `json:"bytes"`
	Seconds   float64 `json:"seconds"` // time of the slowest rank, median over the rounds, s
	BusGBytes float64 `json:"bus_gbytes_per_second"`
}

// Sizes of the buffers in bytes. Each size is 8 times the previous one.
const (
	smallestSum = 4 << 10
	largestSum  = 128 << 20
	mostRounds  = 50
)

// AllReduce measures all-reduces of increasing size, as long as the next size is expected to fit into the budget. All
// ranks must call it, and all ranks get the same list. The function alloc must allocate the kind of memory that
// gradients use.
func AllReduce(ctx context.Context, g Group, comm collective.Communicator, alloc func(int64) (device.Buffer, error),
	budget time.Duration, progress func(bytes int64)) ([]AllReduced, error) {
	var list []AllReduced
	left, last := budget, time.Duration(0)
	// A size is expected to take ten times the time of a round: four rounds for warm-up and estimation, plus the
	// measured rounds.
	for bytes := int64(smallestSum); bytes <= largestSum && (last == 0 || 8*last*10 < left); bytes *= 8 {
		began := time.Now()
		took, err := sum(ctx, g, comm, alloc, bytes, left/3)
		if err != nil {
			return list, err
		}
		spent, err := slowest(ctx, g, time.Since(began))
		if err != nil {
			return list, err
		}
		left, last = left-spent, took
		list = append(list, AllReduced{Bytes: bytes, Seconds: took.Seconds(),
			BusGBytes: collective.BusBytesPerSecond(comm.Size(), bytes, took) / 1e9})
		if progress != nil {
			progress(bytes)
		}
	}
	return list, nil
}

// sum measures one size.
func sum(ctx context.Context, g Group, comm collective.Communicator, alloc func(int64) (device.Buffer, error),
	bytes int64, budget time.Duration) (took time.Duration, err error) {
	buffer, err := alloc(bytes)
	if err != nil {
		return 0, fmt.Errorf("all-reduce of %d bytes: %w", bytes, err)
	}
	defer func() {
		if err != nil { // an operation may still use the buffer
			comm.Abort(err)
			_ = comm.Sync(context.Background()) // its error is already known
		}
		err = errors.Join(err, buffer.Free())
	}()
	clear(buffer.Host()) // does nothing if the CPU cannot access the buffer
	first, err := collective.MeasureAllReduce(ctx, comm, device.Whole(buffer), 1)
	if err != nil {
		return 0, err
	}
	guess, err := slowest(ctx, g, first[0])
	if err != nil {
		return 0, err
	}
	rounds := int(max(min(budget/guess, mostRounds), 3))
	times, err := collective.MeasureAllReduce(ctx, comm, device.Whole(buffer), rounds)
	if err != nil {
		return 0, err
	}
	slices.Sort(times)
	return slowest(ctx, g, times[len(times)/2])
}

// slowest returns the longest of the times of all ranks, at least 1 ns. The parameter own is the time of this rank.
func slowest(ctx context.Context, g Group, own time.Duration) (time.Duration, error) {
	words, err := g.Gather(ctx, "all-reduce: times", binary.LittleEndian.AppendUint64(nil, uint64(own)))
	if err != nil {
		return 0, err
	}
	most := time.Duration(1)
	for rank, w := range words {
		if len(w) != 8 {
			return 0, fmt.Errorf("all-reduce: time of rank %d: got %d bytes, want 8", rank, len(w))
		}
		most = max(most, time.Duration(binary.LittleEndian.Uint64(w)))
	}
	return most, nil
}
