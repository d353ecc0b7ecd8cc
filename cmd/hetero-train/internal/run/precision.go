package run

import (
	"context"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// agreePrecision settles the type of every rank of a training run. With train.precision = "auto" a run that goes on keeps the types of its checkpoint.
func (j *training) agreePrecision(ctx context.Context) error {
	var before []devices.RankType
	if j.Cfg.Train.Precision == "auto" {
		find := func() error {
			state, err := experiment.Peek(j.RunOptions())
			if err != nil {
				return nil // there is none, or opening the run says what is wrong with it
			}
			before, err = compute.TypesOf(&state)
			return err
		}
		var err error
		if j.Team == nil {
			err = find()
		} else {
			err = j.Team.Tell(ctx, "types of the checkpoint", &before, find)
		}
		if err != nil {
			return err
		}
	}
	return j.SettlePrecision(ctx, before)
}
