package collective

import (
	"context"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// MeasureAllReduce times all-reduces (f32, sum) of a buffer, one after the other, each waited for: what a training step sees
// that waits for one bucket. All ranks call it with the same rounds, after it is warmed up by rounds of its own.
// The answer is the time of each round on this rank, from Enqueue to Sync; a round begins when the ranks leave the round before.
func MeasureAllReduce(ctx context.Context, comm Communicator, buffer device.Region, rounds int) ([]time.Duration, error) {
	const warmUp = 3
	var op Op = AllReduce{Name: "measure", Buffer: buffer, DType: tensor.F32}
	elapsed := make([]time.Duration, 0, max(rounds, 0))
	for round := -warmUp; round < rounds; round++ {
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

// BusBytesPerSecond is the bus bandwidth of an all-reduce of bytes among size ranks that took elapsed: what every rank
// must send at least, 2·(size-1)/size of the buffer, a second. It can be compared between numbers of ranks, and with
// the link's speed.
func BusBytesPerSecond(size int, bytes int64, elapsed time.Duration) float64 {
	if size < 2 || elapsed <= 0 {
		return 0
	}
	return 2 * float64(size-1) / float64(size) * float64(bytes) / elapsed.Seconds()
}
