//go:build unix

package supervisor

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// SIGKILL does not end a process that sleeps in the kernel, for example while it writes to a file system that hangs.
// The supervisor must not wait for such a process for ever, and must not report that the run is saved.
func TestARankThatSurvivesSIGKILLIsLeftBehind(t *testing.T) {
	for name, test := range map[string]struct {
		plan   string
		signal os.Signal // signal to the supervisor; nil: rank 1 ends the run
		stop   syscall.Signal
		says   string
	}{
		"after another rank was lost": {"stubborn,mark deaf,wait;await deaf,exit 5", nil, 0,
			"did not exit within 300ms after SIGKILL"},
		"after a signal": {"stubborn,wait;save 75", syscall.SIGTERM, syscall.SIGTERM,
			"did not exit within 300ms after SIGKILL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options, out, log := planned(t, test.plan)
			options.Grace, options.LeaveAfter = short, short
			options.kill = func(int) error { return nil }
			signals := make(chan os.Signal, 1)
			options.Signals = signals
			done := make(chan error, 1)
			go func() { done <- Run(context.Background(), options) }()
			waiting := 1
			if test.signal != nil {
				waiting = 2
			}
			pids := out.waitFor(t, waiting)
			if test.signal != nil {
				signals <- test.signal
			}
			select {
			case err := <-done:
				var failed *RankError
				if !errors.As(err, &failed) || failed.Rank != 0 || !failed.Hung || failed.Stop != test.stop ||
					!strings.Contains(err.Error(), test.says) {
					t.Errorf("got %v (%+v), want that rank 0 hangs and %q", err, failed, test.says)
				}
			case <-time.After(patience):
				t.Error("the supervisor waits without end")
			}
			if !strings.Contains(log.String(), "leaving it behind") {
				t.Errorf("nothing about the rank in\n%s", log)
			}
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			noneLeft(t, pids)
		})
	}
}
