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

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/config"
)

// programName is the name of this program. One with parts of its own is named as its file is.
const programName = "hetero-train"

// Main runs the command line of this process and exits with its code. The models, data sets and policies that added lists
// are those of the program, next to its own: in configurations, flags, help, completion and errors.
func Main(added ...Part) {
	// A crash ends with SIGABRT, which says so. The runtime's own exit code for it, 2, means bad configuration here.
	debug.SetTraceback("crash")
	name := programName
	if len(added) > 0 {
		name = filepath.Base(os.Args[0])
	}
	os.Exit(runWith(context.Background(), added, os.Args[1:], environment{
		name: name, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(), train: runTrain, count: rendezvous.CountRanks,
	}))
}

// runWith is run for a program with further parts.
func runWith(ctx context.Context, added []Part, args []string, env environment) int {
	var err error
	if env.catalog, err = parts.CatalogOf(append(slices.Clone(parts.Builtin), added...)); err != nil {
		fmt.Fprint(env.stderr, report(fmt.Errorf("list the models, data sets and policies of this program: %w", err)))
		return exit.Unexpected
	}
	return run(ctx, args, env)
}

// environment is what the program sees of the world; tests put their own in its place.
type environment struct {
	name           string // of the program in help and completion; "": programName
	stdout, stderr io.Writer
	environ        []string       // NAME=VALUE
	catalog        config.Catalog // without models: builtinCatalog
	train          func(ctx context.Context, cfg *config.Config, opts trainOptions) error
	count          func(ctx context.Context, meeting rendezvous.Options, ranks int) (first, total int, err error) // of all nodes
}

// lookup finds an environment variable.
func (e environment) lookup(name string) (value string, set bool) {
	for _, pair := range e.environ {
		if n, v, _ := strings.Cut(pair, "="); n == name {
			return v, true
		}
	}
	return "", false
}

// run executes one command line (without the program's name) and returns the exit code.
func run(ctx context.Context, args []string, env environment) (code int) {
	hide := logs.SecretsIn(env.environ)
	env.stdout, env.stderr = logs.NewStream(env.stdout), logs.NewStream(env.stderr)
	defer func() {
		if reason := recover(); reason != nil { // the runtime's own exit code, 2, means bad configuration here
			code = exit.Unexpected
			text := hide.Text(fmt.Sprintf("hetero-train: panic: %v\n%s", reason, debug.Stack()))
			if wantsJSON(args) {
				writeErrorRecord(env.stderr, text, code)
				return
			}
			fmt.Fprint(env.stderr, text)
		}
	}()
	if env.catalog.Models == nil {
		env.catalog = parts.BuiltinCatalog
	}
	a := &app{env: env, hide: hide, args: args}
	root := newRoot(a)
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	err := root.ExecuteContext(ctx)
	if err != nil && !a.started {
		err = exit.With(exit.Usage, err)
	}
	logs.Flushed(a.env.stdout, a.env.stderr, logs.FlushTime)
	err = a.printed(err)
	code = exit.Code(err)
	if err != nil {
		switch text := hide.Text(report(err)); {
		case wantsJSON(args) && text != "":
			writeErrorRecord(a.env.stderr, text, code)
		default:
			fmt.Fprint(a.env.stderr, text)
		}
	}
	logs.Flushed(a.env.stdout, a.env.stderr, logs.FlushTime)
	return code
}

// printed adds to the outcome of a command that standard output did not take its results. A reader that has left (head, less) wanted no more, and training
// has its results in files: neither is a failure.
func (a *app) printed(err error) error {
	fault := logs.FaultOf(a.env.stdout)
	if fault == nil || a.trains || errors.Is(fault, syscall.EPIPE) || err != nil && !errors.As(err, new(*logs.PrintError)) {
		return err
	}
	return exit.With(exit.IO, fmt.Errorf("write the results to standard output: %w", fault))
}

// wantsJSON reports whether a command line asks for messages as JSON. It reads the arguments themselves: they may be what is wrong.
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
	text = strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(text, "hetero-train: "), "error: "))
	slog.New(slog.NewJSONHandler(w, nil)).Error(text, "exit_code", code)
}

// logOptions are those of the command line, with another level.
func (a *app) logOptions(level string) logs.Options {
	return logs.Options{Level: level, Format: a.logFormat, Hide: a.hide}
}

// progress prints how far a command that keeps no log has come.
func (a *app) progress(text string) {
	if a.logFormat == logs.FormatJSON {
		slog.New(slog.NewJSONHandler(a.env.stderr, nil)).Info(text)
		return
	}
	fmt.Fprintln(a.env.stderr, text)
}

// warnOf prints a warning of a command that keeps no log.
func (a *app) warnOf(text string) {
	text = show.Indented(a.hide.Text(text))
	if a.logFormat == logs.FormatJSON {
		slog.New(slog.NewJSONHandler(a.env.stderr, nil)).Warn(text)
		return
	}
	fmt.Fprintf(a.env.stderr, "hetero-train: warning: %s\n", text)
}

// report is what a failed command prints: one line for each fault of a configuration, else one line.
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
