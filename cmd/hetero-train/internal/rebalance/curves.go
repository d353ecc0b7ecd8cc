package rebalance

import (
	"fmt"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/profiler/curves"
)

// Cached returns the step-time curve that a run would read from the cache for this rank. It returns nil if there is
// none.
func Cached(a *assembly.Run) (divide.Curve, error) {
	b := &Balancer{run: a, cfg: a.Process.Cfg}
	if !b.learns() {
		return nil, nil
	}
	return b.openCache(a.Rank.DescribeItself().DeviceType)
}

// learns reports whether the run reads and writes the cache of step-time curves.
func (b *Balancer) learns() bool {
	c := b.cfg.Balance
	return b.traits().Learns && c.CurveCache == "auto" && len(c.FixedShares) == 0
}

// openCache opens the user's cache of curves and returns the cached curve of a device.
func (b *Balancer) openCache(device string) (divide.Curve, error) {
	dir, err := parts.UserCache("curves")
	if err != nil {
		return nil, err
	}
	b.cache = curves.Open(dir)
	return b.cache.Load(b.key(device))
}

// key returns the cache key of a device's curve. The key contains all values on which the curve depends.
func (b *Balancer) key(device string) string {
	c := b.cfg
	if f := b.run.Foreign; f != nil {
		return fmt.Sprintf("%s; %s", device, f.Setting)
	}
	return fmt.Sprintf("%s; %s; %s, %d data workers", device, assembly.CurveSetting(c, b.run.Rank.Precision.String()),
		c.Data.Dataset, c.Data.Workers)
}

// keepCurve stores this rank's curve in the cache. During the run it does so at most once per interval.
func (b *Balancer) keepCurve(end bool) {
	// ripe is the minimum number of decisions before the first write. A curve from fewer decisions can be worse than
	// the cached curve.
	const interval, ripe = time.Minute, 5
	l, ok := b.Policy.(balancer.Learner)
	if b.cache == nil || !ok || b.decisions < ripe || !end && time.Since(b.stored) < interval || b.refused.Load() {
		return
	}
	rank := b.run.Rank.Team.Place.Rank
	b.stored = time.Now()
	if c := l.Curves()[rank]; len(c) > 0 {
		c, key := slices.Clone(c), b.key(b.known[rank].Device)
		b.run.Queue.Do("the cache of step-time curves", 0, func() {
			if err := b.cache.Store(key, c); err != nil {
				b.log().Warn("the step-time curve of this device cannot be cached, so the next run fits it again",
					"error", err)
				b.refused.Store(true)
			}
		})
	}
}
