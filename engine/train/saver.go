package train

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// ErrFinalSave ends a run whose final save failed.
var ErrFinalSave = errors.New("the final save failed")

// saver writes the checkpoints of a run on rank 0. On the other ranks, it only records the steps of the checkpoints.
type saver struct {
	store    *checkpoint.Store
	observer Observer
	disk     Disk
	ranks    *consensus
	leaving  func()        // Options.Leaving
	every    int64         // Options.SaveSteps
	interval time.Duration // Options.SaveInterval

	begun  time.Time    // time at which the last save began
	step   int64        // step of the last checkpoint; -1 if the state must be saved
	path   string       // path of the last checkpoint that this process saved; "" if none
	saving chan written // receives the result of the save in progress; nil if none
}

// written is the result of a save.
type written struct {
	step  int64
	began time.Time
	saved checkpoint.Saved
	err   error
}

// due reports whether rank 0 saves a checkpoint of the given step, by steps or by time.
func (s *saver) due(step int64) bool {
	return s.ranks.leads() && (s.every > 0 && step%s.every == 0 || s.interval > 0 && time.Since(s.begun) >= s.interval)
}

// begin begins a save: the observer flushes its records.
func (s *saver) begin() {
	s.begun = time.Now()
	s.observer.Saving()
}

// write writes a snapshot, whose save began at the given time. It returns after the checkpoint is on disk.
func (s *saver) write(snapshot checkpoint.Snapshot, began time.Time) error {
	w := written{step: snapshot.State.Step, began: began}
	defer s.disk.Waits("the checkpoint of this step")()
	<-s.disk.Written()
	// context.Background: a save that has started is finished even if the run is interrupted.
	w.saved, w.err = s.store.Save(context.Background(), snapshot)
	return s.note(w)
}

// writeBeside writes a snapshot in the background, after the records of the steps before it.
func (s *saver) writeBeside(snapshot checkpoint.Snapshot, began time.Time) {
	w, records := written{step: snapshot.State.Step, began: began}, s.disk.Written()
	s.step, s.saving = w.step, make(chan written, 1)
	go func() {
		<-records
		w.saved, w.err = s.store.Save(context.Background(), snapshot)
		s.saving <- w
	}()
}

// settle waits for the save in progress, if there is one.
func (s *saver) settle() {
	if s.saving != nil {
		s.ended(<-s.saving)
	}
}

// settled reports whether no save is in progress.
func (s *saver) settled() bool { return s.saving == nil || len(s.saving) > 0 }

// poll records the result of a save that has ended. It does not block.
func (s *saver) poll() {
	select {
	case w := <-s.saving:
		s.ended(w)
	default: // no save has ended
	}
}

func (s *saver) ended(w written) {
	s.saving = nil
	if err := s.note(w); err != nil {
		if s.step == w.step {
			s.step = -1
		}
		s.observer.Warn(triedAgain(err))
	}
}

// note records the result of a save and reports it to the observer.
func (s *saver) note(w written) error {
	if w.err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", w.step, w.err)
	}
	s.step, s.path = w.step, w.saved.Path
	for _, warning := range w.saved.Warnings {
		s.observer.Warn(warning)
	}
	s.observer.Saved(w.saved, time.Since(w.began))
	return nil
}

// triedAgain adds to err that the run saves again at the next interval.
func triedAgain(err error) error {
	if errors.Is(err, checkpoint.ErrFolderGone) {
		return fmt.Errorf("%w; this process can save no other checkpoint: stop it, and start the command again", err)
	}
	return fmt.Errorf("%w; earlier checkpoints are unchanged, and the run saves again at the next interval", err)
}

// hide moves the checkpoints that rank 0 saved after step lastSound to a quarantine folder, with the reason err. It
// returns err with their names.
func (s *saver) hide(lastSound int64, err error) error {
	if !s.ranks.leads() || s.store == nil {
		return err
	}
	s.leaving()
	s.settle()
	moved, moveErr := s.store.Quarantine(lastSound, err.Error())
	if len(moved) > 0 {
		err = fmt.Errorf("%w; checkpoints that may be wrong were moved to a folder quarantined-N: %s",
			err, strings.Join(moved, ", "))
	}
	return errors.Join(err, moveErr)
}
