package main

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/engine/config"
)

// divide is how many samples of each micro-batch every rank has: those of balance.fixed_shares, else equal ones. With groups of
// samples for batch normalisation whole groups are divided, and the samples beyond go to the last rank.
func divide(c *config.Config, ranks int) ([]int, error) {
	if err := c.CheckRanks(ranks); err != nil {
		return nil, err
	}
	micro, unit := c.Data.BatchSize/c.Train.GradAccumulation, 1
	if c.Model.BatchNorm == "ghost" {
		unit = c.Model.GhostGroup
	}
	speed, limit := make([]float64, ranks), make([]int, ranks)
	for rank := range ranks {
		speed[rank], limit[rank] = 1, micro
		if fixed := c.Balance.FixedShares; len(fixed) > 0 {
			if speed[rank] = float64(fixed[rank]); fixed[rank] == 0 {
				speed[rank], limit[rank] = 1, 0
			}
		}
	}
	shares, err := balancer.Split(micro/unit, speed, limit)
	if err != nil {
		return nil, usageError("shares of a micro-batch of %d samples (data.batch_size / train.grad_accumulation) in units of %d: %w", micro, unit, err)
	}
	for rank := range shares {
		shares[rank] *= unit
	}
	shares[ranks-1] += micro % unit
	if fixed := c.Balance.FixedShares; len(fixed) > 0 && c.Train.GradAccumulation == 1 && !slices.Equal(fixed, shares) {
		return nil, usageError("balance.fixed_shares: got %v, want whole groups of model.ghost_group = %d samples, the rest on the last rank, as %v", fixed, unit, shares)
	}
	return shares, nil
}
