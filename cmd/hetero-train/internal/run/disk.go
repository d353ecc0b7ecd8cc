package run

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/diskwatch"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/spool"
)

const (
	// diskGrace is the time for which a run waits for the disk after a signal to stop. It must end before the 30 s
	// after which most schedulers kill a job. The run must still report the steps that it could not save. A shorter
	// time loses checkpoints on a slow file system.
	diskGrace = 20 * time.Second
	// hangs is the shortest age of a disk operation that counts as hanging. A second SIGTERM does not wait for such an
	// operation.
	hangs = time.Second
	// mostSignals is the number of signals after which the process ends in any case.
	mostSignals = 3
)

// disk contains the queue of this process's records, and the operations on files that have not returned.
type disk struct {
	watch diskwatch.Watch
	queue *spool.Queue
	log   *slog.Logger

	over context.Context // ends when the queue is closed

	waited  atomic.Int64           // time in ns for which training has waited
	leaving atomic.Bool            // training has ended
	saved   atomic.Bool            // the process has nothing left to save
	newest  atomic.Pointer[string] // path of the newest checkpoint; nil: none

	mu    sync.Mutex
	waits string // data for which training waits; "": it does not wait
}

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

// silent logs a warning about an operation that has not returned.
func (d *disk) silent(file string, age time.Duration) {
	d.mu.Lock()
	waits := d.waits
	d.mu.Unlock()
	effect := "training continues, and records wait in memory"
	switch {
	case waits != "":
		effect = "training waits for " + waits
	case d.leaving.Load():
		effect = "the end of the run waits for it"
	}
	d.log.Warn("the disk does not answer; "+effect, "file", file, "for", age.Round(time.Second), "waiting_bytes",
		d.queue.Waiting())
}

// answers logs that a late operation has returned.
func (d *disk) answers(file string, age time.Duration) {
	d.log.Info("the disk answers again", "file", file, "after", age.Round(100*time.Millisecond))
}

// Full implements [train.Disk].
func (d *disk) Full() bool { return d.queue.Full() }

// Written implements [train.Disk].
func (d *disk) Written() <-chan struct{} { return d.queue.Written() }

// Waits implements [train.Disk].
func (d *disk) Waits(what string) (end func()) {
	d.mu.Lock()
	d.waits = what
	d.mu.Unlock()
	if file, age := d.watch.Oldest(); age >= hangs {
		d.log.Warn("training waits for the disk", "for", what, "file", file, "age", age.Round(time.Second))
	}
	began := time.Now()
	return func() {
		took := time.Since(began)
		d.waited.Add(int64(took))
		d.mu.Lock()
		d.waits = ""
		d.mu.Unlock()
		if took >= hangs { // docs/reliability.md explains waits of this length
			d.log.Info("training goes on", "waited_for_the_disk", took.Round(100*time.Millisecond), "for", what)
		}
	}
}

// note returns a sentence for the results: the time for which training has waited for the disk. It returns "" for a
// short time.
func (d *disk) note() string {
	if waited := time.Duration(d.waited.Load()); waited >= hangs {
		return fmt.Sprintf("training waited %s for the disk", show.Duration(waited))
	}
	return ""
}

// during calls do, and reports it as one disk operation named what.
func (d *disk) during(what string, do func()) {
	defer d.watch.Begin(what)()
	do()
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

// savedAs is an observer that stores the path of the newest checkpoint in disk.
type savedAs struct{ disk *disk }

// Saved implements [train.Observer].
func (o savedAs) Saved(s checkpoint.Saved, _ time.Duration) { o.disk.newest.Store(&s.Path) }

func (savedAs) StepDone(*train.StepRecord) {}
func (savedAs) EvalDone(train.Evaluation)  {}
func (savedAs) RolledBack(int64)           {}
func (savedAs) Saving()                    {}
func (savedAs) Warn(error)                 {}
