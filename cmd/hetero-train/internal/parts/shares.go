package parts

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
)

// BatchOf returns the batch that a policy divides among ranks. This is one micro-batch; shares are multiples of the
// group size of ghost batch normalization.
func BatchOf(c *config.Config) divide.Batch {
	b := divide.Batch{Total: c.Data.BatchSize / c.Train.MicroBatches()}
	if c.Model.BatchNorm == "ghost" {
		b.Unit = c.Model.GhostGroup
	}
	return b
}

// Divide returns the shares of a micro-batch at the start of training. These are the shares in balance.fixed_shares if
// the key is set, otherwise equal shares.
func Divide(c *config.Config, ranks int) ([]int, error) {
	if err := c.CheckRanks(ranks); err != nil {
		return nil, err
	}
	b, speed := BatchOf(c), slices.Repeat([]float64{1}, ranks)
	fixed := c.Balance.FixedShares
	if len(fixed) > 0 {
		b.Limits = slices.Repeat([]int{b.Total}, ranks)
		for rank, n := range fixed {
			if speed[rank] = float64(n); n == 0 {
				speed[rank], b.Limits[rank] = 1, 0
			}
		}
	}
	shares, err := b.Divide(speed)
	if err != nil {
		return nil, exit.Usagef("shares of a micro-batch (data.batch_size / train.grad_accumulation): %w", err)
	}
	if len(fixed) > 0 && c.Train.MicroBatches() == 1 && !slices.Equal(fixed, shares) {
		return nil, exit.Usagef("balance.fixed_shares: got %v, want multiples of model.ghost_group = %d samples, with the remainder on the last rank, for example %v",
			fixed, b.Unit, shares)
	}
	return shares, nil
}
