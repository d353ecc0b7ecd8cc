package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/bridge"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// steps gives the step reports in a message to the balancer and to the observers. It returns the balancer's answer.
func (b *bridged) steps(m *bridge.Steps) (bridge.Decided, error) {
	var next []int
	if m.First != b.result.Steps+1 {
		return bridge.Decided{},
			&bridge.Fault{Reason: fmt.Sprintf("got step %d after step %d", m.First, b.result.Steps)}
	}
	if n := len(m.Steps[0].Samples); n != len(b.ranks) {
		return bridge.Decided{},
			&bridge.Fault{Reason: fmt.Sprintf("got the reports of %d ranks, want %d", n, len(b.ranks))}
	}
	for i := range m.Steps {
		s := &m.Steps[i]
		b.take(s, m.Telemetry)
		step := m.First + int64(i)
		if b.training.balancing != nil {
			if shares := b.training.balancing.Split(step, b.ranks, s.Settling); shares != nil {
				next = slices.Clone(shares)
				b.reason = b.training.balancing.Reason()
			}
		}
		b.observe(step, s)
	}
	d := bridge.Decided{Type: "decided", Step: b.result.Steps, Shares: next, Telemetry: b.sample(),
		ShareOfOracle: bridge.Number(b.training.balancing.OfOracle())}
	if next != nil {
		d.Reason = b.reason
	}
	return d, nil
}

// inherit continues the results of the run's earlier processes, which executed the steps up to start.Step.
func (b *bridged) inherit(ctx context.Context, start *bridge.Start) error {
	logs, res := b.training.run.Folder.LogDir(), &b.result
	res.Best, res.SamplesSeen = observe.BestEvaluation(logs, start.Step), start.Trained
	t, err := observe.TrainedTime(ctx, logs, start.Step)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.IO, fmt.Errorf("training time of the run before step %d: %w", start.Step+1, err))
	}
	note := b.training.run.Foreign.Note
	if before := start.Step - t.Steps; before > 0 {
		note(fmt.Sprintf("the records do not have the training time of the first %s; samples per second are those of later steps",
			show.Count(before, "step")))
	}
	if t.Steps == 0 {
		return nil
	}
	untimed := (start.Step - t.Steps) * int64(b.training.process.Cfg.Data.BatchSize)
	res.Trained = train.Trained{Steps: t.Steps, Samples: max(start.Trained-untimed, 0), Time: t.Time}
	if t.Estimated > 0 {
		note(fmt.Sprintf("the training time of %s is an estimate: each counts as long as step %d",
			steps(start.Step-t.Estimated+1, start.Step), start.Step-t.Estimated))
	}
	return nil
}

// noteLost adds a note that names the last steps of a run, if they have no record. The parameter done is the number of
// steps that the program has completed.
func (b *bridged) noteLost(done int64) {
	if done > b.result.Steps && b.training.process.Cfg.Profile.Enabled {
		b.training.run.Foreign.Note("no record: " + steps(b.result.Steps+1, done) +
			"; the run ended before the reports of all ranks were there")
	}
}

// steps returns the text "steps FIRST to LAST".
func steps(first, last int64) string {
	if first == last {
		return fmt.Sprintf("step %d", first)
	}
	return fmt.Sprintf("steps %d to %d", first, last)
}

// epochAt returns the epoch of a step, counted from 0. The report of this step need not have arrived yet.
func (b *bridged) epochAt(step int64) int {
	epochs := b.result.Epochs
	if of := b.training.run.StepsPer; of > 0 {
		epochs += float64(step-b.result.Steps)/float64(of) + 1e-9
	}
	return int(epochs)
}

