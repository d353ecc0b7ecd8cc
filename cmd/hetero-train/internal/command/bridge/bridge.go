// Package bridge contains the command "hetero-train bridge", which a program such as PyTorch starts for each of its
// ranks (package internal/bridge).
package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/bridge"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/run"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/platform"
)

const long = `Balance and record a training run whose steps another program computes.

The Python package hetero_train starts this command next to each rank of a PyTorch script; see docs/pytorch.md. The command reads
messages from standard input and answers on standard output, one JSON object per line. It opens no connection to other ranks, and it
ends when its standard input is closed or when its parent process ends.

Exit codes:
  2    bad settings or messages, or the ranks compute different things
  7    the records cannot be written
  75   the user stopped the training
  1    the training failed`

const example = `  hetero-train bridge | jq .type`

// New returns the command.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{Use: "bridge", Short: "Balance and record a PyTorch training run", Long: long,
		Example: example, Args: cli.NoArguments}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return Serve(cmd.Context(), a, os.Stdin)
	}
	return cmd
}

// diskGrace is how long a bridge waits for its disk after its program has ended. With no limit, processes would remain
// if the file system hangs.
const diskGrace = 20 * time.Second

// Serve reads messages from the reader in and answers them until the run has ended.
func Serve(ctx context.Context, a *cli.App, in io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer watchParent(ctx, cancel)()
	conn := bridge.Open(in, a.Env.Stdout)
	a.Env.Stdout = io.Discard // the progress of the run is in the log file
	err := serve(ctx, a, conn)
	if err == nil {
		return nil
	}
	sent := conn.Send(bridge.Failed{Type: "error", Code: exit.Code(err), Message: err.Error()})
	if sent == nil { // the error was sent to the program, which shows it
		err = exit.With(exit.Code(err), exit.AlreadyShown(err))
	}
	return err
}

// watchParent cancels the command when its parent process ends, or when a signal asks the command to stop. The returned
// function stop ends the watch.
func watchParent(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	parent := os.Getppid()
	died := make(chan os.Signal, 1)
	platform.NotifyParentDeath(died)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, os.Interrupt, syscall.SIGTERM)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-asked:
				cancel(exit.With(exit.Terminated, fmt.Errorf("the bridge was stopped by signal %v", s)))
			case <-tick.C:
			case <-died: // also sent when only the thread of the parent that started this process ends
			}
			if os.Getppid() != parent {
				cancel(bridge.ErrEnded)
			}
		}
	}()
	finished := make(chan struct{})
	context.AfterFunc(ctx, func() {
		select {
		case <-finished:
		case <-time.After(diskGrace):
			os.Exit(exit.Unexpected)
		}
	})
	return func() {
		close(finished)
		signal.Stop(asked)
		signal.Stop(died)
	}
}

// serve exchanges the messages of a run with the program.
func serve(ctx context.Context, a *cli.App, conn *bridge.Conn) error {
	hello, err := bridge.Expect[*bridge.Hello](ctx, conn)
	if errors.Is(err, io.EOF) {
		return exit.Usagef(
			"bridge: standard input is empty: the Python package hetero_train starts this command (docs/pytorch.md)")
	}
	if err != nil {
		return asUsage(err)
	}
	if hello.Protocol != bridge.Version {
		return exit.Usagef("the package hetero_train %s speaks version %d of the protocol, and the program hetero-train %s version %d: install both from one release",
			hello.Package, hello.Protocol, version.Text(), bridge.Version)
	}
	cfg, err := configure(a, hello, "model", "dataset", 0)
	if err != nil {
		return err
	}
	static := len(cfg.Balance.FixedShares) > 0 || parts.PolicyTraits(cfg.Balance.Options).Static
	if err := conn.Send(bridge.Welcome{Type: "welcome", Protocol: bridge.Version,
		Program: version.Text(), Measures: !static}); err != nil {
		return err
	}
	assigned := discovery.Assignment{Source: "PyTorch", Rank: hello.Rank, WorldSize: hello.WorldSize,
		LocalRank: hello.LocalRank, LocalWorldSize: hello.LocalWorldSize, Node: -1}
	_, a.Env.Stderr = logs.Unblocked(a.Env.Stdout, a.Env.Stderr, a.LogFormat == logs.FormatJSON)
	opts, err := a.Options(assigned, a.LevelOf(assigned), logs.ComponentBalancer)
	if err != nil {
		return err
	}
	opts.PID = os.Getppid()
	if hello.Rank > 0 {
		opts.OnScreen = slog.New(slog.DiscardHandler)
	}
	for {
		m, err := conn.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil // the script has ended before its first step
		}
		if err != nil {
			return asUsage(err)
		}
		start, starts := m.(*bridge.Start)
		asked, asks := m.(*bridge.Lookup)
		if asks {
			start = &asked.Start
		} else if !starts {
			return asUsage(&bridge.OrderError{Got: m, Want: new(bridge.Start)})
		}
		cfg, err := configure(a, hello, start.Model.Name, start.Dataset.Name, start.Workers)
		if err != nil {
			return err
		}
		if starts {
			return asUsage(run.Bridge(ctx, cfg, opts, conn, start))
		}
		if err := conn.Send(run.Lookup(cfg, opts, start)); err != nil {
			return err
		}
	}
}

// asUsage adds the exit code of wrong usage to errors of the protocol.
func asUsage(err error) error {
	if errors.As(err, new(*bridge.Fault)) || errors.As(err, new(*bridge.OrderError)) {
		return exit.With(exit.Usage, err)
	}
	return err
}

// configure returns the configuration of the run. It refuses settings that have no effect.
func configure(a *cli.App, hello *bridge.Hello, model, dataset string, workers int) (*config.Config, error) {
	catalog := config.Catalog{Models: []config.Kind{{Name: model, Doc: "a model of PyTorch"}},
		DataSets: []config.Kind{{Name: dataset, Doc: "a data set of PyTorch"}}, Policies: a.Env.Catalog.Policies}
	overrides := []config.Override{{Key: "model.name", Value: model}, {Key: "data.dataset", Value: dataset},
		{Key: "data.workers", Value: strconv.Itoa(max(workers, 1))}}
	for _, key := range slices.Sorted(maps.Keys(hello.Settings)) {
		if !assembly.Applies(key) ||
			slices.ContainsFunc(overrides, func(o config.Override) bool { return o.Key == key }) {
			return nil,
				exit.Usagef("setting %s has no effect on a PyTorch script: the script itself decides; remove it", key)
		}
		overrides = append(overrides, config.Override{Origin: "Balancer", Key: key, Value: hello.Settings[key]})
	}
	cfg, err := config.Load("", catalog, overrides...)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return cfg, nil
}
