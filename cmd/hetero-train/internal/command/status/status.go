package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/profiler/runs"
)

const long = `Show the state of a run: its ranks, the last decision of the balancer, the bottleneck and the newest alerts.

RUN is the name of a run in --input-dir, or the folder of a run. Without RUN, the command shows the newest run of --input-dir.
With --watch, the command shows the run again after each change, until the run ends. The command only reads files, so the run may
train on another machine that shares the folder.

--check is for the health check of a container. It fails unless the run is finished, or is running and its newest record is at most
DURATION old. Choose a DURATION that is longer than an evaluation and than a checkpoint.

Exit codes:
  1    --check: the run is not healthy
  2    bad flags, there is no such run, or its folder was deleted or renamed
  130  stopped by Ctrl-C`

const example = `  hetero-train status
  hetero-train status resnet50 --watch
  hetero-train status experiments/resnet50 --json | jq .decision.share_of_oracle
  hetero-train status --check 10m                                             the health check of a container`

// watchInterval is the time between two looks at a run. Runs write their records twice a second.
const watchInterval = time.Second

// New returns the command that shows a run.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{Use: "status [RUN]", Short: "Show a run in the terminal", Long: long, Example: example,
		Args: cli.AtMostOne}
	var input string
	var watch, asJSON bool
	var oldest time.Duration
	cmd.Flags().StringVar(&input, "input-dir", "experiments", "`folder` that contains the runs")
	cmd.Flags().BoolVar(&watch, "watch", false, "show the run again after each change, until it ends")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	cmd.Flags().DurationVar(&oldest, "check", 0,
		"fail unless the run is finished, or has a record that is younger than this `DURATION`, for example 10m")
	cmd.MarkFlagsMutuallyExclusive("check", "watch")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		checks := cmd.Flags().Changed("check")
		if checks && oldest <= 0 {
			return exit.Usagef("status: --check: got %v, want a time above 0, for example 10m", oldest)
		}
		folder, run, err := open(cmd.Context(), input, cli.First(args))
		if err != nil {
			return err
		}
		defer folder.Close() // read only
		defer run.Close()    // read only
		s := screen{logs.NewView(a.Env.Stdout), a.Env.Stdout, asJSON}
		if !watch {
			readAll(cmd.Context(), run)
			if err := context.Cause(cmd.Context()); err != nil {
				return err
			}
			v := run.View()
			if err := s.show(v); err != nil || !checks {
				return err
			}
			return unhealthy(v.State, run.Age(), oldest)
		}
		return follow(cmd.Context(), folder, run, s)
	}
	return cmd
}

// unhealthy returns nil for a run that is finished, or that is running and has a record younger than oldest. Before the
// first record, the state alone counts.
func unhealthy(s runs.State, age, oldest time.Duration) error {
	switch {
	case s.Kind == runs.Finished || s.Kind == runs.Running && age <= oldest:
		return nil
	case s.Kind == runs.Running:
		return fmt.Errorf("status: the run is not healthy: its newest record is %v old, want at most %v",
			age.Round(time.Second), oldest)
	}
	return fmt.Errorf("status: the run is not healthy: its state is %s, want %s or %s", s.Kind, runs.Running,
		runs.Finished)
}

// open opens a run by its name or its folder; "" is the newest run of the folder input. It also opens the folder that
// contains the run.
func open(ctx context.Context, input, name string) (*runs.Folder, *runs.Run, error) {
	path := input
	if strings.ContainsRune(name, filepath.Separator) || isFolder(name) {
		var err error
		if path, err = cli.InRuns(name, input); err != nil {
			return nil, nil, err
		}
		name = ""
	}
	folder, err := runs.OpenFolder(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, exit.NoRuns("status", path)
	}
	if err != nil {
		return nil, nil, exit.Usagef("status: %w", err)
	}
	run, err := openIn(ctx, folder, name)
	if err != nil {
		return nil, nil, errors.Join(err, folder.Close())
	}
	return folder, run, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// openIn opens a run of a folder.
func openIn(ctx context.Context, folder *runs.Folder, name string) (*runs.Run, error) {
	if name == "" {
		list, err := folder.List(ctx)
		if err != nil {
			return nil, exit.Usagef("status: %w", err)
		}
		if len(list.Runs) == 0 {
			return nil, exit.Usagef("status: there is no run in %s", folder.Path)
		}
		name = list.Runs[0].Name
	}
	run, err := folder.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.Usagef("status: there is no run %s in folder %s%s", name, folder.Path, runsOf(ctx, folder))
	}
	if err != nil {
		return nil, exit.Usagef("status: %w", err)
	}
	return run, nil
}

// runsOf returns "; newest runs in it: a, b, c", or "" for a folder without runs.
func runsOf(ctx context.Context, folder *runs.Folder) string {
	const most = 8
	list, err := folder.List(ctx)
	if err != nil || len(list.Runs) == 0 {
		return ""
	}
	var names []string
	for _, r := range list.Runs[:min(len(list.Runs), most)] {
		names = append(names, r.Name)
	}
	return "; newest runs in it: " + strings.Join(names, ", ")
}

// readAll reads all records that a run has now, or until ctx ends.
func readAll(ctx context.Context, run *runs.Run) {
	for ctx.Err() == nil && run.Update(8<<20) {
	}
}

// follow shows a run after each change, until it ends or its folder is gone.
func follow(ctx context.Context, folder *runs.Folder, run *runs.Run, s screen) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for shown, columns, rows := int64(-1), 0, 0; ; {
		if !folder.Holds(run) {
			return exit.Usagef("status: the folder of run %s no longer exists, or another run has its name now",
				run.Name)
		}
		readAll(ctx, run)
		v := run.View()
		width, height := s.Size()
		resized := !s.json && (width != columns || height != rows)
		if v.Version != shown || resized {
			shown, columns, rows = v.Version, width, height
			if err := s.show(v); err != nil {
				return err
			}
		}
		if v.State.Kind != runs.Running {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// screen is the place where runs are shown.
type screen struct {
	*logs.View
	out  io.Writer
	json bool
}

// show prints a run.
func (s screen) show(v runs.View) error {
	if !s.json {
		width, height := s.View.Size()
		return s.View.Show(Text(v, width, height))
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = s.out.Write(append(text, '\n'))
	return err
}
