package train

import (
	"context"
	"fmt"
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

const sageMakerFlag = "sagemaker"

// trainFlags are the flags of command train that do more than set a key.
type trainFlags struct {
	balancing bool // --enable-load-balancing was given
	sageMaker bool // --sagemaker was given

	cli.LauncherFlags
}

// addTrainFlags adds the flags of command train. The flags become overrides of keys, in the order of the command line.
func addTrainFlags(cmd *cobra.Command, a *cli.App) *trainFlags {
	a.AddKeyFlag(cmd, "model", "model.name", "string",
		"name of the model: "+strings.Join(parts.KindNames(a.Env.Catalog.Models), ", "))
	a.AddKeyFlag(cmd, "dataset", "data.dataset", "string", "name of the data set: "+
		strings.Join(parts.KindNames(a.Env.Catalog.DataSets), ", "))
	a.AddKeyFlag(cmd, "num-samples", "data.num_samples", "int", "number of training samples to use; 0: all")
	a.AddKeyFlag(cmd, "batch-size", "data.batch_size", "int", "samples per step for EACH RANK")
	a.AddKeyFlag(cmd, "epochs", "train.epochs", "int", "passes over the training samples")
	a.AddKeyFlag(cmd, "lr", "optimizer.lr", "float", "learning rate")
	a.AddKeyFlag(cmd, "optimizer", "optimizer.name", "string", "optimizer: sgd, adamw; default: that of the model")
	a.AddKeyFlag(cmd, "device", "device.kind", "string", "device: auto, cpu, cuda, reference, null")
	a.AddKeyFlag(cmd, "precision", "train.precision", "string", "number format: auto, f32, bf16, fp16")
	a.AddKeyFlag(cmd, "backend", "parallel.backend", "string", "transport of gradients: auto, nccl, gloo")
	a.AddKeyFlag(cmd, "profile-interval", "profile.interval", "int", "steps between two metric records")
	a.AddKeyFlag(cmd, "load-balance-policy", policyKey, "string",
		"balancing policy: "+strings.Join(parts.KindNames(a.Env.Catalog.Policies), ", "))
	a.AddKeyFlag(cmd, "rebalance-interval", "balance.interval", "int", "steps between two balancing decisions")
	a.AddKeyFlag(cmd, "gpu-profiles", "profile.gpu_profiles", "string",
		"gpu_profiles.json that hetero-train profile wrote")
	a.AddKeyFlag(cmd, "experiment-name", "experiment.name", "string", "name of the run and its folder")
	a.AddKeyFlag(cmd, "output-dir", "experiment.output_dir", "string", "folder that contains all runs")
	a.AddKeyFlag(cmd, "log-dir", "experiment.log_dir", "string", "folder of logs and metrics")
	a.AddKeyFlag(cmd, "metrics-address", "metrics.address", "string",
		"address on which rank 0 serves metrics for Prometheus, for example 127.0.0.1:9464")
	flags := new(trainFlags)
	cli.AddLauncherFlags(&flags.LauncherFlags, cmd, a)
	cmd.Flags().BoolVar(&flags.sageMaker, sageMakerFlag, false,
		"in a job of SageMaker: read its hyperparameters, and write runs and failures where it keeps them")
	a.AddSwitch(cmd, "enable-profiling", "profile.enabled", "write metric records")
	a.AddSwitch(cmd, "dashboard", "dashboard.enabled", "show all runs on a web page during this run")
	cmd.Flags().BoolFunc(enableFlag, "divide the batch among the ranks according to their speed (balance.policy)",
		func(text string) (err error) {
			flags.balancing, err = strconv.ParseBool(text)
			a.Overrides = slices.DeleteFunc(a.Overrides, func(o config.Override) bool { return o.Origin == disabled })
			if !flags.balancing {
				a.Overrides = append(a.Overrides, config.Override{Origin: disabled, Key: policyKey, Value: "none"})
			}
			return err
		})
	return flags
}

// resolve converts the flags to overrides of keys. The warnings name the values that it adjusted.
func (f *trainFlags) resolve(ctx context.Context, a *cli.App) (overrides []config.Override, warnings []string,
	err error) {
	overrides = slices.Clone(a.Overrides)
	if a.File == "" {
		overrides = slices.Insert(overrides, 0, f.usualPolicy())
	}
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

const (
	policyKey  = "balance.policy"
	enableFlag = "enable-load-balancing"
	disabled   = "--" + enableFlag + "=false" // origin of policy none
)

// usualPolicy returns the default policy of a command line without a configuration file. It is "dynamic" with
// --enable-load-balancing, otherwise "none", as older scripts expect.
func (f *trainFlags) usualPolicy() config.Override {
	if f.balancing {
		return config.Override{Origin: "--" + enableFlag, Key: policyKey, Value: "dynamic", Default: true}
	}
	return config.Override{Origin: noBalancing, Key: policyKey, Value: "none", Default: true}
}

// withoutEffect returns warnings about flags that do not have the effect that their names promise.
func (f *trainFlags) withoutEffect(cfg *config.Config) []string {
	if !f.balancing || len(cfg.Balance.FixedShares) == 0 && cfg.Balance.Policy != "none" {
		return nil
	}
	key := policyKey
	if len(cfg.Balance.FixedShares) > 0 {
		key = "balance.fixed_shares"
	}
	return []string{
		fmt.Sprintf(
			"--%s has no effect: %s is set (%s); remove this setting, or select a policy with --load-balance-policy",
			enableFlag, key, cfg.Origin(key))}
}

// hasGPU reports whether this machine has a GPU that NCCL can use.
func hasGPU() bool { return cuda.Available() == nil && nccl.Available() == nil }

// configuredRanks returns the number of ranks of the run. It replaces the settings that must match the global batch
// size, which is not known yet. If the configuration or the environment is invalid, it returns 1. In this case, the
// configuration is loaded again later with the batch size, and this reports the faults.
func (f *trainFlags) configuredRanks(ctx context.Context, a *cli.App, overrides []config.Override) int {
	overrides = append(slices.Clone(overrides), config.Override{Key: "balance.fixed_shares", Value: "[]"},
		// The batch size below is a large power of two.
		config.Override{Key: "train.grad_accumulation", Value: "1"},
		config.Override{Key: "data.batch_size", Value: "16777216"})
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

// timesRanks multiplies a batch size per rank by the number of ranks. A text that is not a number remains unchanged,
// because the load of the configuration reports it.
func timesRanks(perRank string, ranks int) string {
	n, err := strconv.Atoi(perRank)
	if err != nil || n > math.MaxInt32 {
		return perRank
	}
	return strconv.Itoa(n * ranks)
}

// noBalancing is the origin of the policy "none" if neither a file nor a flag selects a policy.
const noBalancing = "no --enable-load-balancing"
