package program

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// stopped is the cause of a context that a signal cancelled.
type stopped struct{ signal syscall.Signal }

func (s stopped) Error() string { return "stopped by " + unix.SignalName(s.signal) }

// saved is the exit code after the run was saved, unsaved the one after that failed.
func (s stopped) saved() int {
	if s.signal == syscall.SIGINT {
		return exitInterrupted
	}
	return exitTerminated
}

func (s stopped) unsaved() int {
	if s.signal == syscall.SIGINT {
		return exitIO
	}
	return exitKilled
}

// onePress is how long after an interrupt another one is the same: one Ctrl-C may come from the terminal and from what started the program (timeout, mpirun).
const onePress = 500 * time.Millisecond

// catchStops catches the signals that end a run, from now on until release is called: those that come before the run is ready for them wait in the channel.
func catchStops() (signals chan os.Signal, release func()) {
	signals = make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}

// withSignals returns a context that the signals of catchStops cancel, with a stopped as cause, after stop is called; nil: nothing is. A
// second SIGINT ends the process at once. SIGUSR1 counts up saves, which may be nil.
func withSignals(ctx context.Context, signals chan os.Signal, log *slog.Logger, shown *screen, saves *atomic.Int64, stop func()) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if saves != nil {
		signal.Notify(signals, syscall.SIGUSR1)
	}
	done := make(chan struct{})
	go func() {
		var first time.Time
		for {
			select {
			case <-done:
				return
			case got := <-signals:
				sig := got.(syscall.Signal)
				if sig == syscall.SIGUSR1 {
					saves.Add(1)
					log.Info("SIGUSR1: saving after this step, then training continues")
					continue
				}
				if ctx.Err() != nil {
					if sig == syscall.SIGINT && time.Since(first) > onePress {
						log.Warn("interrupted again: leaving without saving")
						if shown != nil {
							shown.flush(time.Second)
						}
						os.Exit(exitInterrupted)
					}
					continue
				}
				first = time.Now()
				more := ""
				if sig == syscall.SIGINT {
					more = " (Ctrl-C again leaves at once, without saving)"
				}
				log.Info(unix.SignalName(sig) + ": finishing the step, then saving" + more)
				if stop != nil {
					stop()
				}
				cancel(stopped{sig})
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// tidyTime is how long a command that saves nothing may take to end once a signal has come.
const tidyTime = 5 * time.Second

// tidied makes cmd and the commands below it end by a signal with what is temporary removed, and the exit code of that signal.
func tidied(cmd *cobra.Command) *cobra.Command {
	for _, sub := range cmd.Commands() {
		tidied(sub)
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, release := untilSignal(cmd.Context())
		defer release()
		cmd.SetContext(ctx)
		err := run(cmd, args)
		var s stopped
		if err != nil && errors.As(context.Cause(ctx), &s) {
			return withCode(s.saved(), s) // whatever it interrupted
		}
		return err
	}
	return cmd
}

// untilSignal returns a context that SIGINT, SIGTERM and SIGHUP cancel, with a stopped as cause. A second signal ends the process at once, and so does
// the first after tidyTime: what waits for standard input hears of no context.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		select {
		case <-done:
		case got := <-signals:
			signal.Stop(signals)
			s := stopped{got.(syscall.Signal)}
			cancel(s)
			select {
			case <-done:
			case <-time.After(tidyTime):
				os.Exit(s.saved())
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
