package train

import (
	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
)

const trainExample = `  hetero-train train -c configs/resnet50.toml
  hetero-train train --model simple_cnn --dataset synthetic_image --num-samples 1000 --batch-size 32 --epochs 2
  hetero-train train -c configs/resnet50.toml --batch-size 64 --lr 0.05`

const trainLong = `Train a model. "hetero-train train -c FILE" and "hetero-train -c FILE" are the same command.

Most flags set one key of the configuration, named in parentheses. Three flags differ from their keys:

  --batch-size   counts the samples of each rank; the key data.batch_size counts the samples of all ranks
  --backend      without a GPU, the value nccl becomes gloo, with a warning
  --enable-load-balancing
                 with -c FILE, keeps the balancing policy of the file; without -c FILE, the default policy is
                 "dynamic" with this flag, and "none" without it

If the command line sets a key several times, the last value applies, with a warning that names all of them.`

// New returns the command that trains a model.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "train",
		Short:   "Train a model",
		Long:    trainLong,
		Example: trainExample,
		Args:    cli.NoArguments,
	}
	flags := addTrainFlags(cmd, a)
	AddResume(cmd, a)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if flags.sageMaker {
			return startSageMaker(cmd.Context(), a, flags)
		}
		return Start(cmd.Context(), a, flags)
	}
	return cmd
}

// AddResume adds --resume and --allow to the root command and to train.
func AddResume(cmd *cobra.Command, a *cli.App) {
	cmd.Flags().StringArrayVar(&a.Allow, "allow", nil, "resume although `KEY` has changed; needed for keys that affect training results, for example optimizer.lr; repeatable")
	cmd.Flags().Var(&cli.KeyFlag{App: a, Flag: "resume", Key: "train.resume", Kind: "string"}, "resume", "checkpoint to resume from, `auto|none|RUN|PATH`: auto (newest valid one of this run), none (start a new run), the name or folder of a run, or the folder of a checkpoint")
}
