package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

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
		name: name, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(), train: runTrain,
	}))
}

// runWith is run for a program with further parts.
func runWith(ctx context.Context, added []Part, args []string, env environment) int {
	var err error
	if env.catalog, err = catalogOf(append(slices.Clone(builtin), added...)); err != nil {
		fmt.Fprint(env.stderr, report(fmt.Errorf("list the models, data sets and policies of this program: %w", err)))
		return exitUnexpected
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
	hide := secretsOf(env.environ)
	defer func() {
		if reason := recover(); reason != nil { // the runtime's own exit code, 2, means bad configuration here
			fmt.Fprint(env.stderr, hide.text(fmt.Sprintf("hetero-train: panic: %v\n%s", reason, debug.Stack())))
			code = exitUnexpected
		}
	}()
	if env.catalog.Models == nil {
		env.catalog = builtinCatalog
	}
	a := &app{env: env, hide: hide, args: args}
	root := newRoot(a)
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	err := root.ExecuteContext(ctx)
	if err != nil && !a.started {
		err = withCode(exitUsage, err)
	}
	if err != nil {
		fmt.Fprint(a.env.stderr, hide.text(report(err)))
	}
	a.env.flushed(flushTime)
	return exitCode(err)
}

// report is what a failed command prints: one line for each fault of a configuration, else one line.
func report(err error) string {
	var faults *config.Error
	if errors.As(err, new(shown)) {
		return ""
	}
	if errors.As(err, new(stopped)) {
		return fmt.Sprintf("hetero-train: %v\n", err)
	}
	if !errors.As(err, &faults) {
		return fmt.Sprintf("hetero-train: error: %v%s\n", err, advice(err))
	}
	count := len(faults.Faults) + faults.More
	title := fmt.Sprintf("hetero-train: error: %d faults in the configuration", count)
	if count == 1 {
		title = "hetero-train: error: 1 fault in the configuration"
	}
	return title + "\n  " + strings.ReplaceAll(err.Error(), "\n", "\n  ") + "\n"
}
