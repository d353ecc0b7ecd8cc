package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
)

// RunPath returns the path that an argument means. The argument is a path, or the name of a run in the folder of runs.
// This folder is experiment.output_dir from the command line, otherwise from the configuration file, otherwise the
// default.
func (a *App) RunPath(argument string) (string, error) { return InRuns(argument, a.runsFolder()) }

// InRuns returns the path that an argument means. This is the argument itself if it is a path, otherwise the run with
// this name in a folder of runs.
func InRuns(argument, folder string) (string, error) {
	if argument == "" || argument == "-" || filepath.Clean(argument) == "." || strings.ContainsAny(argument, `/\`) {
		return argument, nil
	}
	run := filepath.Join(folder, argument)
	named, noRun := os.Stat(run)
	direct, noPath := os.Stat(argument)
	isRun := noRun == nil && named.IsDir()
	switch {
	case isRun && noPath == nil && !os.SameFile(named, direct):
		return "", exit.Usagef("%s: got a name that is a run in %s, and a path: write %s or .%c%s", argument, folder,
			run, filepath.Separator, argument)
	case isRun:
		return run, nil
	case noPath != nil:
		return "",
			exit.Usagef(
				"%s: there is no run of this name in %s, and no such file or folder; hetero-train runs lists the runs",
				argument, folder)
	}
	return argument, nil
}

// runsFolder returns the folder of runs. It ignores faults of the configuration, which the command reports itself.
func (a *App) runsFolder() string {
	settings := slices.DeleteFunc(slices.Clone(a.Overrides), func(o config.Override) bool {
		return o.Key != "experiment.output_dir"
	})
	for _, file := range []string{a.File, ""} {
		if cfg, err := config.Load(file, a.Env.Catalog, settings...); err == nil {
			return cfg.Experiment.OutputDir
		}
	}
	return parts.Defaults().Experiment.OutputDir
}
