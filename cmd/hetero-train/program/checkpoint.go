package program

import (
	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
)

const checkpointLong = `Look into checkpoints, verify them, and move weights in and out.

PATH is a checkpoint's folder, a file that names one (checkpoints/latest, checkpoints/best), a folder of checkpoints or a run's folder,
of which the newest sound one is taken; inspect and verify also take a .safetensors file.

Exit codes: 0 done; 2 bad flags, no checkpoint there, or another model; 3 damaged, incomplete, hostile, or a value that is not finite;
7 a file cannot be read or written.`

func newCheckpoint(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "checkpoint", Short: "Inspect, verify, export and import checkpoints and weights", Long: checkpointLong, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newCheckpointInspect(a), newCheckpointVerify(a), signals.Tidied(newCheckpointExport(a)), signals.Tidied(newCheckpointImport(a)))
	return cmd
}

// onePath makes a command of one argument, which the file given with -c and the like have no part in.
func onePath(cmd *cobra.Command, argument string, run func(path string) error) *cobra.Command {
	cmd.Args = exactly(argument)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return exit.Classify(cmd.Context(), run(args[0])) }
	return withoutConfig(cmd, "this command reads the file or folder that it is given")
}

// exactly demands one argument.
func exactly(argument string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return exit.Usagef("%s: got %d arguments %q, want %s", cmd.CommandPath(), len(args), args, argument)
		}
		return nil
	}
}

// warn shows a warning of a command that keeps no log.
func (a *app) warn(err error) {
	a.warnOf(err.Error())
}
