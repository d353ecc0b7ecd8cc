package run

import (
	"context"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// agreePrecision chooses the type of every rank of a training. With train.precision = "auto" a resumed run keeps the
// types of its checkpoint.
func (j *training) agreePrecision(ctx context.Context) error {
	var before []devices.RankType
	if j.Cfg.Train.Precision == "auto" {
		find := func() error {
			state, err := experiment.Peek(j.RunOptions())
			if err != nil {
				return nil // no checkpoint, or opening the run reports the error
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
