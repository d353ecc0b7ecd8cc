package profile

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/profiles"
)

const (
	// profileBatch is the maximum number of samples of a measured step. With a larger number, a slow rank would
	// complete too few steps within modelTime.
	profileBatch = 32
	modelTime    = 4 * time.Second // duration of the measured steps
	modelSteps   = 3               // minimum number of measured steps
)

// profileModel measures a step of the configured model on this rank's device. fraction is the memory-bound fraction of
// the step, computed from the operations and bytes of the plan. perSample is the time per sample, s. All ranks measure
// at the same time, as in training.
func profileModel(ctx context.Context, k *compute.Rank, tflops, gbytes float64) (fraction, perSample float64, err error) {
	profileBatch := min(profileBatch, max(k.Cfg.Data.BatchSize/max(k.Opts.Assignment.WorldSize, 1), 2))
	set, err := data.Synthetic(data.SyntheticOptions{Seed: 1, Train: 2 * profileBatch, Eval: 1, Classes: max(min(k.Cfg.Model.NumClasses, 100), 2), Size: k.Cfg.Data.ImageSize})
	if err != nil {
		return 0, 0, err
	}
	cfg := *k.Cfg
	cfg.Data.BatchSize, cfg.Train.GradAccumulation = profileBatch, 1
	cfg.Model.GhostGroup = min(cfg.Model.GhostGroup, profileBatch)
	step := assembly.New(&cfg, session.Options{})
	step.Device, step.Precision, step.Data = k.Device, k.Precision, &parts.Opened{Splits: set.Cached(0)}
	options, err := step.ReplicaOptions()
	if err != nil {
		return 0, 0, err
	}
	replica, err := train.NewReplica(k.Device, options)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, replica.Close()) }()
	var work []profiles.Work
	for _, l := range replica.Plan().Launches() {
		work = append(work, profiles.Work{FLOPs: l.FLOPs, Bytes: l.Bytes})
	}
	perSample, err = timeSteps(ctx, replica, data.Options{Samples: data.Images{Dataset: step.Data.Train, Transform: data.Transform{Crop: data.PadCrop, Size: cfg.Data.ImageSize}},
		Seed: 1, BatchSize: profileBatch, Accumulation: 1, Workers: 1})
	return profiles.MemoryFraction(work, tflops, gbytes), perSample, err
}

// timeSteps trains for modelTime and returns the rank's own time per sample, s.
func timeSteps(ctx context.Context, replica *train.Replica, o data.Options) (perSample float64, err error) {
	loader, err := data.NewLoader(o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, loader.Close()) }()
	runtime.LockOSThread() // the threads of a device belong to the thread that opened it
	defer runtime.UnlockOSThread()
	if _, err := replica.Step(ctx, loader, 0.01); err != nil { // the first step is not measured, because it loads code
		return 0, err
	}
	began := time.Now()
	for n := 1; ; n++ {
		if _, err := replica.Step(ctx, loader, 0.01); err != nil {
			return 0, err
		}
		if took := time.Since(began); n >= modelSteps && took >= modelTime {
			return took.Seconds() / float64(n*o.BatchSize), nil
		}
	}
}
