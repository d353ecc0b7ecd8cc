package rebalance

import (
	"context"
	"fmt"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/profiler/profiles"
)

// New gathers the properties of all ranks. All ranks must call New. In a run of one rank, the Balancer serves only
// SaveProfile, which writes the compute score.
func New(ctx context.Context, a *assembly.Run) (*Balancer, error) {
	b := &Balancer{run: a, cfg: a.Process.Cfg}
	self := a.Rank.DescribeItself()
	own := knownRank{Kind: a.Rank.Device.Info().Kind, Device: self.DeviceType, Fingerprint: self.Fingerprint,
		MemoryBytes: self.MemoryBytes, AtStart: a.Process.Cfg.Profile.AtStart}
	if a.Process.Cfg.Profile.GPUProfiles == "" && own.AtStart != "off" && a.Foreign == nil {
		own.Kept = b.loadFigures(&self)
	}
	own.Profile = self
	if f := a.Foreign; f != nil && own.AtStart != "off" {
		own.Profile.Measured.TFLOPS, own.Profile.Measured.Memory.Copy = f.TFLOPS, f.Copy
	}
	if b.learns() && a.Rank.Team != nil {
		curve, err := b.openCache(own.Device)
		if f := a.Foreign; f != nil && b.cache != nil && len(f.Curve) > 0 {
			if curve = f.Curve; err == nil {
				err = b.cache.Store(b.key(own.Device), curve)
			}
		}
		if own.Curve = curve; err != nil {
			b.log().Warn("the cached step-time curve of this device cannot be used; the balancer fits a new curve",
				"error", err)
		}
	}
	var err error
	b.known, err = process.GatherAll(ctx, a.Rank.Team, "properties of the ranks", "properties of rank", own)
	if err != nil {
		return nil, err
	}
	if err := b.gatherScores(ctx); err != nil {
		return nil, err
	}
	b.logRanks()
	return b, nil
}

// gatherScores sets the compute scores of all ranks. They come from the profile that rank 0 sends. Without a profile of
// this hardware, they come from cached or new measurements of the ranks.
func (b *Balancer) gatherScores(ctx context.Context) error {
	if err := b.givenScores(ctx); err != nil || b.scores != nil {
		return err
	}
	p, missing, err := b.startProfile(ctx)
	if err != nil {
		return err
	}
	if b.missing = missing; p != nil {
		b.scores = p.Scores()
	}
	if b.run.Rank.Team.Leads() {
		b.profile = p
	}
	return nil
}

// logRanks logs the device, memory and score of each rank, on rank 0.
func (b *Balancer) logRanks() {
	if b.run.Rank.Team == nil || !b.run.Rank.Team.Leads() {
		return
	}
	log := b.log()
	log.Info(fmt.Sprintf("Registered %d nodes", len(b.known)))
	for rank, k := range b.known {
		line := fmt.Sprintf("Node %d: Compute score unknown (%s), Memory %dMB", rank, b.missing, k.MemoryBytes>>20)
		if b.scores != nil {
			line = profiles.Rank{Rank: rank, ComputeScore: b.scores[rank], MemoryBytes: k.MemoryBytes}.String()
		}
		log.Info(line, "device", k.Device)
	}
}
