package filelock

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestOnlyOneHoldsALock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	var wait sync.WaitGroup
	var inside atomic.Int32
	for range 8 {
		wait.Go(func() {
			l, err := Acquire(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d holders", n)
			}
			time.Sleep(time.Millisecond)
			inside.Add(-1)
			if err := l.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	held, err := Acquire(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Acquire(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
