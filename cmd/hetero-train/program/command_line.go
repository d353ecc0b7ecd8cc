package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/run"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
	"github.com/hetero-train/hetero-train/engine/config"
)

// Main executes the command line of this process and exits with its exit code. Configurations, flags, help, completion
// and errors know two kinds of components: the built-in models, data sets and policies, and the components in added.
func Main(added ...Part) {
	// A crash must end with SIGABRT. The runtime would end with exit code 2, which means a usage error in this program.
	debug.SetTraceback("crash")
	name := programName
	if len(added) > 0 {
		name = filepath.Base(os.Args[0])
	}
	os.Exit(runWith(context.Background(), added, os.Args[1:], session.Environment{
		Name: name, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(), Train: run.Train,
		Count: rendezvous.CountRanks,
	}))
}

// runWith executes one command line of a program with additional components.
func runWith(ctx context.Context, added []Part, args []string, env session.Environment) int {
	var err error
	if env.Catalog, err = parts.CatalogOf(append(slices.Clone(parts.Builtin), added...)); err != nil {
		fmt.Fprint(env.Stderr, report(fmt.Errorf("list the models, data sets and policies of this program: %w", err)))
		return exit.Unexpected
	}
	return runLine(ctx, args, env)
}

// runLine executes one command line and returns the exit code. The parameter args does not contain the name of the
// program.
func runLine(ctx context.Context, args []string, env session.Environment) (code int) {
	env.Stdout, env.Stderr = logs.NewStream(env.Stdout), logs.NewStream(env.Stderr)
	if env.Catalog.Models == nil {
		env.Catalog = parts.BuiltinCatalog
	}
	a := &cli.App{Env: env, Hide: logs.SecretsIn(env.Environ), Args: args} // a command may add secrets to Hide
	defer func() {
		// the runtime would end with exit code 2, which means a usage error in this program
		if reason := recover(); reason != nil {
			code = exit.Unexpected
			text := a.Hide.Text(fmt.Sprintf("hetero-train: panic: %v\n%s", reason, debug.Stack()))
			if wantsJSON(args) {
				writeErrorRecord(env.Stderr, text, code)
				return
			}
			fmt.Fprint(env.Stderr, text)
		}
	}()
	root := newRoot(a)
	root.SetArgs(append([]string{}, args...)) // not nil, because nil means os.Args
	err := root.ExecuteContext(ctx)
	if err != nil && !a.Started {
		err = exit.With(exit.Usage, err)
	}
	logs.Flushed(a.Env.Stdout, a.Env.Stderr, logs.FlushTime)
	err = printed(a, err)
	code = exit.Code(err)
	if err != nil {
		switch text := a.Hide.Text(report(err)); {
		case (exit.IsOwn(code) || exit.LostRank(err) >= 0 || exit.IsFolderInUse(err)) &&
			supervisor.ReportCause(env.Environ, withoutPrefix(text)):
		case wantsJSON(args) && text != "":
			writeErrorRecord(a.Env.Stderr, text, code)
		default:
			fmt.Fprint(a.Env.Stderr, text)
		}
	}
	logs.Flushed(a.Env.Stdout, a.Env.Stderr, logs.FlushTime)
	return code
}

// printed returns an error if a command could not write its results to standard output. A closed pipe (head, less) is
// not an error. Failed output of training is not an error either, because the results of training are in files.
func printed(a *cli.App, err error) error {
	fault := logs.FaultOf(a.Env.Stdout)
	if fault == nil || a.Trains || errors.Is(fault, syscall.EPIPE) || err != nil &&
		!errors.As(err, new(*logs.PrintError)) {
		return err
	}
	return exit.With(exit.IO, fmt.Errorf("write the results to standard output: %w", fault))
}

// wantsJSON reports whether a command line selects messages in JSON. It does not use the parsed flags, because the
// arguments may be invalid.
func wantsJSON(args []string) bool {
	const flag = "--log-format"
	format := ""
	for i, arg := range args {
		switch {
		case arg == "--":
			return format == logs.FormatJSON
		case arg == flag && i+1 < len(args):
			format = args[i+1]
		case strings.HasPrefix(arg, flag+"="):
			format = strings.TrimPrefix(arg, flag+"=")
		}
	}
	return format == logs.FormatJSON
}

// writeErrorRecord writes the last message of a failed command as one JSON object.
func writeErrorRecord(w io.Writer, text string, code int) {
	slog.New(slog.NewJSONHandler(w, nil)).Error(withoutPrefix(text), "exit_code", code)
}

func withoutPrefix(text string) string {
	return strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(text, "hetero-train: "), "error: "))
}

// report returns the error message of a failed command. It has one line for each fault of a configuration; other errors
// have one line.
func report(err error) string {
	var faults *config.Error
	if errors.As(err, new(exit.Shown)) {
		return ""
	}
	if errors.As(err, new(exit.Stopped)) {
		return show.Indented(fmt.Sprintf("hetero-train: %v", err)) + "\n"
	}
	if !errors.As(err, &faults) {
		return show.Indented(fmt.Sprintf("hetero-train: error: %v%s", err, exit.Advice(err))) + "\n"
	}
	count := len(faults.Faults) + faults.More
	title := fmt.Sprintf("hetero-train: error: %d faults in the configuration", count)
	if count == 1 {
		title = "hetero-train: error: 1 fault in the configuration"
	}
	return title + "\n  " + strings.ReplaceAll(err.Error(), "\n", "\n  ") + "\n"
}
