package checkpoints

import (
	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
)

const checkpointLong = `Inspect and verify checkpoints, and export and import weights.

PATH is one of these:

  the folder of a checkpoint
  a file that names a checkpoint, such as checkpoints/latest or checkpoints/best
  a folder of checkpoints, or the folder of a run; the command then uses the newest undamaged checkpoint
  a .safetensors file (inspect and verify only)

Exit codes:
  0  done
  2  bad flags, no checkpoint, or another model
  3  damaged, incomplete or malicious file, or a value that is NaN or infinite
  7  a file cannot be read or written`

// New returns the command that inspects, verifies, exports and imports checkpoints.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{Use: "checkpoint", Short: "Inspect, verify, export and import checkpoints and weights",
		Long: checkpointLong, Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newCheckpointInspect(a), newCheckpointVerify(a), signals.Tidied(newCheckpointExport(a)),
		cli.WithConfig(signals.Tidied(newCheckpointImport(a))))
	return cmd
}
