package inference

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// evaluation returns a result with the fields that evaluations of images and of text have in common.
func (m *savedModel) evaluation(sums replica.Sums, took time.Duration, batch int, among *overlap) Evaluation {
	s, score := m.checkpoint.State, sums.Score()
	return Evaluation{Program: version.Text(), Checkpoint: m.checkpoint.Path, Step: s.Step, Epoch: lastEpoch(s),
		Model: m.run.Process.Cfg.Model.Name, Parameters: m.predictor.ParamCount(),
		Dataset: m.run.Data.Name, Averaged: m.averaged, Note: joined(m.run.Data.Note, among.note(sums.Samples)),
		Samples: sums.Samples, Classes: m.classes, Loss: experiment.Number(score.Loss),
		Top1: score.Top1, Top5: &score.Top5, Seconds: took.Seconds(),
		PerSecond: show.PerSecond(int64(sums.Samples), took),
		Device:    m.run.Rank.Device.Info().Name, Precision: m.run.Rank.Precision.String(), BatchSize: batch}
}

// score evaluates all samples that a loader with options o reads. The result took is the time from the request for the
// first batch to the last result.
func (m *savedModel) score(ctx context.Context, o data.Options, confusion *task.Confusion) (all replica.Sums,
	took time.Duration, err error) {
	loader, err := m.run.NewLoader(o)
	if err != nil {
		return all, 0, err
	}
	started := time.Now()
	for {
		b, err := loader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return all, time.Since(started), nil
		}
		if err != nil {
			return all, 0, err
		}
		sums, err := m.predictor.Run(b)
		if err == nil && confusion != nil {
			m.predictor.Count(b, confusion)
			if m.ranking != nil {
				m.predictor.Rank(b, m.ranking)
			}
		}
		b.Release()
		if err != nil {
			return all, 0, err
		}
		all.Add(sums)
	}
}

// lastEpoch returns the epoch of the last step before a checkpoint, counted from 0. The state itself contains the epoch
// of the next step.
func lastEpoch(s checkpoint.State) int64 {
	if s.EpochSample == 0 && s.Epoch > 0 {
		return s.Epoch - 1
	}
	return s.Epoch
}
