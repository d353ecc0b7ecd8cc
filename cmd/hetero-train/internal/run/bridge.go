package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/bridge"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/rebalance"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
)

// Bridge runs the balancer and the records of this rank, until the program that computes the steps ends the run. The
// message start describes the model, the data set and the device of that program.
func Bridge(ctx context.Context, cfg *config.Config, opts session.Options, conn *bridge.Conn,
	start *bridge.Start) error {
	if err := checkMetrics(cfg, opts); err != nil {
		return err
	}
	b := &bridged{training: newTraining(compute.NewRank(cfg, opts)), conn: conn, own: opts.Assignment.Rank}
	b.training.openDisk(ctx, opts.Log)
	defer b.training.process.CloseAll()
	if err := b.training.openNotify(cfg, opts); err != nil {
		return err
	}
	err := b.open(ctx, start)
	if err == nil {
		b.training.looping.Store(true)
		err = b.follow(ctx)
	}
	if err = b.end(exit.Classify(ctx, err)); err != nil {
		return err
	}
	of := bridge.Number(math.NaN())
	if b.training.balancing != nil {
		of = bridge.Number(b.training.balancing.OfOracle())
	}
	ended := bridge.Ended{Type: "ended", Steps: b.result.Steps, ShareOfOracle: of,
		SamplesPerSecond: bridge.Number(math.NaN())}
	if b.training.rank.Team.Leads() { // only rank 0 knows the training time of earlier processes
		ended.SamplesPerSecond = bridge.Number(show.PerSecond(b.result.Trained.Samples, b.result.Trained.Time))
	}
	if b.training.run.Folder != nil {
		ended.Folder = b.training.run.Folder.Dir
	}
	return conn.Send(ended)
}

// open starts the balancer and the records, and answers the message start.
func (b *bridged) open(ctx context.Context, start *bridge.Start) error {
	b.describe(start)
	assigned := b.training.process.Opts.Assignment
	ranks := assigned.WorldSize
	if err := b.training.process.Cfg.CheckRanks(ranks); err != nil {
		return exit.With(exit.Usage, err)
	}
	if total := parts.BatchOf(b.training.process.Cfg).Total; total < ranks &&
		!b.training.process.Cfg.Balance.BenchWorthless {
		return exit.Usagef("global_batch: a micro-batch has %d samples, want at least one for each of the %d ranks",
			total, ranks)
	}
	if start.SyncNorm && b.training.process.Cfg.Balance.BenchWorthless {
		return exit.Usagef("bench_worthless: an excluded rank computes one sample with weight 0, which would change the statistics of SyncBatchNorm: remove the setting, or use another normalisation")
	}
	if start.SyncNorm && slices.Contains(b.training.process.Cfg.Balance.FixedShares, 0) {
		return exit.Usagef("fixed_shares: a rank with a share of 0 computes one sample with weight 0, which would change the statistics of SyncBatchNorm: give each rank a sample, or use another normalisation")
	}
	if ranks > 1 {
		b.training.rank.Team = &process.Team{
			Place: assigned, Exchange: func(ctx context.Context, what string, own []byte) ([][]byte, error) {
				return b.conn.Exchange(ctx, what, own, ranks)
			}}
	}
	limits, err := b.agree(ctx, start)
	if err != nil {
		return err
	}
	shares, opening, err := b.divide(ctx, limits)
	if err != nil {
		return err
	}
	if err := b.training.rank.OpenTelemetry(ctx, b.training.balancing.Quiet); err != nil {
		return err
	}
	b.result = train.Result{Steps: start.Step, LastLoss: math.NaN()}
	folder, err := b.openRecords(ctx, start)
	if err != nil {
		return err
	}
	return b.conn.Send(bridge.Started{Type: "started", Shares: shares,
		Interval: b.training.process.Cfg.Balance.Interval, Opening: opening, Folder: folder,
		Cached: b.training.balancing.HasCurve(), Telemetry: b.sample(), Policy: b.policyName(),
		Notes: b.training.run.Notes()})
}

// agreed contains the facts about a rank that it sends to the other ranks before the balancer starts.
type agreed struct {
	Type    devices.RankType
	Limit   int    // largest share; 0: no limit
	Program string // versions of this program and of PyTorch
	Model   string // name and hash
	Samples int    // number of samples of the data set
	Batch   string
}

