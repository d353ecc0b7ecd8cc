package schedule

import (
	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
)

const scheduleLong = `Simulate and compare job schedulers for clusters with different types of GPUs.

The commands simulate a cluster, compare scheduling policies on it, and propose placements for the queue of a real cluster.
No command needs a GPU. Without files, the cluster has 8 Nvidia Volta, 4 Nvidia Turing and 4 AMD Radeon GPUs, and the jobs are a
generated mix of simulations, machine learning and data processing.`

// defaultPolicy is the policy without training that has the best results on the default cluster in
// docs/benchmarks/scheduling.md.
const defaultPolicy = "gang"

// New returns the family of commands.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{Use: "schedule", Short: "Simulate and compare job schedulers for clusters with different types of GPUs",
		Long: scheduleLong, Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	for _, one := range []*cobra.Command{newSimulate(a), newCompare(a), newExplain(a), newIngest(a), newTrain(a),
		newAdvise(a)} {
		cmd.AddCommand(cli.WithoutConfig(one, "the commands of schedule have their own flags"))
	}
	return cmd
}
