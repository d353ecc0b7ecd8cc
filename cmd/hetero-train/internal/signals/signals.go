package signals

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// onePress is the time within which two interrupts count as one. One Ctrl-C can cause two interrupts: from the
// terminal, and from a parent process such as timeout or mpirun.
const onePress = 500 * time.Millisecond

// oneStop is the time within which two termination signals count as one. Schedulers send SIGTERM to all processes of a
// job, and the supervisor of ranks also forwards its SIGTERM. The forwarded signal arrives later on a busy machine.
const oneStop = 2 * time.Second

// Catch begins to catch the signals that end a run. It catches them until release is called. The channel keeps signals
// that arrive before the run can handle them.
func Catch() (signals chan os.Signal, release func()) {
	signals = make(chan os.Signal, 4)
	signal.Notify(signals, ending()...)
	return signals, func() { signal.Stop(signals) }
}

// ending returns the signals that end a run or a command. These do not include SIGHUP if the process ignores it. The
// command nohup starts a program in this way, so that the program outlives its terminal, and ranks inherit this from
// their supervisor.
func ending() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	}
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
}

// Context returns a context that the signals of Catch cancel. The cause is an exit.Stopped. The first signal calls stop
// with the number 1 and then cancels the context. Each later signal except SIGINT calls stop with the next number; stop
// may be nil. A second SIGINT ends the process immediately. SIGUSR1 increments saves, which may be nil. The parameter
// steps reports whether training has begun its steps; it is nil if the command does not train.
func Context(ctx context.Context, signals chan os.Signal, log *slog.Logger, shown *logs.Screen, saves *atomic.Int64,
	steps func() bool, stop func(exit.Stopped, int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if saves != nil && len(platform.SaveSignals) > 0 { // with an empty list, Notify would catch all signals
		signal.Notify(signals, platform.SaveSignals...)
	}
	done := make(chan struct{})
	go func() {
		var first, latest time.Time
		count := 0
		for {
			select {
			case <-done:
				return
			case got := <-signals:
				sig := got.(syscall.Signal)
				if slices.Contains(platform.SaveSignals, got) {
					saves.Add(1)
					log.Info(platform.SignalName(sig) + ": the run saves after this step and continues")
					continue
				}
				if ctx.Err() != nil {
					if sig == syscall.SIGINT && time.Since(first) > onePress {
						log.Warn("interrupted again: exiting without saving")
						if shown != nil {
							shown.Flush(time.Second)
						}
						os.Exit(exit.Interrupted)
					}
					if sig != syscall.SIGINT && time.Since(latest) > oneStop && stop != nil {
						latest, count = time.Now(), count+1
						stop(exit.Stopped{Signal: sig}, count)
					}
					continue
				}
				first = time.Now()
				latest, count = first, 1
				next, more := ": the run ends before its first step", ""
				if steps != nil && steps() {
					next = ": the run finishes the step, saves and ends"
				}
				if sig == syscall.SIGINT {
					more = " (press Ctrl-C again to exit at once, without saving)"
				}
				log.Info(platform.SignalName(sig) + next + more)
				if stop != nil {
					stop(exit.Stopped{Signal: sig}, count)
				}
				cancel(exit.Stopped{Signal: sig})
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// tidyTime is the longest time between a signal and the end of a command that saves nothing.
const tidyTime = 5 * time.Second

// Tidied changes cmd and its subcommands so that they end normally after a signal. They can then remove temporary
// files, and return the exit code of the signal.
func Tidied(cmd *cobra.Command) *cobra.Command {
	for _, sub := range cmd.Commands() {
		Tidied(sub)
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return Until(cmd.Context(), func(ctx context.Context) error {
			cmd.SetContext(ctx)
			return run(cmd, args)
		})
	}
	return cmd
}

// Until calls run with a context that a signal cancels. If run then fails, Until returns an error with the exit code of
// the signal.
func Until(ctx context.Context, run func(context.Context) error) error {
	ctx, release := untilSignal(ctx)
	defer release()
	err := run(ctx)
	var s exit.Stopped
	if err != nil && errors.As(context.Cause(ctx), &s) {
		return exit.With(s.Saved(), s) // instead of the error of the operation that the signal interrupted
	}
	return err
}

// untilSignal returns a context that the signals of ending cancel, with an exit.Stopped as cause. A second signal ends
// the process immediately. The process also ends if the command has not ended within tidyTime after the first signal,
// because a read of standard input cannot be canceled.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, ending()...)
	done := make(chan struct{})
	go func() {
		select {
		case <-done:
		case got := <-signals:
			signal.Stop(signals)
			s := exit.Stopped{Signal: got.(syscall.Signal)}
			cancel(s)
			select {
			case <-done:
			case <-time.After(tidyTime):
				os.Exit(s.Saved())
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
