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
	// retryWait is the wait after a failed upload, each time twice as long as before, up to longestRetry.
	retryWait    = 5 * time.Second
	longestRetry = 2 * time.Minute
)

// Options configures an Uploader.
type Options struct {
	Keep   int // number of newest checkpoints to keep in the bucket; the best one is kept in addition
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
	path    string  // of the newest checkpoint
	failure error   // of the newest checkpoint; nil: it is in the bucket, or was not tried
	closing bool
}

// NewUploader starts an Uploader, which the caller must close.
func NewUploader(folder *Folder, o Options) *Uploader {
	if o.retry == 0 {
		o.retry = retryWait
	}
	u := &Uploader{folder: folder, o: o, wake: make(chan struct{}, 1), done: make(chan struct{})}
	u.ctx, u.stop = context.WithCancel(context.Background())
	go u.run()
	return u
}

// Saved uploads the checkpoint at path in the background. It replaces a checkpoint that waits.
func (u *Uploader) Saved(path string) {
	c, err := openFiles(path)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.path, u.failure = path, err
	if err != nil {
		u.o.Logger.Warn("the checkpoint cannot be uploaded", "checkpoint", path, "error", err)
		return
	}
	if u.pending != nil {
		u.o.Logger.Info("the upload of a checkpoint is left out, because a newer one is saved", "checkpoint",
			checkpoint.StepName(u.pending.step))
		u.pending.close()
	}
	u.pending = c
	u.nudge()
}

func (u *Uploader) nudge() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// take returns the checkpoint that waits, or nil.
func (u *Uploader) take() (c *opened, closing bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c, u.pending = u.pending, nil
	return c, u.closing
}

// giveBack makes a checkpoint wait again, unless a newer one waits.
func (u *Uploader) giveBack(c *opened, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pending != nil {
		c.close()
		return
	}
	u.pending, u.failure = c, err
}

func (u *Uploader) ending() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.closing
}

// passes reports whether another try may succeed, without a change of credentials or permissions.
func passes(err error) bool {
	var request *objects.Error
	return errors.As(err, &request) && request.Passes
}

func (u *Uploader) run() {
	defer close(u.done)
	wait := u.o.retry
	for {
		c, closing := u.take()
		if c == nil {
			if closing {
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
		name := checkpoint.StepName(c.step)
		err := u.folder.upload(u.ctx, c)
		if err == nil {
			wait = u.o.retry
			c.close()
			u.mu.Lock()
			if u.pending == nil {
				u.failure = nil
			}
			u.mu.Unlock()
			u.o.Logger.Info("the checkpoint is uploaded", "checkpoint", name, "to", u.folder.String(), "took",
				time.Since(began).Round(time.Millisecond))
			if err := u.folder.retain(u.ctx, c.step, u.o.Keep); err != nil {
				u.o.Logger.Warn("old checkpoints of the bucket cannot be removed", "folder", u.folder.String(), "error", err)
			}
			continue
		}
		u.giveBack(c, err)
		if u.ctx.Err() != nil || u.ending() && !passes(err) {
			return
		}
		u.o.Logger.Warn("the upload of a checkpoint failed; training continues, and the program tries again", "checkpoint",
			name, "after", wait, "error", err)
		select {
		case <-time.After(wait):
		case <-u.wake: // a newer checkpoint, or the end
		case <-u.ctx.Done():
			return
		}
		wait = min(2*wait, longestRetry)
	}
}

// Close waits until the newest checkpoint is in the bucket, and ends the uploads. At the end of ctx it gives up. Error:
// *Error.
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
	if u.pending != nil {
		u.pending.close()
		u.pending = nil
		if u.failure == nil || errors.Is(u.failure, context.Canceled) {
			u.failure = errors.New("it did not end in time")
		}
	}
	if u.failure != nil {
		return &Error{u.path, u.folder.String(), u.failure}
	}
	return nil
}
