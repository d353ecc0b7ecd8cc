package nccl

import (
	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
)

const ncclLong = `Check and tune NCCL, the transport of gradients between NVIDIA GPUs.

  nccl check   show versions and GPUs, measure bandwidth and latency between ranks, and find slow ranks
  nccl tune    find the fastest algorithm, protocol and number of channels for all-reduce

Start the ranks as for training: with --nproc-per-node, or with a launcher on every machine.`

// New returns the command that checks and tunes NCCL.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "nccl", Short: "Check and tune NCCL between GPUs", Long: ncclLong, Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(cli.WithConfig(newNCCLCheck(a)), cli.WithConfig(newNCCLTune(a)))
	return cmd
}
