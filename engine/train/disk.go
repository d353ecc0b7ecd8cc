package train

import (
	"context"
	"time"
)

// Disk is the queue in which records of the Observer wait for the disk of rank 0. Its methods do not wait.
type Disk interface {
	// Full reports whether the memory for waiting records is full, so training must wait, too.
	Full() bool
	// Written returns a channel that is closed after all records so far have been written.
	Written() <-chan struct{}
	// Waits is called when training begins to wait for the disk, or to use it itself. The argument names the data.
	// Training calls the result when it continues.
	Waits(what string) (end func())
}

// earlierCheckpoint is what training waits for if the next checkpoint is due before the earlier one is written.
const earlierCheckpoint = "the checkpoint before this one"

// Intervals at which a waiting rank 0 looks whether the disk has answered. The other ranks wait for its report
// meanwhile, so mostPolled must be much shorter than all time-outs.
const (
	leastPolled = time.Millisecond
	mostPolled  = 250 * time.Millisecond
)

// awaitDisk waits until ready returns true on rank 0, or until a rank stops the run. what names the data for which
// training waits. Only rank 0 calls ready. All ranks call awaitDisk after the same step. While rank 0 waits, the ranks
// exchange reports, so no rank considers rank 0 lost. The wait is no training time.
func (r *run) awaitDisk(ctx context.Context, what string, ready func() bool) (err error) {
	defer r.pause()()
	end := func() {}
	defer func() { end() }()
	waiting := false
	for poll := leastPolled; ; poll = min(2*poll, mostPolled) {
		want, err := r.own(r.step)
		if err != nil {
			return err
		}
		waits := r.leads() && !ready()
		if want.saving = waits; r.group() != nil { // saving: rank 0 waits
			if _, want, err = r.reports.exchange(context.WithoutCancel(ctx), RankStep{}, want); err != nil {
				return err
			}
			r.asked.stop = r.asked.stop || want.stop
		}
		if !want.saving || want.stop {
			return nil
		}
		if !r.leads() {
			continue
		}
		if !waiting && r.Disk != nil {
			waiting, end = true, r.Disk.Waits(what)
		}
		time.Sleep(poll)
	}
}

// blocks is called before rank 0 reads or writes a checkpoint on the goroutine that trains, and its result after it. If
// the disk hangs, the messages then say that training waits, and for what.
func (r *run) blocks(what string) (end func()) {
	if r.Disk == nil {
		return func() {}
	}
	return r.Disk.Waits(what)
}

// awaitSave waits until the save in progress has ended, before the next one. All ranks call it. It reports whether a
// rank stops the run.
func (r *run) awaitSave(ctx context.Context) (stop bool, err error) {
	if r.wishes().saving {
		err = r.awaitDisk(ctx, earlierCheckpoint, r.settled)
	}
	return r.wishes().stop, err
}

// recordsFit reports whether this rank can hold the records of further steps.
func (r *run) recordsFit() bool { return r.Disk == nil || !r.leads() || !r.Disk.Full() }

// closed returns a function that reports whether a channel is closed.
func closed(done <-chan struct{}) func() bool {
	return func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}
