package collective

import (
	"context"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// WarmUpRounds is the number of rounds that MeasureAllReduce runs before it measures.
const WarmUpRounds = 3

// MeasureAllReduce times successive all-reduces (f32, sum) of a buffer. Such a time is the time for which a training
// step is blocked if it waits for one bucket. All ranks must call MeasureAllReduce with the same number of rounds.
// Warm-up rounds come first and are not measured. The result contains the time of each round on this rank, from Enqueue
// to the return of Sync. A round starts as soon as this rank has ended the previous round.
func MeasureAllReduce(ctx context.Context, comm Communicator, buffer device.Region, rounds int) ([]time.Duration,
	error) {
	var op Op = AllReduce{Name: "measure", Buffer: buffer, DType: tensor.F32}
	elapsed := make([]time.Duration, 0, max(rounds, 0))
	for round := -WarmUpRounds; round < rounds; round++ {
		start := time.Now()
		if err := comm.Enqueue(op); err != nil {
			return nil, err
		}
		if err := comm.Sync(ctx); err != nil {
			return nil, fmt.Errorf("measure all-reduce of %d bytes: %w", buffer.Bytes, err)
		}
		if round >= 0 {
			elapsed = append(elapsed, time.Since(start))
		}
	}
	return elapsed, nil
}

// BusBytesPerSecond returns the bus bandwidth of an all-reduce among size ranks in bytes per second. bytes is the size
// of the buffer. Every rank must send at least 2·(size-1)/size of the buffer; the bandwidth is this amount divided by
// elapsed. Bus bandwidths of groups of different sizes can be compared with each other and with the speed of the link.
func BusBytesPerSecond(size int, bytes int64, elapsed time.Duration) float64 {
	if size < 2 || elapsed <= 0 {
		return 0
	}
	return 2 * float64(size-1) / float64(size) * float64(bytes) / elapsed.Seconds()
}
