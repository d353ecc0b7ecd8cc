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

// ComparisonOptions are the flags of balance compare.
type ComparisonOptions struct {
	Policies []string
	Block    int // steps
	Rounds   int
}

// Environment is the program's access to the outside; tests replace it.
type Environment struct {
	Name           string // of the program in help and completion; "": default name
	Stdout, Stderr io.Writer
	Environ        []string       // NAME=VALUE
	Catalog        config.Catalog // without models: the built-in catalog
	Train          func(ctx context.Context, cfg *config.Config, opts Options) error
	Count          func(ctx context.Context, meeting rendezvous.Options, ranks int) (first, total int, err error) // of all nodes
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

// SharesLimits reports whether the ranks of this machine share the limits of one control group, because one process
// started them.
func SharesLimits(place discovery.Place, env Environment) bool {
	_, supervised := env.Lookup(SupervisedVariable)
	return supervised || place.Launch
}

// SupervisedVariable is set for ranks that this program has started. Such ranks start no ranks themselves.
const SupervisedVariable = "HETERO_SUPERVISED"

// Options contains all inputs of a run except its configuration.
type Options struct {
	Env        Environment
	Log        *slog.Logger
	OnScreen   *slog.Logger // log without the log file
	Screen     *logs.Screen // destination of log messages
	LogFile    *logs.Screen // likewise, once the run has a log file
	Place      discovery.Place
	Lab        TestbedSetup
	Comparison *ComparisonOptions // interleaved comparison of policies; nil: one policy
	Json       bool               // messages and progress are JSON objects
	File       string             // of the configuration, "" without one
	Args       []string           // the command line, for the run's records
	Signals    chan os.Signal     // signals that end the run, caught from the start
	Allow      []string           // keys that may differ from those of the earlier run
}

// SayWhenGone logs that a reader has closed a stream. Training continues.
func (o Options) SayWhenGone() {
	say := func(name string, w io.Writer) {
		if stream := logs.OutletOf(w); stream != nil {
			stream.OnGone(func(err error) {
				o.Log.Warn(name+" is closed; training continues, and train.log has all lines", "error", err)
			})
		}
	}
	say("standard error", o.Env.Stderr)
	say("standard output", o.Env.Stdout) // both streams may have one outlet
}

// LogOf returns the log with another component.
func (o Options) LogOf(component string) *slog.Logger {
	return o.Log.With(logs.ComponentKey, component)
}
