package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Lock is a lock that this process holds.
type Lock struct{ f *os.File }

// Acquire locks the file at path exclusively, and creates the file if necessary. It waits while another process, or
// another Lock of this process, holds the lock. If ctx ends first, Acquire returns the error of ctx.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	f, err := regular.Reopen(path)
	if err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		err := platform.TryLock(f)
		if err == nil {
			return &Lock{f}, nil
		}
		if !errors.Is(err, platform.ErrLocked) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for %s, which another process has locked: %w", path, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// Release releases the lock.
func (l *Lock) Release() error { return l.f.Close() }
