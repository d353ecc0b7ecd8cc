package run

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/diskwatch"
	"github.com/hetero-train/hetero-train/profiler/spool"
)

const (
	// diskGrace is the time for which a run waits for the disk after a signal to stop. It must end before the 30 s
	// after which most schedulers kill a job. The run must still report the steps that it could not save. A shorter
	// time loses checkpoints on a slow file system.
	diskGrace = 20 * time.Second
	// mostSignals is the number of signals after which the process ends in any case.
	mostSignals = 3
)

// openDisk starts the queue and the reports of a disk that does not answer.
func (tr *training) openDisk(ctx context.Context, log *slog.Logger) {
	d := &tr.disk
	d.log = log
	d.queue = spool.NewQueue(&d.watch)
	tr.run.Queue = d.queue
	d.saved.Store(tr.process.Opts.Assignment.Rank > 0)
	over, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.over = over
	tr.process.Later(func() error {
		err := d.queue.Close()
		stop()
		return err
	})
	go d.watch.Report(over, diskwatch.Reports{Silent: d.silent, Answers: d.answers})
}

// logTo returns a writer that passes its text to the log file through the queue.
func (tr *training) logTo(file io.WriteCloser, path string) *logs.File {
	tr.process.Later(func() error {
		tr.process.Opts.LogFile.To(io.Discard) // later messages appear on the screen only
		<-tr.disk.queue.Written()
		return file.Close()
	})
	return &logs.File{File: file, Path: path, Screen: tr.process.Opts.OnScreen, Disk: tr.disk.queue}
}

// leaves is called when training has ended and the last save begins.
func (tr *training) leaves() {
	tr.disk.leaving.Store(true)
	tr.lifeline.HoldToSave()
}

// stopReceived handles a signal that ends the run. The first such signal has number 1. At the first signal, the rank
// tells the supervisor that it is saving, because a step may take longer than the supervisor waits. If the disk does
// not answer, the process ends after diskGrace, or at the next signal.
func (tr *training) stopReceived(s exit.Stopped, number int) {
	if number == 1 {
		if tr.looping.Load() {
			tr.lifeline.Hold()
		}
		go tr.leaveBy(s)
		return
	}
	if what, age := tr.disk.watch.Oldest(); age >= hangs || number >= mostSignals {
		tr.leaveUnsaved(s, what, age)
	}
}

// leaveBy ends the process if, after a signal, an operation on the disk takes longer than diskGrace.
func (tr *training) leaveBy(s exit.Stopped) {
	for began := time.Now(); tr.disk.over.Err() == nil; time.Sleep(hangs / 4) {
		if what, age := tr.disk.watch.Oldest(); min(age, time.Since(began)) >= diskGrace {
			tr.leaveUnsaved(s, what, age)
		}
	}
}

// leaveUnsaved ends the process without waiting for the disk.
func (tr *training) leaveUnsaved(s exit.Stopped, what string, age time.Duration) {
	d := &tr.disk
	code, lost := s.Unsaved(), "the steps since the newest checkpoint are not saved: "
	switch path := d.newest.Load(); {
	case tr.process.Opts.Assignment.Rank > 0:
		code, lost = s.Saved(), "the log of this rank is incomplete"
	case d.saved.Load():
		code, lost = s.Saved(), "the run is saved, but its results are not written"
	case path == nil:
		lost = "the run is not saved, and has no checkpoint"
	default:
		lost += *path
	}
	text := fmt.Sprintf("%v: %s", s, lost)
	if what != "" {
		text = fmt.Sprintf("%v: the disk has not answered for %s (%s): %s", s, show.Duration(age), what, lost)
	}
	tr.process.Opts.OnScreen.Error(text, "exit_code", code, "unwritten_record_bytes", d.queue.Waiting())
	if tr.process.Opts.Screen != nil {
		tr.process.Opts.Screen.Flush(time.Second)
	}
	os.Exit(code)
}
