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

// ContestOptions are the flags of balance compare.
type ContestOptions struct {
	Policies []string
	Block    int // steps
	Rounds   int
}

// Environment is what the program sees of the world; tests put their own in its place.
type Environment struct {
	Name           string // of the program in help and completion; "": programName
	Stdout, Stderr io.Writer
	Environ        []string       // NAME=VALUE
	Catalog        config.Catalog // without models: builtinCatalog
	Train          func(ctx context.Context, cfg *config.Config, opts Options) error
	Count          func(ctx context.Context, meeting rendezvous.Options, ranks int) (first, total int, err error) // of all nodes
}

// Lookup finds an environment variable.
func (e Environment) Lookup(name string) (value string, set bool) {
	for _, pair := range e.Environ {
		if n, v, _ := strings.Cut(pair, "="); n == name {
			return v, true
		}
	}
	return "", false
}

// SharesLimits tells whether the ranks of this machine share its control group's limits, because one process has started them.
func SharesLimits(place discovery.Place, env Environment) bool {
	_, supervised := env.Lookup(SupervisedVariable)
	return supervised || place.Launch
}

// SupervisedVariable is set for the ranks that this program has started. It keeps them from starting ranks themselves.
const SupervisedVariable = "HETERO_SUPERVISED"

// Options is what a run needs besides its configuration.
type Options struct {
	Env      Environment
	Log      *slog.Logger
	OnScreen *slog.Logger // log without the log file
	Screen   *logs.Screen // where log writes
	LogFile  *logs.Screen // likewise, from when the run has a log file
	Place    discovery.Place
	Lab      TestbedSetup
	Contest  *ContestOptions // of policies; nil: a run with one
	Json     bool            // messages are JSON objects, progress too
	File     string          // of the configuration, "" without one
	Args     []string        // the command line, for the run's records
	Signals  chan os.Signal  // that end the run; they are caught from the start
	Allow    []string        // keys that may differ from the earlier run's
}

// SayWhenGone logs that the reader of a stream has left. Training goes on.
func (o Options) SayWhenGone() {
	say := func(name string, w io.Writer) {
		if stream := logs.OutletOf(w); stream != nil {
			stream.OnGone(func(err error) {
				o.Log.Warn(name+" is closed: training continues, and train.log has all lines", "error", err)
			})
		}
	}
	say("standard error", o.Env.Stderr)
	say("standard output", o.Env.Stdout) // one outlet may serve both
}

// LogOf is the log with a component in place of the trainer's.
func (o Options) LogOf(component string) *slog.Logger {
	return o.Log.With(logs.ComponentKey, component)
}
