// Package tracking contains the commands that send runs to experiment trackers.
package tracking

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/profiler/mlflow"
)

const syncLong = `Send a run to MLflow.

RUN is the name of a run in the folder experiments, or the folder of a run, that trained with tracking.mlflow. The command sends the points, parameters and files that the server
does not have yet. It sends each point once, also after a crash. Without --mlflow, it sends the run to the server to which the
run was sent before. Your credentials (MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD) go only
to a server that you name with --mlflow or MLFLOW_TRACKING_URI.

Exit codes:
  0  done
  2  bad flags, or no such run, or another process sends the run
  5  the server cannot be reached or refuses the run`

// New returns the command tracking.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{Use: "tracking", Short: "Send runs to MLflow", Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newSync(a))
	return cmd
}

func newSync(a *cli.App) *cobra.Command {
	var target, logDir string
	cmd := &cobra.Command{
		Use:   "sync RUN",
		Short: "Send the rest of a run to MLflow",
		Long:  syncLong,
		Example: `  hetero-train tracking sync experiments/resnet50
  hetero-train tracking sync experiments/resnet50 --mlflow http://127.0.0.1:5000`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usagef("%s: got %d arguments, want the folder of one run", cmd.CommandPath(), len(args))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&target, "mlflow", "",
		"`URL` of another server, or a folder; the command sends the whole run to it")
	cmd.Flags().StringVar(&logDir, "log-dir", "", "`folder` of the logs, if the logs of the run were moved")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if target != "" {
			err := config.CheckPathOrServer(target, "http://127.0.0.1:5000")
			if err == nil {
				err = cmp.Or(config.CheckBareName(target), mlflow.CheckTarget(target))
			}
			if err != nil {
				return exit.Usagef("--mlflow: %w", err)
			}
		}
		dir, err := a.RunPath(args[0])
		if err != nil {
			return err
		}
		if logDir == "" {
			logDir = filepath.Join(dir, "logs")
		}
		skipped := 0
		target, run, err := mlflow.Sync(cmd.Context(), mlflow.SenderOptions{RunDir: dir, LogDir: logDir, Target: target,
			Environ: a.Env.Environ,
			OnSkip: func(file string, why error) {
				skipped++
				fmt.Fprintf(a.Env.Stderr, "skipped %s: %v\n", file, why)
			}})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return exit.Usagef("%s: the run has no points for MLflow (%w): train with tracking.mlflow to record them",
				args[0], err)
		case errors.Is(err, mlflow.ErrInUse):
			return exit.Usagef("%w; while a run trains, it sends its points itself", err)
		case errors.As(err, new(*mlflow.UnconfirmedError)):
			return exit.Usagef("%w; if you trust the run, add --mlflow with this target, or another one", err)
		case target == "" && err != nil:
			return exit.With(exit.Usage, err)
		case err != nil:
			return exit.With(exit.Communication, fmt.Errorf("MLflow at %s: %w", target, err))
		}
		_, err = fmt.Fprintf(a.Env.Stdout, "MLflow at %s has the whole run: %s\n", target, run)
		if err != nil {
			return exit.With(exit.IO, err)
		}
		if skipped > 0 {
			fmt.Fprintf(a.Env.Stderr, "%d files were skipped\n", skipped)
		}
		return nil
	}
	return cmd
}
