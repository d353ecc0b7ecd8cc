package run

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/diskwatch"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/spool"
)

// hangs is the shortest age of a disk operation that counts as hanging. A second SIGTERM does not wait for such an
// operation.
const hangs = time.Second

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

// savedAs is an observer that stores the path of the newest checkpoint in disk.
type savedAs struct{ disk *disk }

// Saved implements [train.Observer].
func (o savedAs) Saved(s checkpoint.Saved, _ time.Duration) { o.disk.newest.Store(&s.Path) }

func (savedAs) StepDone(*train.StepRecord) {}

func (savedAs) EvalDone(train.Evaluation) {}

func (savedAs) RolledBack(int64) {}

func (savedAs) Saving() {}

func (savedAs) Warn(error) {}
