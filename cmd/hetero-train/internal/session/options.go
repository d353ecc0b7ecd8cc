package session

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/config"
)

// ComparisonOptions are the flags of command balance compare.
type ComparisonOptions struct {
	Policies []string
	Block    int // number of steps of a block
	Rounds   int
}

// Environment contains the state of the process and the external functions that commands use. Tests replace it.
type Environment struct {
	Name           string // name of the program in help and completion; "": hetero-train
	Stdout, Stderr io.Writer
	Environ        []string       // environment variables, NAME=VALUE
	Catalog        config.Catalog // models, data sets and policies; without models: the built-in catalog
	Train          func(ctx context.Context, cfg *config.Config, opts Options) error
	// Count exchanges the numbers of ranks between nodes.
	Count func(ctx context.Context, meeting rendezvous.Options, ranks int) (first, total int, err error)
}

// Lookup returns the value of an environment variable.
func (e Environment) Lookup(name string) (value string, set bool) {
	for _, pair := range e.Environ {
		if n, v, _ := strings.Cut(pair, "="); n == name {
			return v, true
		}
	}
	return "", false
}

// SharesLimits reports whether the ranks of this machine share the limits of one control group. This is so if one
// process started them.
func SharesLimits(assigned discovery.Assignment, env Environment) bool {
	_, supervised := env.Lookup(SupervisedVariable)
	return supervised || assigned.Launch
}

// SupervisedVariable is the environment variable of ranks that this program started. Such a rank starts no other ranks.
const SupervisedVariable = "HETERO_SUPERVISED"

// Options contains the inputs of a run other than its configuration.
type Options struct {
	Env        Environment
	Log        *slog.Logger
	OnScreen   *slog.Logger // logger to the screen only, not to the log file
	Screen     *logs.Screen // destination of log messages on the screen
	LogFile    *logs.Screen // destination of log messages in the log file, once the run has one
	Assignment discovery.Assignment
	Lab        TestbedSetup
	Comparison *ComparisonOptions // interleaved comparison of policies; nil in other runs
	Json       bool               // true if messages and progress are JSON objects
	File       string             // path of the configuration; "" without a file
	Args       []string           // command line, for the records of the run
	Signals    chan os.Signal     // signals that end the run, caught since the start of the process
	PID        int                // process that computes this rank, for telemetry; 0: this process
	Allow      []string           // keys whose values may differ from those of the earlier run (--allow)
}

// LogWhenGone arranges that a closed output stream is logged. Training continues without the stream.
func (o Options) LogWhenGone() {
	watch := func(name string, w io.Writer) {
		if stream := logs.OutletOf(w); stream != nil {
			stream.OnGone(func(err error) {
				o.Log.Warn(name+" is closed; training continues, and train.log has all lines", "error", err)
			})
		}
	}
	watch("standard error", o.Env.Stderr)
	watch("standard output", o.Env.Stdout) // both streams may share an outlet
}

// LogOf returns the logger of a component.
func (o Options) LogOf(component string) *slog.Logger {
	return o.Log.With(logs.ComponentKey, component)
}
