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

--check is for the health check of a container. It prints one line, and reads only the newest record, so it is fast after any number of
steps. It fails unless the run is finished, or is running and its newest record is at most DURATION old. After a start or a resume,
the age counts from the start. If the process runs on another machine or in another container, the age alone counts.
Choose a DURATION that is longer than the time to the first step, than an evaluation and than a checkpoint.

Exit codes:
  1    --check: the run is not healthy
  2    bad flags, there is no such run, or its folder was deleted or renamed
  130  stopped by Ctrl-C`

const example = `  hetero-train status
  hetero-train status resnet50 --watch
  hetero-train status experiments/resnet50 --json | jq .decision.share_of_oracle
  hetero-train status resnet50 --check 10m                                    the health check of a container`

// watchInterval is the time between two checks of a run for changes. Runs write their records twice a second.
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
		if checks {
			return check(cmd.Context(), a.Env.Stdout, input, cli.First(args), oldest, asJSON)
		}
		folder, run, err := open(cmd.Context(), input, cli.First(args))
		if err != nil {
			return err
		}
		defer folder.Close() // no error: the folder was only read
		defer run.Close()    // no error: the run was only read
		s := screen{logs.NewView(a.Env.Stdout), a.Env.Stdout, asJSON}
		if !watch {
			readAll(cmd.Context(), run)
			if err := context.Cause(cmd.Context()); err != nil {
				return err
			}
			return s.show(run.View())
		}
		return follow(cmd.Context(), folder, run, s)
	}
	return cmd
}

// check prints the health of a run in one line. It returns an error if the run is not healthy.
func check(ctx context.Context, out io.Writer, input, name string, oldest time.Duration, asJSON bool) error {
	folder, name, err := find(ctx, input, name)
	if err != nil {
		return err
	}
	defer folder.Close() // no error: the folder was only read
	h, err := folder.Health(name)
	if err != nil {
		return refuse(ctx, folder, name, err)
	}
	why := h.Unhealthy(oldest)
	if asJSON {
		text, err := json.Marshal(struct {
			Name    string     `json:"name"`
			Healthy bool       `json:"healthy"`
			State   runs.State `json:"state"`
			Step    int64      `json:"step"`
			Age     float64    `json:"age_seconds"`
		}{h.Name, why == "", h.State, h.Step, h.Age.Seconds()})
		if err != nil {
			return err
		}
		if _, err = out.Write(append(text, '\n')); err != nil {
			return err
		}
	} else if why == "" {
		fmt.Fprintf(out, "%s: healthy: %s, step %d, newest record or start %v old\n", h.Name, h.State.Kind, h.Step,
			h.Age.Round(time.Second))
	}
	if why != "" {
		return fmt.Errorf("status: run %s is not healthy: %s", h.Name, why)
	}
	return nil
}

// find opens the folder that contains a run, and returns the name of the run in this folder. The argument name is the
// name or the folder of a run. If it is "", find selects the newest run of the folder input.
func find(ctx context.Context, input, name string) (*runs.Folder, string, error) {
	path := input
	if strings.ContainsRune(name, filepath.Separator) || isFolder(name) {
		var err error
		if path, err = cli.InRuns(name, input); err != nil {
			return nil, "", err
		}
		name = ""
	}
	folder, err := runs.OpenFolder(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", exit.NoRuns("status", path)
	}
	if err != nil {
		return nil, "", exit.Usagef("status: %w", err)
	}
	if name == "" {
		if name, err = newest(ctx, folder); err != nil {
			return nil, "", errors.Join(err, folder.Close())
		}
	}
	return folder, name, nil
}

// newest returns the name of the newest run of a folder.
func newest(ctx context.Context, folder *runs.Folder) (string, error) {
	if name, ok := folder.Single(); ok {
		return name, nil
	}
	list, err := folder.List(ctx)
	if err != nil {
		return "", exit.Usagef("status: %w", err)
	}
	if len(list.Runs) == 0 {
		return "", exit.Usagef("status: there is no run in %s", folder.Path)
	}
	return list.Runs[0].Name, nil
}

// open opens the run that find selects, and the folder that contains it.
func open(ctx context.Context, input, name string) (*runs.Folder, *runs.Run, error) {
	folder, name, err := find(ctx, input, name)
	if err != nil {
		return nil, nil, err
	}
	run, err := folder.Open(name)
	if err != nil {
		return nil, nil, errors.Join(refuse(ctx, folder, name, err), folder.Close())
	}
	return folder, run, nil
}

// refuse returns the error for a run that could not be opened.
func refuse(ctx context.Context, folder *runs.Folder, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return exit.Usagef("status: there is no run %s in folder %s%s", name, folder.Path, runsOf(ctx, folder))
	}
	return exit.Usagef("status: %w", err)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// runsOf lists the newest runs of a folder, for example "; newest runs in it: a, b, c". It returns "" for a folder
// without runs.
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

// readAll reads all records that a run has now. It stops earlier if ctx ends.
func readAll(ctx context.Context, run *runs.Run) {
	for ctx.Err() == nil && run.Update(8<<20) {
	}
}

// follow shows a run after each change, until the run ends or its folder no longer exists.
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

// screen is the output on which runs are shown.
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
