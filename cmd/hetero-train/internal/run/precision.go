package run

import (
	"context"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// agreePrecision chooses the element type of every rank. With train.precision = "auto", a run that resumes keeps the
// types of its checkpoint.
func (tr *training) agreePrecision(ctx context.Context) error {
	var before []devices.RankType
	if tr.process.Cfg.Train.Precision == "auto" {
		find := func() error {
			state, err := experiment.Peek(tr.run.RunOptions())
			if err != nil {
				return nil // there is no checkpoint, or openRun will report the error
			}
			before, err = compute.TypesOf(&state)
			return err
		}
		if err := tr.rank.Team.Send(ctx, "types of the checkpoint", &before, find); err != nil {
			return err
		}
	}
	return tr.rank.SettlePrecision(ctx, before)
}
