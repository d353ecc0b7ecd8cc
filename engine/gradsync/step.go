package gradsync

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// weightAt returns the offset of the weight in host memory. The weight is stored after the samples of all ranks.
func (s *Sync) weightAt() int64 { return (int64(4*s.size) + 63) / 64 * 64 }

// SetShares sets the samples of each global micro-batch for every rank, from the next Forward on. All ranks must pass
// the same shares.
func (s *Sync) SetShares(samples []int) error {
	if size := s.group.Size(); len(samples) != size {
		return fmt.Errorf("gradient sum: shares: got %d, want one for each of %d ranks", len(samples), size)
	}
	if len(samples) != s.size { // the group has changed
		old := s.host
		err := s.allocateHost()
		if err == nil {
			err = old.Free()
		}
		if err != nil {
			return fmt.Errorf("gradient sum: shares of %d ranks: %w", len(samples), err)
		}
	}
	mem, own, total := s.host.Host(), 0, 0
	for rank, n := range samples {
		if n < 0 || n > math.MaxInt32 {
			return fmt.Errorf("gradient sum: share of rank %d: got %d samples, want 0 to %d", rank, n, math.MaxInt32)
		}
		binary.LittleEndian.PutUint32(mem[4*rank:], uint32(n))
		part := s.parts(n)
		if total += part; rank == s.group.Rank() {
			own = part
		}
	}
	if total == 0 {
		return fmt.Errorf("gradient sum: shares: got %v, want samples on some rank", samples)
	}
	if weight := float64(own) / float64(total); s.state.Params.DType == tensor.F64 {
		binary.LittleEndian.PutUint64(mem[s.weightAt():], math.Float64bits(weight))
	} else {
		binary.LittleEndian.PutUint32(mem[s.weightAt():], math.Float32bits(float32(weight)))
	}
	s.stale = s.weight != nil
	return nil
}

// parts returns the weight of a rank's running statistics: its number of samples, or its number of groups, which all
// have the same weight.
func (s *Sync) parts(samples int) int {
	if g := s.opts.GhostGroup; g > 0 {
		return (samples + g - 1) / g
	}
	return samples
}

// sendShares copies the values that depend on the shares to the device. Inputs may share memory with other plans'
// inputs, so each run writes them.
func (s *Sync) sendShares(stream device.Stream, to device.Region) error {
	if to.Buffer != nil {
		if err := stream.Copy(to, device.Region{Buffer: s.host, Bytes: to.Bytes}); err != nil {
			return err
		}
	}
	if !s.stale {
		return nil
	}
	size := s.state.Params.DType.Size()
	s.stale = false
	return stream.Copy(device.Region{Buffer: s.weight, Bytes: size},
		device.Region{Buffer: s.host, Offset: s.weightAt(), Bytes: size})
}

// Finish waits for the sums that the last Backward started, and moves them to the buffer that the optimizer reads. It
// returns nil only if the sums contain the gradients of every rank. The operations in trailing run on the gradients'
// communicator directly after the last bucket, and are complete when Finish returns. Ranks can therefore exchange
// reports about a step without a second synchronization.
func (s *Sync) Finish(ctx context.Context, stream device.Stream, trailing ...collective.Op) (Times, error) {
	times, err := s.finishStep(ctx, stream, trailing)
	if err != nil {
		return times, s.fail(fmt.Errorf("gradient sum: %w", err))
	}
	return times, nil
}

func (s *Sync) finishStep(ctx context.Context, stream device.Stream, behind []collective.Op) (Times, error) {
	if err := stream.Record(s.backwardEnd); err != nil {
		return Times{}, err
	}
	if err := s.settle(stream); err != nil {
		return Times{}, err
	}
	begun := now()
	for _, op := range behind {
		if err := s.group.Grads.Enqueue(op); err != nil {
			return Times{}, err
		}
	}
	if err := s.group.Grads.Sync(ctx); err != nil {
		return Times{}, err
	}
	waited := time.Duration(now() - begun)
	if s.finish != nil {
		if err := stream.Run(s.finish); err != nil {
			return Times{}, err
		}
	}
	return s.times(time.Duration(begun), waited), nil
}
