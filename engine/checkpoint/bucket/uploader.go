package bucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/objects"
)

const (
	// retryWait is the wait after a failed upload. It doubles after each further failure, up to longestRetry.
	retryWait    = 5 * time.Second
	longestRetry = 2 * time.Minute
)

// Options configures an Uploader.
type Options struct {
	Keep   int // number of newest checkpoints to keep in the bucket; the best one is always kept
	Logger *slog.Logger
	retry  time.Duration // for tests; 0: retryWait
}

// Error reports that a checkpoint is not in the bucket at the end of a run.
type Error struct {
	Checkpoint, Folder string
	Err                error
}

func (e *Error) Error() string {
	return fmt.Sprintf("upload %s to %s: %v; the checkpoint on this machine is complete", e.Checkpoint, e.Folder, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Uploader uploads checkpoints in the background, one at a time.
type Uploader struct {
	folder *Folder
	o      Options
	ctx    context.Context
	stop   context.CancelFunc
	wake   chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	pending *opened // the newest checkpoint that is not in the bucket; nil: none
	best    *opened // the best checkpoint that is not in the bucket, if it is older than pending; nil: none
	bestErr error   // error of best; nil: no attempt yet
	path    string  // path of the newest checkpoint
	failure error   // error of the newest checkpoint; nil: it is in the bucket, or no attempt was made
	taken   error   // *TakenError: this process uploads nothing more; nil: none
	rewind  int64   // step from which the run continues, if the bucket must be updated; -1: none
	current *opened // the checkpoint that is being uploaded; nil: none
	cancel  context.CancelFunc
	dropped bool // current is no longer wanted
	closing bool
}

// NewUploader starts an Uploader. The caller must close it.
func NewUploader(folder *Folder, o Options) *Uploader {
	if o.retry == 0 {
		o.retry = retryWait
	}
	u := &Uploader{folder: folder, o: o, wake: make(chan struct{}, 1), done: make(chan struct{}), rewind: -1}
	u.ctx, u.stop = context.WithCancel(context.Background())
	go u.run()
	return u
}

// Folder returns the folder to which the Uploader uploads.
func (u *Uploader) Folder() *Folder { return u.folder }

// Saved uploads the checkpoint at path in the background. If another checkpoint still waits, the new one replaces it,
// unless the waiting one is the best.
func (u *Uploader) Saved(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.path = path
	if u.failure = u.taken; u.taken != nil {
		return
	}
	c, err := openFiles(path)
	if err != nil {
		u.failure = err
		u.o.Logger.Warn("the checkpoint cannot be uploaded", "checkpoint", path, "error", err)
		return
	}
	u.leaveOut(c)
	u.pending = c
	u.nudge()
}

// leaveOut closes the checkpoints that c replaces, except the best one. The caller must hold the lock.
func (u *Uploader) leaveOut(c *opened) {
	out := u.pending
	u.pending = nil
	best, ok := localBest(c.path)
	if out != nil && ok && out.step == best {
		out, u.best, u.bestErr = u.best, out, nil
	} else if u.best != nil && (!ok || u.best.step != best) {
		u.best.close()
		u.best = nil
	}
	if out != nil {
		u.o.Logger.Info("the upload of a checkpoint is left out, because a newer one is saved", "checkpoint",
			checkpoint.StepName(out.step))
		out.close()
	}
}

// RolledBack must be called when the run returns to an earlier step. Later checkpoints are then neither uploaded nor
// used.
func (u *Uploader) RolledBack(step int64) {
	u.Cancel(func(s int64, _ []byte) bool { return s > step })
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rewind = step
	u.nudge()
}

// Cancel cancels the upload of each checkpoint for which match returns true.
func (u *Uploader) Cancel(match func(step int64, manifest []byte) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, slot := range []**opened{&u.pending, &u.best} {
		if c := *slot; c != nil && match(c.step, c.manifest) {
			u.forget(c)
			c.close()
			*slot = nil
		}
	}
	if c := u.current; c != nil && match(c.step, c.manifest) {
		u.forget(c)
		u.dropped = true
		u.cancel()
	}
}

// forget removes the failure of a checkpoint that is no longer wanted. The caller must hold the lock.
func (u *Uploader) forget(c *opened) {
	if c.path == u.path {
		u.failure = nil
	}
}

func (u *Uploader) nudge() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// job is the next task of an Uploader.
type job struct {
	ctx     context.Context
	c       *opened // checkpoint to upload; nil: none
	newest  bool    // c is the newest checkpoint, not only the best one
	rewind  int64   // -1: none
	closing bool
}

// take returns the next task.
func (u *Uploader) take() job {
	u.mu.Lock()
	defer u.mu.Unlock()
	j := job{ctx: u.ctx, rewind: u.rewind, closing: u.closing}
	switch {
	case j.rewind >= 0:
		return j
	case u.pending != nil:
		j.c, j.newest, u.pending = u.pending, true, nil
	case u.best != nil:
		j.c, u.best = u.best, nil
	default:
		return j
	}
	u.current, u.dropped = j.c, false
	j.ctx, u.cancel = context.WithCancel(u.ctx)
	return j
}

// settle records the result of a job. After a failed upload, the checkpoint waits for another attempt, unless a newer
// one waits. The result again is false if no further attempt is necessary.
func (u *Uploader) settle(j job, err error) (again bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if j.c == nil {
		if err == nil && u.rewind == j.rewind {
			u.rewind = -1
		}
		u.failedForGood(err)
		return err != nil && u.taken == nil
	}
	u.cancel()
	u.current = nil
	own := j.c.path == u.path
	switch {
	case err == nil || u.dropped:
		if own {
			u.failure = nil
		}
	case u.failedForGood(err):
	case !j.newest && u.best == nil && u.pending == nil:
		u.best, u.bestErr = j.c, err
		return true
	case j.newest && u.pending == nil:
		u.pending = j.c
		if own {
			u.failure = err
		}
		return true
	case u.best == nil && j.c.best: // a newer one waits, but this may still be the best one
		if best, ok := localBest(j.c.path); ok && best == j.c.step {
			u.best, u.bestErr = j.c, err
			return true
		}
	}
	j.c.close()
	return err != nil && !u.dropped && u.taken == nil
}

// failedForGood reports whether err means that another process writes to the folder. If so, failedForGood discards all
// waiting checkpoints. The caller must hold the lock.
func (u *Uploader) failedForGood(err error) bool {
	if !errors.As(err, new(*TakenError)) {
		return false
	}
	u.taken, u.failure, u.rewind = err, err, -1
	for _, slot := range []**opened{&u.pending, &u.best} {
		if *slot != nil {
			(*slot).close()
			*slot = nil
		}
	}
	u.o.Logger.Warn("this run uploads no more checkpoints", "error", err)
	return true
}

func (u *Uploader) ending() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.closing
}

// passes reports whether another attempt may succeed without a change of credentials or permissions.
func passes(err error) bool {
	var request *objects.Error
	return errors.As(err, &request) && request.Passes
}

func (u *Uploader) run() {
	defer close(u.done)
	wait := u.o.retry
	newest := int64(-1) // step of the newest checkpoint that was uploaded
	for {
		j := u.take()
		if j.c == nil && j.rewind < 0 {
			if j.closing {
				return
			}
			select {
			case <-u.wake:
			case <-u.ctx.Done():
				return
			}
			continue
		}
		began := time.Now()
		name, err := "", error(nil)
		if j.c == nil {
			newest = min(newest, j.rewind)
			err = u.folder.Rewind(j.ctx, j.rewind)
		} else {
			name = checkpoint.StepName(j.c.step)
			err = u.folder.upload(j.ctx, j.c, j.newest)
		}
		again := u.settle(j, err)
		if err == nil {
			wait = u.o.retry
			if j.c == nil {
				continue
			}
			if j.newest {
				newest = j.c.step
			}
			u.o.Logger.Info("the checkpoint is uploaded", "checkpoint", name, "to", u.folder.String(), "took",
				time.Since(began).Round(time.Millisecond))
			if newest >= 0 {
				if err := u.folder.retain(u.ctx, newest, u.o.Keep); err != nil {
					u.o.Logger.Warn("old checkpoints of the bucket cannot be removed", "folder", u.folder.String(), "error",
						err)
				}
			}
			continue
		}
		if u.ctx.Err() != nil || u.ending() && again && !passes(err) {
			return
		}
		if !again {
			continue
		}
		u.o.Logger.Warn("the upload of a checkpoint failed; training continues, and the program tries again", "checkpoint",
			name, "after", wait, "error", err)
		select {
		case <-time.After(wait):
		case <-u.wake: // a newer checkpoint, or Close
		case <-u.ctx.Done():
			return
		}
		wait = min(2*wait, longestRetry)
	}
}

// Close waits until the newest checkpoint is in the bucket, and ends the uploads. If ctx ends first, Close stops the
// upload and returns an *Error.
func (u *Uploader) Close(ctx context.Context) error {
	u.mu.Lock()
	u.closing = true
	u.mu.Unlock()
	u.nudge()
	select {
	case <-u.done:
	case <-ctx.Done():
		u.stop()
		<-u.done
	}
	u.stop()
	u.mu.Lock()
	defer u.mu.Unlock()
	late := errors.New("it did not end in time")
	if u.pending != nil && (u.failure == nil || errors.Is(u.failure, context.Canceled)) {
		u.failure = late
	}
	path, failure := u.path, u.failure
	if failure == nil && u.best != nil {
		path, failure = u.best.path, u.bestErr
		if failure == nil || errors.Is(failure, context.Canceled) {
			failure = late
		}
	}
	if failure == nil && u.rewind >= 0 {
		failure = errors.New("later checkpoints, which the run does not continue, could not be hidden")
	}
	for _, c := range []*opened{u.pending, u.best} {
		if c != nil {
			c.close()
		}
	}
	u.pending, u.best = nil, nil
	if failure != nil {
		return &Error{path, u.folder.String(), failure}
	}
	return nil
}