// agree compares the versions, models, batches and data sets of the ranks, and returns the largest share of each rank.
func (b *bridged) agree(ctx context.Context, start *bridge.Start) ([]int, error) {
	own := agreed{
		Type: devices.RankType{Device: b.training.rank.DescribeItself().DeviceType,
			Type: b.training.rank.Precision.String()}, Limit: start.MaxShare, Program: version.Source() + ", PyTorch " +
			start.Torch,
		Model:   fmt.Sprintf("%s with %d parameters (%s)", start.Model.Name, start.Model.Parameters, start.Model.Hash),
		Samples: start.Dataset.Samples,
		Batch: fmt.Sprintf("%d samples in %d micro-batches, policy %s, interval %d",
			b.training.process.Cfg.Data.BatchSize, b.training.process.Cfg.Train.MicroBatches(),
			b.training.process.Cfg.Balance.Policy, b.training.process.Cfg.Balance.Interval)}
	all, err := process.GatherAll(ctx, b.training.rank.Team, "description of the ranks", "description of rank", own)
	if err != nil {
		return nil, err
	}
	total := parts.BatchOf(b.training.process.Cfg).Total
	limits := make([]int, len(all))
	first := &all[0]
	for rank, other := range all {
		for _, v := range []struct{ what, got, want string }{{"versions", other.Program, first.Program},
			{"model", other.Model, first.Model}, {"global batch", other.Batch, first.Batch},
			{"length of the data set", fmt.Sprint(other.Samples), fmt.Sprint(first.Samples)}} {
			if v.got != v.want {
				return nil,
					exit.Usagef(
						"%s: rank %d has %s, rank 0 has %s: start all ranks with the same program, script and data",
						v.what, rank, v.got, v.want)
			}
		}
		b.training.rank.Types = append(b.training.rank.Types, other.Type)
		if limits[rank] = cmp.Or(other.Limit, total); limits[rank] > total {
			limits[rank] = total
		}
	}
	return limits, nil
}

// divide creates the balancer and returns the first shares.
func (b *bridged) divide(ctx context.Context, limits []int) (shares []int, opening int, err error) {
	b.ranks = make([]train.RankStep, len(limits))
	if b.training.rank.Team == nil {
		b.training.scores, err = rebalance.New(ctx, b.training.run)
		return []int{parts.BatchOf(b.training.process.Cfg).Total}, 0, err
	}
	if b.training.balancing, err = rebalance.New(ctx, b.training.run); err != nil {
		return nil, 0, err
	}
	b.training.scores = b.training.balancing
	if len(b.training.process.Cfg.Balance.FixedShares) > 0 {
		if shares, err = parts.Divide(b.training.process.Cfg, len(limits)); err == nil && b.training.rank.Team.Leads() {
			b.training.balancing.LogBatchSizes(shares, "balance.fixed_shares")
		}
		return shares, 0, err
	}
	if shares, err = b.training.balancing.Divide(limits); err != nil {
		return nil, 0, err
	}
	return shares, b.training.balancing.Opening(), nil
}

// openRecords opens the observers and, on rank 0, the folder of the run. Rank 0 tells the other ranks whether it has
// opened the folder.
func (b *bridged) openRecords(ctx context.Context, start *bridge.Start) (folder string, err error) {
	failed := ""
	own := error(nil)
	if b.training.rank.Team.Leads() {
		if own = b.begin(ctx, start); own != nil {
			failed = own.Error()
		}
	}
	sendErr := b.training.rank.Team.Send(ctx, "folder of the run", &failed, func() error { return nil })
	switch {
	case own != nil:
		return "", own
	case sendErr != nil:
		return "", sendErr
	case failed != "":
		return "", exit.Usagef("rank 0: %s", failed)
	}
	if err := b.training.openMetrics(ctx); err != nil {
		return "", err
	}
	if b.training.exporter != nil {
		b.observers = append(b.observers, b.training.exporter)
	}
	if !b.training.rank.Team.Leads() {
		return "", nil
	}
	return filepath.Abs(b.training.run.Folder.Dir)
}