// take converts the report of a step to the input of the balancer.
func (b *bridged) take(s *bridge.Step, sensors [][]bridge.Number) {
	for rank := range b.ranks {
		r := &b.ranks[rank]
		*r = train.RankStep{
			Sums:  replica.Sums{Samples: s.Samples[rank], Count: int(s.Count[rank]), Loss: float64(s.Loss[rank])},
			Other: session.Seconds(float64(s.Other[rank])), Buckets: s.Buckets[rank], Bytes: int64(s.Bytes[rank]),
			Times: replica.StepTimes{Data: session.Seconds(float64(s.Data[rank])),
				Forward:       session.Seconds(float64(s.Forward[rank])),
				Backward:      session.Seconds(float64(s.Backward[rank])),
				Communication: session.Seconds(float64(s.Exposed[rank])),
				Optimizer:     session.Seconds(float64(s.Optimizer[rank])),
				Hidden:        session.Seconds(float64(s.Hidden[rank]))},
			Telemetry: telemetry.Unknown()}
		if rank < len(sensors) && len(sensors[rank]) == len(r.Telemetry) {
			for i, v := range sensors[rank] {
				r.Telemetry[i] = float64(v)
			}
		}
		for i := range r.Links.Traffic {
			r.Links.Traffic[i] = telemetry.UnknownTraffic()
		}
		if rank == b.own && b.training.rank.Telemetry != nil {
			r.Links = b.training.rank.Telemetry.Report()
		}
	}
}

// observe adds a step to the result of the run and calls the observers.
func (b *bridged) observe(step int64, s *bridge.Step) {
	var sums replica.Sums
	shares, micro := make([]int, len(b.ranks)), b.training.process.Cfg.Train.MicroBatches()
	for rank := range b.ranks {
		sums.Add(b.ranks[rank].Sums)
		shares[rank] = b.ranks[rank].Samples / micro
	}
	took := session.Seconds(float64(s.Seconds[b.own]))
	res := &b.result
	res.Steps, res.LastLoss = step, sums.Score().Loss
	res.Epochs = float64(s.Epoch) + float64(s.EpochStep)/float64(s.EpochSteps)
	res.Samples += int64(sums.Samples)
	res.SamplesSeen += int64(sums.Samples)
	res.TrainTime += took
	res.Trained.Steps, res.Trained.Samples = res.Trained.Steps+1, res.Trained.Samples+int64(sums.Samples)
	res.Trained.Time += took
	if s.Skipped {
		res.Skipped++
	}
	own := &b.ranks[b.own]
	record := train.StepRecord{StepResult: replica.StepResult{Sums: sums, GradNorm: float64(s.GradNorm),
		Updated: !s.Skipped, Scale: float64(s.Scale), Times: own.Times, Buckets: own.Buckets, Bytes: own.Bytes},
		Took: took, Trained: res.Trained, Ranks: b.ranks, Shares: shares, Changed: b.shares != nil &&
			!slices.Equal(shares, b.shares), Step: step, Total: b.training.run.Steps,
		Epoch: s.Epoch, EpochStep: s.EpochStep, EpochSteps: s.EpochSteps, Rate: float64(s.Rate), Skipped: res.Skipped,
		Time: time.UnixMicro(int64(s.Time * 1e6))}
	b.shares = shares
	b.observers.StepDone(&record)
	if b.training.timed != nil {
		b.times = b.times[:0]
		for rank := range b.ranks {
			b.times = append(b.times, b.ranks[rank].Times)
		}
		b.training.timed.Known(b.times) // the report of a step contains all its times
	}
}

// evaluated adds an evaluation to the result of the run and calls the observers. The program reports only the loss of
// an evaluation.
func (b *bridged) evaluated(m *bridge.Evaluation) {
	res, loss := &b.result, float64(m.Loss)
	e := train.Evaluation{Step: *m.Step, Epoch: b.epochAt(*m.Step), Samples: m.Samples, Loss: loss,
		Took: session.Seconds(m.Seconds)}
	if !math.IsNaN(loss) && !math.IsInf(loss, 0) && (res.Best == nil || loss < float64(res.Best.Value)) {
		e.Best, res.Best = true, &checkpoint.Best{Metric: "loss", Value: checkpoint.Float(loss), Step: *m.Step}
	}
	res.LastEval = &e
	b.observers.EvalDone(e)
}
