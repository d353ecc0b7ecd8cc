package bench

import (
	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

const benchLong = `Measure the limits of the hardware and the speed of the program.

  bench peak   arithmetic and memory limits of the hardware
  bench train  training steps on synthetic data
  bench sweep  latency and throughput of training steps by batch size
  bench ops    every op of a model, compared with its hardware limit
  bench data   reading, decoding and augmentation of images

With --json, each command prints one JSON object as the last line of standard output. All other output goes to standard error.`

// New returns the command that measures the speed of the hardware and of the program.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure hardware limits, training steps, ops and data loading",
		Long:  benchLong,
		Example: `  hetero-train bench peak
  hetero-train bench train --model resnet50 --image-size 224 --batch-size 32 --precision f32 --steps 6 --json
  hetero-train bench sweep --model resnet50 --image-size 32 --classes 10 --precision f32,bf16
  hetero-train bench ops --model resnet50 --image-size 32 --batch-size 128 --precision bf16`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, sub := range []*cobra.Command{newBenchPeak(a), newBenchTrain(a), newBenchSweep(a), newBenchOps(a),
		newBenchData(a)} {
		run := sub.RunE
		sub.RunE = func(cmd *cobra.Command, args []string) error { return exit.Classify(cmd.Context(), run(cmd, args)) }
		cmd.AddCommand(cli.WithoutConfig(sub, "a benchmark has its own flags, so that its figures compare; to time another configuration, use command train with train.steps"))
	}
	return cmd
}
