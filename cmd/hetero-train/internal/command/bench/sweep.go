package bench

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
)

const sweepLong = `Measure latency and throughput of training steps by batch size.

The command trains each batch size in turn for --seconds, and repeats this in --rounds rounds.
It prints a table and writes NAME.json, NAME.csv, NAME.png and NAME.svg to the folder of --output-dir, where NAME is the name of the model.

  knee      the smallest batch with 95 % of the best throughput: a larger batch is hardly faster
  largest   the largest batch that fits in the memory of the device

Without --batch-sizes, sizes double from 1 until throughput stops growing, the memory is full, or a step takes 10 s.
After SIGINT or SIGTERM, the table and the files contain what was measured so far.`

func newBenchSweep(a *cli.App) *cobra.Command {
	f := new(sweepFlags)
	cmd := &cobra.Command{Use: "sweep", Short: "Measure latency and throughput by batch size", Long: sweepLong,
		Example: `  hetero-train bench sweep --model resnet50 --image-size 32 --classes 10
  hetero-train bench sweep --model gpt2 --seq-len 256 --batch-sizes 1,2,4,8 --precision f32,bf16
  hetero-train bench sweep --model simple_cnn --image-size 32 --classes 10 --threads 1,2 --seconds 0.3 --json`, Args: cli.NoArguments}
	f.addKind(cmd, a.Env)
	f.addModel(cmd)
	f.accumulate = 1
	cmd.Flags().IntSliceVar(&f.batches, "batch-sizes", nil, "batch sizes, `N,N,…`; empty: 1, 2, 4, …")
	cmd.Flags().IntVar(&f.mostBatch, "most-batch", 1024, "largest batch size without --batch-sizes")
	cmd.Flags().StringSliceVar(&f.precisions, "precision", []string{"auto"},
		"element types of activations and gradients, one curve each: `auto|f32|bf16|fp16,…`")
	cmd.Flags().IntSliceVar(&f.threadList, "threads", []int{0},
		"threads of a CPU device, one curve for each number, `N,N,…`; 0: the CPU quota, limited by OMP_NUM_THREADS")
	cmd.Flags().Float64Var(&f.seconds, "seconds", 1, "time of the measurement of one batch size in one round, s")
	cmd.Flags().IntVar(&f.rounds, "rounds", 3, "number of rounds over all batch sizes")
	cmd.Flags().StringVar(&f.dir, "output-dir", "experiments/sweep", "`folder` of table and figure")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		s := &sweep{flags: f, app: a}
		stopped := s.run(cmd.Context())
		if s.empty() {
			return stopped
		}
		if err := s.report(stopped == nil); err != nil {
			return errors.Join(stopped, err)
		}
		return stopped
	}
	return cmd
}
