package profile

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
)

const profileLong = `Find and measure the hardware of every rank: matrix products, memory, copies between host and device, disk, and with several ranks
the network between them and their all-reduce. It takes less than 60 s, with --quick less than 10 s, after all ranks have joined.

Several ranks start as for training: by --nproc-per-node, or by a launcher's environment variables on every machine. Rank 0 merges
the results and writes gpu_profiles.json and system_profile.json into <output_dir>/<experiment>/configs, or into --output-dir.

The compute score of a rank is (TFLOP/s of the training's type)^a * (memory GB/s / 10)^b with a + b = 1. b is the memory-bound
fraction of a step: that of the model of -c (not with --quick), else 0.7. Ranks of one machine are measured in turns, and ranks of
the same device type have one score. With a model, the profile also times its training steps and prints how well the scores
predict them.`

const profileExample = `  hetero-train profile
  hetero-train profile --quick --json
  hetero-train profile -c configs/resnet50.toml --nproc-per-node 2 --output-dir profiles
  hetero-train train -c configs/resnet50.toml --gpu-profiles profiles/gpu_profiles.json`

// profileFlags are those of profile.
type profileFlags struct {
	quick, json bool
	folder      string
	place       cli.PlaceFlags
}

// New is the command that measures the hardware of every rank.
func New(a *cli.App) *cobra.Command {
	f := new(profileFlags)
	cmd := &cobra.Command{Use: "profile", Short: "Find and measure the hardware", Long: profileLong, Example: profileExample, Args: cli.NoArguments}
	cmd.Flags().BoolVar(&f.quick, "quick", false, "less accurate figures in less than 10 s")
	cmd.Flags().BoolVar(&f.json, "json", false, "one JSON object on one line of standard output instead of the table")
	cmd.Flags().StringVar(&f.folder, "output-dir", "", "`DIR` for the two files; default: the experiment's folder configs")
	cli.AddPlaceFlags(&f.place, cmd, a)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("output-dir") && f.folder == "" {
			return exit.Usagef("--output-dir: got an empty name, want a folder")
		}
		return profileRanks(cmd.Context(), a, f)
	}
	return cmd
}

// profileRanks measures, or starts the ranks that do.
func profileRanks(ctx context.Context, a *cli.App, f *profileFlags) error {
	return compute.OnRanks(ctx, a, &f.place, func(ctx context.Context, j *compute.Rank) error {
		return (&profiling{flags: f, rank: j, model: modelToProfile(a, j.Cfg)}).run(ctx)
	})
}

// modelToProfile is the model of which the score depends, "" where neither file nor flag has chosen one.
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

// folder is where the files go.
func (p *profiling) folder() string {
	if p.flags.folder != "" {
		return p.flags.folder
	}
	e := p.rank.Cfg.Experiment
	return filepath.Join(e.OutputDir, e.Name, "configs")
}