// begin opens the folder of the run and the observers of rank 0.
func (b *bridged) begin(ctx context.Context, start *bridge.Start) (err error) {
	e := b.training.process.Cfg.Experiment
	o := experiment.Options{OutputDir: e.OutputDir, Name: e.Name, LogDir: e.LogDir, Resume: experiment.ResumeNone}
	var resume *checkpoint.State
	if start.Step > 0 { // the run keeps its records up to this step
		resume = &checkpoint.State{Step: start.Step}
		o.Resume, o.Named, o.Steps = experiment.ResumeAuto, true, math.MaxInt64
	}
	if b.training.run.Folder, err = experiment.Open(o); err != nil {
		return err
	}
	b.training.process.Later(b.training.run.Folder.Close)
	b.training.noteFolder(b.training.run.Folder.Dir)
	if err := b.training.run.Folder.Begin(); err != nil {
		return err
	}
	file, err := b.training.run.Folder.OpenLog()
	if err != nil {
		return err
	}
	logFile := b.training.logTo(file, filepath.Join(b.training.run.Folder.LogDir(), experiment.LogFile))
	b.training.process.Opts.LogFile.To(logFile)
	stored := *b.training.process.Cfg
	if dir := stored.Experiment.LogDir; dir != "" {
		if stored.Experiment.LogDir, err = filepath.Abs(dir); err != nil {
			return err
		}
	}
	if err := b.training.run.Folder.StoreConfig(b.training.run.SettingsTOML(&stored), version.Text()); err != nil {
		return err
	}
	if resume != nil {
		if err := b.inherit(ctx, start); err != nil {
			return err
		}
	}
	script := &b.training.run.Foreign.Script
	if resume != nil {
		script.Saved = &start.Step // the step from which the script has resumed
	}
	if err := b.training.run.Folder.NoteScript(script); err != nil {
		return exit.With(exit.IO, err)
	}
	b.training.scores.SaveProfile()
	b.screen = observe.NewConsole(b.training.run, logFile)
	if b.training.records, err = observe.OpenRecords(b.training.run, resume); err != nil {
		return err
	}
	if err := b.training.balancing.ReportTo(b.screen, resume); err != nil {
		return err
	}
	all, timed, err := observe.Watchers(b.training.run, resume, b.training.records, b.screen,
		b.training.balancing.Observer())
	if err != nil {
		return err
	}
	b.training.timed = timed
	b.training.balancing.WatchedBy(all)
	b.training.balancing.WatchedBy(timed.Observers)
	if b.training.tracking, err = observe.OpenTracking(b.training.run, resume); err != nil {
		return err
	}
	if b.training.tracking != nil {
		b.training.balancing.Watch(b.training.tracking.Decided)
		all = append(all, b.training.tracking)
	}
	if b.training.watch != nil {
		b.training.balancing.Watch(b.training.watch.Decided)
		all = append(all, b.training.watch)
	}
	b.observers = all
	b.training.process.Opts.Log.Info(fmt.Sprintf("%s: model %s, %.2f million parameters, %d ranks, global batch %d",
		b.training.run.Foreign.Script.Program, b.training.process.Cfg.Model.Name, float64(start.Model.Parameters)/1e6,
		max(b.training.process.Opts.Assignment.WorldSize, 1), b.training.process.Cfg.Data.BatchSize), "folder",
		b.training.run.Folder.Dir)
	return nil
}

// follow answers the messages of the program until the program ends the run.
func (b *bridged) follow(ctx context.Context) error {
	for {
		m, err := b.conn.Next(ctx)
		if errors.Is(err, io.EOF) {
			b.training.run.Foreign.Note(fmt.Sprintf("steps after step %d may have no record, because the script was killed or has exited",
				b.result.Steps))
			return bridge.ErrEnded
		}
		if err != nil {
			return err
		}
		var answer any = bridge.Done{Type: "done"}
		switch m := m.(type) {
		case *bridge.Steps:
			answer, err = b.steps(m)
		case *bridge.Evaluation:
			b.evaluated(m)
		case *bridge.Saved:
			b.observers.Saving()
			b.observers.Saved(checkpoint.Saved{Step: *m.Step}, session.Seconds(m.Seconds))
			err = b.saved(ctx, *m.Step)
		case *bridge.End:
			b.noteLost(*m.Step)
			switch {
			case m.Stopped:
				return exit.With(exit.Interrupted, errors.New("the user stopped the run"))
			case m.Error != "":
				return errors.New(m.Error)
			}
			all := b.training.run.Steps
			b.training.run.Foreign.Script.Closed = m.Closed || all > 0 && b.result.Steps >= all
			return nil
		default:
			err = &bridge.OrderError{Got: m, Want: new(bridge.Steps)}
		}
		if err == nil {
			err = b.conn.Send(answer)
		}
		if err != nil {
			return err
		}
	}
}

// saved stores the step of the program's newest checkpoint, and waits until all records so far are on the disk.
func (b *bridged) saved(ctx context.Context, step int64) error {
	if b.training.records == nil {
		return nil
	}
	script := &b.training.run.Foreign.Script
	script.Saved = &step
	if err := b.training.run.Folder.NoteScript(script); err != nil {
		return exit.With(exit.IO, err)
	}
	select {
	case <-b.training.disk.queue.Written():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end writes the result of the run.
func (b *bridged) end(err error) error {
	b.training.disk.leaving.Store(true)
	b.training.balancing.End()
	if b.training.run.Folder == nil || !b.training.run.Folder.Owes() {
		return err
	}
	b.training.reportEnd(err)
	if b.screen != nil {
		b.screen.Close()
	}
	if writeErr := b.training.writeResult(b.result, err); writeErr != nil && err == nil {
		err = exit.With(exit.IO, writeErr)
	}
	if b.training.records != nil {
		b.screen.End(b.result, err)
		b.training.disk.during("the summary of the run", func() { b.training.records.SumUp(b.screen, b.result) })
		b.training.tracking.End(b.result, err)
	}
	b.training.disk.saved.Store(true)
	return err
}
