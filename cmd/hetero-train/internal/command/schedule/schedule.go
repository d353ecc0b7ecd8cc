package schedule

import (
	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
)

const scheduleLong = `Simulate and compare job schedulers for clusters with different types of GPUs.

The commands simulate a cluster, compare scheduling policies on it, and propose placements for the queue of a real cluster.
No command needs a GPU. Without files, the cluster has 8 Nvidia Volta, 4 Nvidia Turing and 4 AMD Radeon GPUs, and the jobs are a
generated mix of simulations, machine learning and data processing.

The commands implement ADLRO. Its modules, and the packages that contain them:

  multi-modal data ingestion and normalisation layer   balancer/scheduler/ingest (schedule ingest), features
  semantic and structural decomposition module         balancer/scheduler/hyper, features
  dynamic resource orchestration engine                balancer/scheduler (policies), cmd/hetero-train/internal/dqn and jobqueue
  simulator                                            balancer/scheduler/simulate, workload (schedule simulate)
  HyperScore                                           balancer/scheduler (score.go), compare (schedule compare)

docs/scheduling.md, "Modules of ADLRO", describes each of them.`

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
