package process

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cuda"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/nativelib"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// Supervise starts the ranks of this machine as processes with the same command line, and waits for their end.
func Supervise(ctx context.Context, cfg *config.Config, opts session.Options) error {
	assigned := opts.Assignment
	err := StartRanks(ctx, opts, platform.SaveSignals...)
	var failed *supervisor.RankError
	var stopped exit.Stopped
	if errors.As(err, &stopped) && exit.Code(err) == stopped.Saved() { // the signal ended a rank that was still loading
		err = stopped.BeforeSteps()
	}
	if code := exit.Code(err); assigned.Rank == 0 && code == exit.Communication && errors.As(err, &failed) {
		err = exit.With(code, fmt.Errorf("%w; %s", err, opts.FromNewest(cfg, session.CheckpointsOf(cfg))))
	}
	return err
}

// StartRanks starts a process with the same command line for each rank of this machine, and waits for their end. It
// forwards the signals that end ranks, and the signals in more, to the ranks. A rank that is still loading does not
// catch these signals yet, so they kill it.
func StartRanks(ctx context.Context, opts session.Options, more ...os.Signal) error {
	assigned := opts.Assignment
	program, err := nativelib.Program()
	if err != nil {
		return exit.Usagef(
			"find the file of this program, to start the ranks: %w: mount /proc, or start the program by its path", err)
	}
	if len(more) > 0 {
		signal.Notify(opts.Signals, more...)
	}
	outputs := newRankOutputs(opts)
	token := ownToken(opts)
	err = supervisor.Run(ctx, supervisor.Options{
		Command: append([]string{program}, opts.Args...), Env: opts.Env.Environ, Ranks: assigned.LocalWorldSize,
		FirstRank: assigned.Rank, WorldSize: assigned.WorldSize,
		MasterAddr: assigned.MasterAddr, MasterPort: assigned.MasterPort, Stdout: passedOn(opts.Env.Stdout),
		Stderr:  outputs.stderr,
		Output:  outputs.of,
		RankEnv: func(rank int) []string { return append(rankEnvironment(opts.Env, rank-assigned.Rank), token...) },
		Signals: opts.Signals, Orderly: []int{exit.Terminated, exit.Interrupted}, Secondary: []int{exit.Communication},
		Log: opts.Log.With(logs.ComponentKey, logs.ComponentCluster),
		// The other ranks report the loss within parallel.timeout_seconds. A process stopped by SIGSTOP never ends, so
		// it must be killed.
		Grace: 5 * time.Second, KillAfter: 3 * time.Second,
	})
	var failed *supervisor.RankError
	if errors.Is(err, syscall.EAGAIN) || errors.As(err, &failed) && gotNoThread(failed.Tail) {
		return exit.Usagef(
			"%w: the limit of processes is too low: raise it (ulimit -u, or pids.max of the control group)", err)
	}
	if !errors.As(err, &failed) {
		return exit.Classify(ctx, err)
	}
	if failed.Code == exit.Terminated || failed.Code == exit.Interrupted {
		return exit.With(failed.Code, exit.AlreadyShown(err)) // rank 0 has printed the error
	}
	// The signal arrived before the rank could catch it.
	if stops := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}; slices.Contains(stops,
		failed.Signal) {
		return exit.With(exit.Stopped{Signal: failed.Signal}.Saved(), exit.Stopped{Signal: failed.Signal})
	}
	if failed.Hung && failed.Stop != 0 && failed.Rank == 0 { // only rank 0 saves the run
		return exit.With(exit.Stopped{Signal: failed.Stop}.Unsaved(),
			fmt.Errorf("%w: %w", exit.Stopped{Signal: failed.Stop}, err))
	}
	documented := []int{exit.Unexpected, exit.Usage, exit.Data, exit.Diverged, exit.Communication, exit.Device, exit.IO,
		exit.Terminated, exit.Interrupted, exit.Killed}
	if slices.Contains(documented, failed.Code) {
		return exit.With(failed.Code, err)
	}
	return exit.With(exit.Communication, err) // a killed rank is a lost rank for the others
}

// passedOn returns the stream for the output of the first rank. If w wraps a file, it returns the file, so that the
// rank can detect a terminal.
func passedOn(w io.Writer) io.Writer {
	if f := logs.FileOf(w); f != nil {
		return f
	}
	return w
}

// rankEnvironment returns additional environment variables for the rank with the local rank local. If the user selected
// MIG slices, one variable selects the slice of this rank.
func rankEnvironment(env session.Environment, local int) []string {
	// os.Args[0] is the program as the user typed it. The rank prints it to explain how to resume.
	own := []string{session.SupervisedVariable + "=" + os.Args[0]}
	if text := cuda.ReadVisible(env.Lookup(cuda.VisibleVariable)).Of(local); text != "" {
		own = append(own, cuda.VisibleVariable+"="+text)
	}
	return own
}

// ownToken returns an environment variable with a random token. It returns nil if the user has set a token, or if some
// ranks are on other machines. Without a token, each user of the machine could join the group through the port of rank
// 0. Other users cannot read the environment of a process. A token in parallel.token_file has priority over the
// variable.
func ownToken(opts session.Options) []string {
	set, _ := opts.Env.Lookup(TokenVariable)
	file, _ := opts.Env.Lookup(TokenFileVariable)
	if strings.TrimSpace(set) != "" || file != "" || opts.Assignment.LocalWorldSize < opts.Assignment.WorldSize {
		return nil
	}
	return []string{TokenVariable + "=" + rand.Text()}
}

// rankOutputs contains the destinations of the ranks' output. In text format, the output of the first rank is
// unchanged, and each line of another rank starts with the number of the rank. In JSON format, every line becomes a
// record, including the lines of a crash.
type rankOutputs struct {
	stderr io.Writer // standard error of the first rank
	of     func(rank int) io.Writer
}

func newRankOutputs(opts session.Options) rankOutputs {
	if opts.Json {
		records := func(rank int) io.Writer {
			return &logs.LineRecords{Pass: opts.Screen,
				Log: opts.OnScreen.With(logs.ComponentKey, logs.ComponentRankOutput, "from_rank", rank)}
		}
		return rankOutputs{stderr: records(opts.Assignment.Rank), of: records}
	}
	others := &lines{out: opts.Screen}
	return rankOutputs{stderr: passedOn(opts.Env.Stderr), of: func(rank int) io.Writer {
		return &prefixed{lines: others, prefix: fmt.Sprintf("[rank %d] ", rank)}
	}}
}

// lines is the destination of the output of several ranks. It receives only whole lines.
type lines struct {
	mu  sync.Mutex
	out io.Writer
}

// prefixed is the writer for one rank's output. It adds a prefix to each line, and writes the line to lines.
type prefixed struct {
	*lines
	prefix string
	rest   []byte // incomplete last line
}

// Write implements [io.Writer]. Lines that cannot be written are dropped.
func (p *prefixed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, b...)
	for {
		end := bytes.IndexByte(p.rest, '\n')
		if end < 0 {
			return len(b), nil
		}
		fmt.Fprintf(p.out, "%s%s", p.prefix, p.rest[:end+1])
		p.rest = p.rest[end+1:]
	}
}
