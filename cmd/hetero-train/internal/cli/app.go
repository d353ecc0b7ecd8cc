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

// App is what the commands of one command line share.
type App struct {
	Env  session.Environment
	Hide logs.Secrets
	Args []string // as typed

	Trains  bool // the command trains: standard output shows progress, not results
	Started bool // flags and arguments were sound: what fails from here on is not a usage error by itself

	File      string                  // -c
	LogLevel  string                  // --log-level
	LogFormat string                  // --log-format
	Contest   *session.ContestOptions // of balance compare
	Allow     []string                // --allow
	Overrides []config.Override       // --set and the flags that stand for keys, in the order typed
	Counted   *Numbering              // ranks of all nodes; nil: not counted
	Stops     chan os.Signal          // that end the command while it counts them
}

// Warn shows a warning of a command that keeps no log.
func (a *App) Warn(err error) {
	a.WarnOf(err.Error())
}

// LogOptions are those of the command line, with another level.
func (a *App) LogOptions(level string) logs.Options {
	return logs.Options{Level: level, Format: a.LogFormat, Hide: a.Hide}
}

// Progress prints how far a command that keeps no log has come.
func (a *App) Progress(text string) {
	if a.LogFormat == logs.FormatJSON {
		slog.New(slog.NewJSONHandler(a.Env.Stderr, nil)).Info(text)
		return
	}
	fmt.Fprintln(a.Env.Stderr, text)
}

// WarnOf prints a warning of a command that keeps no log.
func (a *App) WarnOf(text string) {
	text = show.Indented(a.Hide.Text(text))
	if a.LogFormat == logs.FormatJSON {
		slog.New(slog.NewJSONHandler(a.Env.Stderr, nil)).Warn(text)
		return
	}
	fmt.Fprintf(a.Env.Stderr, "hetero-train: warning: %s\n", text)
}

// Load reads the file given with -c, if any, with the overrides; every failure is a usage error.
func (a *App) Load() (*config.Config, error) {
	cfg, err := config.Load(a.File, a.Env.Catalog, a.Overrides...)
	return cfg, exit.With(exit.Usage, err)
}

// Numbering is the outcome of counting the ranks of all nodes.
type Numbering struct {
	First, Total int
	Err          error
}

// Quieter is the level of messages for commands whose result is short: what a training would tell is not asked for.
func (a *App) Quieter() string {
	if a.LogLevel == "info" {
		return "warn"
	}
	return a.LogLevel
}

// LevelOf is the least important message of a rank that is shown.
func (a *App) LevelOf(place discovery.Place) string {
	if !place.Launch && !Informs(place) && a.LogLevel == "info" {
		return "warn"
	}
	return a.LogLevel
}

// Informs reports whether a rank shows messages that are the same on all ranks: rank 0 does, the first rank of each machine, and a rank that has a
// terminal of its own.
func Informs(place discovery.Place) bool {
	return place.Rank == 0 || place.LocalRank == 0 || place.OwnOutput
}

// Options are what every command that opens parts of a run needs besides its configuration. It shows messages from level on, each of component where that is not "".
// Messages for a log file wait until there is one.
func (a *App) Options(place discovery.Place, level, component string) (session.Options, error) {
	o := session.Options{Env: a.Env, Screen: logs.NewScreen(logs.Below(a.Env.Stderr)), LogFile: logs.NewScreen(new(bytes.Buffer)), Place: place,
		Json: a.LogFormat == logs.FormatJSON, File: a.File, Args: a.Args}
	format := a.LogOptions(level)
	format.InFile = a.LogLevel
	if place.WorldSize > 1 && !place.Launch {
		format.Each = []slog.Attr{slog.Int("from_rank", place.Rank)}
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

// Overrode reports whether all that is wrong was set on the command line, and not in the file.
func (a *App) Overrode(err error) bool {
	var faulty *config.Error
	return errors.As(err, &faulty) && !slices.ContainsFunc(faulty.Faults, func(f config.Fault) bool {
		return !slices.ContainsFunc(a.Overrides, func(o config.Override) bool { return o.Key == f.Key })
	})
}
