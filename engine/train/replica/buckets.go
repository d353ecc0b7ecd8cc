package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/plan"
)

// openSync prepares the sums over ranks with default buckets. tuneSync can replace the buckets after the plans exist.
func (r *Replica) openSync(into device.Buffer) (err error) {
	if r.group == nil {
		return nil
	}
	if r.sums, err = r.newSync(into, nil); err != nil {
		return err
	}
	r.closer.add(func() error { return r.sums.Close() })
	if r.counts, err = r.group.NewRows(r.dev, "counts", countBytes); err == nil {
		r.closer.add(r.counts.Close)
	}
	return err
}

// openTally prepares the counts of predictions in evaluations, if the task has classes.
func (r *Replica) openTally() (err error) {
	report := r.opts.Task.Report()
	if report.Classes == 0 {
		return nil
	}
	if r.tally, err = newTally(r.dev, r.group, report); err == nil && r.tally.rows != nil {
		r.closer.add(r.tally.rows.Close)
	}
	return err
}

// tuneSync chooses the buckets, unless CapBytes fixes them, and passes the shares to the sums.
func (r *Replica) tuneSync(into device.Buffer) error {
	p := r.opts.Peers
	if p == nil {
		return nil
	}
	if err := r.sums.SetShares(r.shares.All()); err != nil || p.CapBytes != 0 {
		return err
	}
	ends, err := r.chooseBuckets(r.sums)
	if err := errors.Join(err, r.sums.Close()); err != nil {
		return err
	}
	sums, err := r.newSync(into, ends)
	if err != nil {
		return err
	}
	r.sums = sums
	return r.sums.SetShares(r.shares.All())
}

// newSync creates a Sync that sums into a buffer. The buckets end at the offsets ends, in bytes. If ends is nil,
// CapBytes limits them.
func (r *Replica) newSync(into device.Buffer, ends []int64) (*gradsync.Sync, error) {
	p := r.opts.Peers
	return gradsync.New(r.cache, r.state, into, gradsync.Options{Group: r.group, Ends: ends,
		CapBytes: p.CapBytes, Wire: p.Wire,
		Sequential: p.Sequential, AverageStates: !p.SyncNorm, GhostGroup: r.opts.GhostGroup})
}

// chooseBuckets times a few passes. It returns the bucket ends with which the last all-reduce completes earliest.
func (r *Replica) chooseBuckets(sync *gradsync.Sync) (ends []int64, err error) {
	const passes = 3
	p := r.now.train
	joined, err := sync.Bind(p.plan, device.Whole(r.arena))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.plan.Close()) }() // frees the programs; the plan is bound again later
	if err := r.clearInputs(p.plan); err != nil {
		return nil, err
	}
	elapsed := make([]time.Duration, len(p.plan.Launches()))
	for i := range passes + 1 {
		if i == 1 {
			clear(elapsed) // the first pass includes page faults
		}
		if err := joined.RunTimed(r.stream, elapsed); err != nil {
			return nil, err
		}
	}
	for i := range elapsed {
		elapsed[i] /= passes
	}
	if p.idle {
		elapsed = nil
	}
	t, err := gradsync.Tune(context.Background(), r.group.Grads, r.dev, p.plan, elapsed, r.state.Grads,
		r.opts.Peers.Wire)
	return t.Ends, err
}

// clearInputs writes zeros to the inputs of a bound plan, so that the labels are valid.
func (r *Replica) clearInputs(p *plan.Plan) error {
	for _, name := range p.InputNames() {
		to, _, err := p.Input(name)
		if err != nil {
			return err
		}
		zeros, err := r.dev.AllocHost(to.Bytes)
		if err != nil {
			return err
		}
		clear(zeros.Host())
		err = errors.Join(r.stream.Copy(to, device.Whole(zeros)), r.stream.Sync(), zeros.Free())
		if err != nil {
			return fmt.Errorf("clear input %s: %w", name, err)
		}
	}
	return nil
}
