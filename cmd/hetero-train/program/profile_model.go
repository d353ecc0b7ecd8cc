package program

import (
	"errors"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/profiles"
)

// profileBatch is the samples of the step that is looked at: few, so that it is planned quickly; the share changes little with more.
const profileBatch = 8

// memoryShare is the share of the configured model's step that is bound by memory on this rank's device. The step is planned, not run: what its
// operations compute and move is known then.
func (j *job) memoryShare(tflops, gbytes float64) (share float64, err error) {
	set, err := data.Synthetic(data.SyntheticOptions{Seed: 1, Train: 2 * profileBatch, Eval: 1, Classes: max(min(j.cfg.Model.NumClasses, 100), 2), Size: j.cfg.Data.ImageSize})
	if err != nil {
		return 0, err
	}
	cfg := *j.cfg
	cfg.Data.BatchSize, cfg.Train.GradAccumulation = profileBatch, 1
	cfg.Model.GhostGroup = min(cfg.Model.GhostGroup, profileBatch)
	step := &job{cfg: &cfg, device: j.device, precision: j.precision, data: &dataSet{Splits: set.Cached(0)}}
	options, err := step.replicaOptions()
	if err != nil {
		return 0, err
	}
	replica, err := train.NewReplica(j.device, options)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, replica.Close()) }()
	var work []profiles.Work
	for _, l := range replica.Plan().Launches() {
		work = append(work, profiles.Work{FLOPs: l.FLOPs, Bytes: l.Bytes})
	}
	return profiles.MemoryShare(work, tflops, gbytes), nil
}
