package train

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cuda"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/nccl"
)

// trainFlags are the flags of command train that do more than set a key.
type trainFlags struct {
	profiling *bool // value of --enable-profiling; nil if the flag is not given
	balancing bool  // value of --enable-load-balancing

	cli.LauncherFlags
}

// addTrainFlags adds the flags of command train. All flags become overrides, in the order of the command line.
func addTrainFlags(cmd *cobra.Command, a *cli.App) *trainFlags {
	a.AddKeyFlag(cmd, "model", "model.name", "string", "name of the model: "+strings.Join(parts.KindNames(a.Env.Catalog.Models), ", "))
	a.AddKeyFlag(cmd, "dataset", "data.dataset", "string", "name of the data set: "+strings.Join(parts.KindNames(a.Env.Catalog.DataSets), ", "))
	a.AddKeyFlag(cmd, "num-samples", "data.num_samples", "int", "number of training samples to use; 0: all")
	a.AddKeyFlag(cmd, "batch-size", "data.batch_size", "int", "samples per step for EACH RANK")
	a.AddKeyFlag(cmd, "epochs", "train.epochs", "int", "passes over the training samples")
	a.AddKeyFlag(cmd, "lr", "optimizer.lr", "float", "learning rate")
	a.AddKeyFlag(cmd, "backend", "parallel.backend", "string", "transport of gradients: auto, nccl, gloo")
	a.AddKeyFlag(cmd, "profile-interval", "profile.interval", "int", "steps between two metric records")
	a.AddKeyFlag(cmd, "load-balance-policy", "balance.policy", "string", "balancing policy with --enable-load-balancing: "+strings.Join(parts.KindNames(a.Env.Catalog.Policies), ", ")+"; default: dynamic")
	a.AddKeyFlag(cmd, "rebalance-interval", "balance.interval", "int", "steps between two balancing decisions")
	a.AddKeyFlag(cmd, "gpu-profiles", "profile.gpu_profiles", "string", "gpu_profiles.json that hetero-train profile wrote")
	a.AddKeyFlag(cmd, "experiment-name", "experiment.name", "string", "name of the run and its folder")
	a.AddKeyFlag(cmd, "output-dir", "experiment.output_dir", "string", "folder that contains all runs")
	a.AddKeyFlag(cmd, "log-dir", "experiment.log_dir", "string", "folder of logs and metrics")
	a.AddKeyFlag(cmd, "metrics-address", "metrics.address", "string", "address on which rank 0 serves metrics for Prometheus, for example 127.0.0.1:9464")
	flags := new(trainFlags)
	cli.AddLauncherFlags(&flags.LauncherFlags, cmd, a)
	cmd.Flags().BoolFunc("enable-profiling", "write metric records (profile.enabled)", func(text string) error {
		on, err := strconv.ParseBool(text)
		flags.profiling = &on
		return err
	})
	cmd.Flags().BoolFunc("dashboard", "show all runs on a web page during this run (dashboard.enabled)", func(text string) error {
		a.Overrides = append(a.Overrides, config.Override{Origin: "--dashboard", Key: "dashboard.enabled", Value: text})
		return nil
	})
	cmd.Flags().BoolVar(&flags.balancing, "enable-load-balancing", false, "divide the batch among the ranks according to their speed (balance.policy)")
	return flags
}

// resolve converts the flags to overrides of keys. warnings names the values that it adjusted.
func (f *trainFlags) resolve(ctx context.Context, a *cli.App) (overrides []config.Override, warnings []string, err error) {
	overrides = slices.Clone(a.Overrides)
	if f.profiling != nil {
		overrides = append(overrides, config.Override{Origin: "--enable-profiling", Key: "profile.enabled", Value: strconv.FormatBool(*f.profiling)})
	}
	overrides, warnings = f.policy(a.File, overrides)
	for i, o := range overrides {
		if o.Origin == "--backend" && o.Value == "nccl" && !hasGPU() {
			overrides[i].Value = "gloo"
			warnings = append(warnings, "--backend nccl: no GPU found, using gloo")
		}
	}
	for i, o := range overrides {
		if o.Origin == "--batch-size" {
			overrides[i].Value = timesRanks(o.Value, f.configuredRanks(ctx, a, overrides))
		}
	}
	if a.Counted != nil && a.Counted.Err != nil { // without this check, the error would name the batch size
		return nil, nil, a.Counted.Err
	}
	return overrides, warnings, nil
}

// policy converts the balancing flags to overrides. Without --enable-load-balancing, --load-balance-policy has no
// effect; with it, the default policy is "dynamic". If none of these flags is given, the policy of the file applies.
func (f *trainFlags) policy(file string, overrides []config.Override) ([]config.Override, []string) {
	byFlag := slices.ContainsFunc(overrides, func(o config.Override) bool { return o.Origin == "--load-balance-policy" })
	switch {
	case f.balancing && !byFlag:
		return append(overrides, config.Override{Origin: "--enable-load-balancing", Key: "balance.policy", Value: "dynamic"}), nil
	case f.balancing:
		return overrides, nil
	case byFlag:
		return append(overrides, config.Override{Origin: "--load-balance-policy", Key: "balance.policy", Value: "none"}),
			[]string{"--load-balance-policy has no effect without --enable-load-balancing: the policy is none"}
	case file == "": // the first override, so that --set balance.policy takes precedence
		none := config.Override{Origin: noBalancing, Key: "balance.policy", Value: "none"}
		return slices.Insert(overrides, 0, none), nil
	}
	return overrides, nil
}

// hasGPU reports whether this machine has a GPU that NCCL can use.
func hasGPU() bool { return cuda.Available() == nil && nccl.Available() == nil }

// configuredRanks returns the number of ranks of the run. It returns 1 if the configuration or the environment is
// invalid, because the later loading with the batch size reports these faults. It replaces the settings that must match
// the global batch, which is not known yet.
func (f *trainFlags) configuredRanks(ctx context.Context, a *cli.App, overrides []config.Override) int {
	overrides = append(slices.Clone(overrides), config.Override{Key: "balance.fixed_shares", Value: "[]"},
		// An even number that any group size divides.
		config.Override{Key: "train.grad_accumulation", Value: "1"}, config.Override{Key: "data.batch_size", Value: "16777216"})
	cfg, err := config.Load(a.File, a.Env.Catalog, overrides...)
	if err != nil {
		return 1
	}
	assigned, err := process.Assign(ctx, a, cfg, f.LauncherFlags)
	if err != nil {
		return 1
	}
	return assigned.WorldSize
}

// timesRanks multiplies a batch size per rank by the number of ranks. It returns a text that is not a number unchanged,
// because loading the configuration reports it.
func timesRanks(perRank string, ranks int) string {
	n, err := strconv.Atoi(perRank)
	if err != nil || n > math.MaxInt32 {
		return perRank
	}
	return strconv.Itoa(n * ranks)
}
