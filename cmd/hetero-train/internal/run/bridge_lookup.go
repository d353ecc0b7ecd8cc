package run

import (
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/bridge"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/rebalance"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
)

// Lookup returns the cached step-time curve of this rank, for the model and the device that start describes.
func Lookup(cfg *config.Config, opts session.Options, start *bridge.Start) bridge.Curve {
	b := &bridged{training: newTraining(compute.NewRank(cfg, opts))}
	defer b.training.process.CloseAll()
	b.describe(start)
	answer := bridge.Curve{Type: "curve", Points: []bridge.Point{}}
	found, err := rebalance.Cached(b.training.run)
	if err != nil {
		opts.Log.Warn("the cached step-time curve of this device cannot be used; the script measures a new one",
			"error", err)
	}
	if len(found) > 0 {
		opts.Log.Info("profile: the step-time curve comes from the cache, and nothing is measured; set balance.curve_cache = off, or pass shares, to measure again",
			"points", len(found))
	}
	for _, p := range found {
		answer.Points = append(answer.Points, bridge.Point{Samples: int(p.Samples), Seconds: p.Seconds})
	}
	return answer
}
