package profile

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
	"github.com/hetero-train/hetero-train/engine/config"
)

const profileLong = `Measure the hardware of every rank: matrix products, memory, copies between host and device, and disk. With several ranks, also
measure all-reduce and the network between the ranks.

After all ranks have joined, the command takes less than 60 s. With --quick, it takes less than 10 s. Start the ranks as for
training: with --nproc-per-node, or with a launcher on every machine. Rank 0 writes gpu_profiles.json and system_profile.json into
--output-dir.

The compute score of a rank is

  (TFLOP/s)^a * (memory GB/s / 10)^b   with a + b = 1

TFLOP/s is measured in the precision that training uses. b is the memory-bound fraction of a training step. With -c FILE, b is
computed for the model of the file; without a file, or with --quick, it is 0.7. The ranks of one machine are measured in turns, and
ranks with the same type of device get the same score.

With -c FILE, the command also times training steps of the model, and prints how well the scores predict these times. With several
ranks, it then times steps at several shares of each rank for about 10 s. A training with the same settings that gets the file with
--gpu-profiles starts with these step times, so policy hybrid need not discover them. Images are synthetic; texts are those of
the configured data set.

With --watch, the command measures nothing and writes no file. Every second it shows the GPUs of this machine, and the traffic of
PCIe, each NVLink connection, network interfaces and RDMA ports next to their limits, until Ctrl-C. A value that cannot be read
is "-". With --json, it prints one object per line.`

const profileExample = `  hetero-train profile
  hetero-train profile --quick --json
  hetero-train profile --watch
  hetero-train profile -c configs/resnet50.toml --nproc-per-node 2 --output-dir profiles
  hetero-train train -c configs/resnet50.toml --gpu-profiles profiles/gpu_profiles.json`

// New returns the command that measures the hardware of every rank.
func New(a *cli.App) *cobra.Command {
	f := new(profileFlags)
	cmd := &cobra.Command{Use: "profile", Short: "Measure the hardware of every rank", Long: profileLong,
		Example: profileExample, Args: cli.NoArguments}
	cmd.Flags().BoolVar(&f.quick, "quick", false, "measure for less than 10 s, with less accuracy")
	cmd.Flags().BoolVar(&f.json, "json", false,
		"print one JSON object on one line of standard output instead of the table")
	cmd.Flags().StringVar(&f.folder, "output-dir", "",
		"`folder` for the two files; default: <output_dir>/<experiment>/configs")
	cmd.Flags().BoolVar(&f.watch, "watch", false,
		"measure nothing; show the GPUs and the traffic of the links of this machine every second")
	cli.AddLauncherFlags(&f.assigned, cmd, a)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.watch {
			if err := checkWatch(cmd, a); err != nil {
				return err
			}
			return signals.Until(cmd.Context(), func(ctx context.Context) error { return watchMachine(ctx, a, f.json) })
		}
		if cmd.Flags().Changed("output-dir") && f.folder == "" {
			return exit.Usagef("--output-dir: got an empty name, want a folder")
		}
		return profileRanks(cmd.Context(), a, f)
	}
	return cmd
}

// profileRanks measures the hardware of this rank, or starts the ranks of this machine.
func profileRanks(ctx context.Context, a *cli.App, f *profileFlags) error {
	return compute.OnRanks(ctx, a, &f.assigned, true, func(ctx context.Context, k *compute.Rank) error {
		return (&profiling{flags: f, rank: k, model: modelToProfile(a, k.Process.Cfg)}).run(ctx)
	})
}

// modelToProfile returns the model whose step determines the score. It returns "" if neither a file nor a flag selects
// a model.
func modelToProfile(a *cli.App, cfg *config.Config) string {
	chosen := a.File != ""
	for _, o := range a.Overrides {
		chosen = chosen || o.Key == "model.name"
	}
	if !chosen {
		return ""
	}
	return cfg.Model.Name
}
