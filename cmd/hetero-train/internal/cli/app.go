package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/config"
)

// App is the state that the commands of one command line share.
type App struct {
	Env  session.Environment
	Hide logs.Secrets
	Args []string // arguments of the command line

	Trains  bool // true if the command trains: its standard output is progress, not results
	Started bool // true after the check of flags and arguments; an earlier error is a usage error

	File       string                     // value of -c
	Files      []string                   // values of all -c; several are an error
	LogLevel   string                     // --log-level
	LogFormat  string                     // --log-format
	Comparison *session.ComparisonOptions // flags of balance compare; nil for other commands
	Allow      []string                   // --allow
	// settings from --set and from flags that set keys, in the order of the command line
	Overrides []config.Override
	Counted   *Numbering     // result of counting the ranks of all nodes; nil if they were not counted
	Stops     chan os.Signal // signals that end the command while it counts the ranks
}

// Warn prints an error as a warning, for commands without a log.
func (a *App) Warn(err error) {
	a.WarnOf(err.Error())
}

// LogOptions returns the log options of the command line, but with the given level.
func (a *App) LogOptions(level string) logs.Options {
	return logs.Options{Level: level, Format: a.LogFormat, Hide: a.Hide}
}

// Progress prints a progress message, for commands without a log.
func (a *App) Progress(text string) {
	if a.LogFormat == logs.FormatJSON {
		slog.New(slog.NewJSONHandler(a.Env.Stderr, nil)).Info(text)
		return
	}
	fmt.Fprintln(a.Env.Stderr, text)
}

// WarnOf prints a warning, for commands without a log. It prints nothing if --log-level is error.
func (a *App) WarnOf(text string) {
	if a.LogLevel == "error" {
		return
	}
	text = show.Indented(a.Hide.Text(text))
	if a.LogFormat == logs.FormatJSON {
		slog.New(slog.NewJSONHandler(a.Env.Stderr, nil)).Warn(text)
		return
	}
	fmt.Fprintf(a.Env.Stderr, "hetero-train: warning: %s\n", text)
}

// Load reads the configuration like Read, and prints two kinds of warnings. One names each key that the command line
// sets to several values. The other names a learning rate in the file that belongs to another optimizer. A rank that
// this program has started prints no warning, because its parent process does.
func (a *App) Load() (*config.Config, error) {
	cfg, err := a.Read()
	if err == nil {
		a.WarnOfSuperseded(cfg)
		if text := a.OtherRate(cfg); text != "" {
			if _, supervised := a.Env.Lookup(session.SupervisedVariable); !supervised {
				a.WarnOf(text)
			}
		}
	}
	return cfg, err
}

// OtherRate returns a warning if the command line changes the optimizer but not the learning rate in the file.
// Otherwise it returns "".
func (a *App) OtherRate(cfg *config.Config) string {
	const name, rate = "optimizer.name", "optimizer.lr"
	if a.File == "" || cfg.Origin(rate) == "" {
		return ""
	}
	var others []config.Override
	for _, o := range a.Overrides {
		if o.Key == rate {
			return ""
		}
		if o.Key != name {
			others = append(others, o)
		}
	}
	if len(others) == len(a.Overrides) {
		return ""
	}
	of, err := config.Load(a.File, a.Env.Catalog, others...)
	if err != nil || of.Optimizer.Name == cfg.Optimizer.Name {
		return "" // the command line also sets the learning rate, or does not change the optimizer
	}
	return fmt.Sprintf("%s = %v (%s) was made for optimizer %s, but %s selects %s: set optimizer.lr, too",
		rate, cfg.Optimizer.LR, cfg.Origin(rate), of.Optimizer.Name, cfg.Origin(name), cfg.Optimizer.Name)
}

// WarnOfSuperseded prints a warning for each key that the command line sets to several values.
func (a *App) WarnOfSuperseded(cfg *config.Config) {
	if _, supervised := a.Env.Lookup(session.SupervisedVariable); supervised {
		return
	}
	for _, s := range cfg.Superseded() {
		a.WarnOf(s.String())
	}
}

// Read reads the configuration file of flag -c, if there is one, and applies the overrides. Every error is a usage
// error.
func (a *App) Read() (*config.Config, error) {
	cfg, err := config.Load(a.File, a.Env.Catalog, a.Overrides...)
	return cfg, exit.With(exit.Usage, err)
}

// Numbering is the result of counting the ranks of all nodes.
type Numbering struct {
	First, Total int
	Err          error
}

// Quieter returns the log level for commands with short results. This level hides the messages of training.
func (a *App) Quieter() string {
	if a.LogLevel == "info" {
		return "warn"
	}
	return a.LogLevel
}

// LevelOf returns the log level of a rank.
func (a *App) LevelOf(assigned discovery.Assignment) string {
	if !assigned.Launch && !Informs(assigned) && a.LogLevel == "info" {
		return "warn"
	}
	return a.LogLevel
}

// Informs reports whether a rank prints messages that are the same on all ranks. It returns true for rank 0 and for the
// first rank of each other machine. It also returns true for a rank whose output no launcher combines with that of
// others.
func Informs(assigned discovery.Assignment) bool {
	return assigned.Rank == 0 || assigned.LocalRank == 0 || assigned.OwnOutput
}

// Options returns the options for a command that opens components of a run. The command prints messages of at least
// this level. If component is not "", each message names this component. Messages for the log file are buffered until
// the file is open.
func (a *App) Options(assigned discovery.Assignment, level, component string) (session.Options, error) {
	o := session.Options{Env: a.Env, Screen: logs.NewScreen(logs.Below(a.Env.Stderr)),
		LogFile: logs.NewScreen(new(bytes.Buffer)), Assignment: assigned,
		Json: a.LogFormat == logs.FormatJSON, File: a.File, Args: a.Args}
	format := a.LogOptions(level)
	format.InFile = a.LogLevel
	if assigned.WorldSize > 1 && !assigned.Launch {
		format.Each = []slog.Attr{slog.Int("from_rank", assigned.Rank)}
	}
	for _, l := range []struct {
		logger **slog.Logger
		file   *logs.Screen
	}{{&o.Log, o.LogFile}, {&o.OnScreen, logs.NewScreen(io.Discard)}} {
		log, err := logs.New(o.Screen, l.file, format)
		if err != nil {
			return o, err
		}
		if *l.logger = log; component != "" {
			*l.logger = log.With(logs.ComponentKey, component)
		}
	}
	return o, nil
}

// Overrode reports whether all faults in err come from the command line, and none from the configuration file.
func (a *App) Overrode(err error) bool {
	var faulty *config.Error
	return errors.As(err, &faulty) && !slices.ContainsFunc(faulty.Faults, func(f config.Fault) bool {
		return !slices.ContainsFunc(a.Overrides, func(o config.Override) bool { return o.Key == f.Key })
	})
}
