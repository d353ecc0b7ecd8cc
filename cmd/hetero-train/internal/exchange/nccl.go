package exchange

import (
	"fmt"
	"os"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/nccl"
)

// noNCCL returns the reason why this rank cannot use NCCL. If the rank can use it, noNCCL returns "", and has opened
// NCCL with the settings of table [nccl] and of the environment.
func noNCCL(k *compute.Rank) (why string, err error) {
	if kind := k.Device.Info().Kind; kind != "cuda" {
		return fmt.Sprintf("device %s is not a GPU", k.Device.Info().Name), nil
	}
	if k.Process.Cfg.Parallel.Backend == "gloo" {
		return "parallel.backend is gloo", nil
	}
	if k.Process.Cfg.Parallel.Encrypt && len(k.Team.Hosts()) > 1 {
		return "NCCL does not encrypt its connections to other machines (parallel.encrypt)", nil
	}
	settings, warnings, err := nccl.Settle(k.Process.Cfg.NCCL.Variables(), os.Environ())
	if err != nil {
		return "", exit.With(exit.Usage, err)
	}
	for _, w := range warnings {
		k.Process.Opts.LogOf(logs.ComponentCluster).Warn("nccl: " + w)
	}
	if err := settings.Apply(); err != nil {
		return "", err
	}
	version, path, err := nccl.Loaded()
	if err != nil {
		return err.Error(), nil
	}
	if late := settings.TooNew(version); len(late) > 0 {
		k.Process.Opts.LogOf(logs.ComponentCluster).Warn("this version of NCCL ignores some settings", "version",
			version.String(), "settings", strings.Join(late, ", "))
	}
	if k.Team.Leads() {
		k.Process.Opts.LogOf(logs.ComponentCluster).Info("NCCL", "version", version.String(), "library", path,
			"settings", settings.String(), "max_ctas", k.Process.Cfg.NCCL.MaxCTAs)
	}
	return "", nil
}

// choosesNCCL reports whether NCCL transfers the gradients. The parameter noNCCL has, for each rank, the reason why it
// cannot use NCCL, or "". NCCL needs "" on all ranks. Ranks that share a GPU use NCCL only if the configuration names
// it.
func choosesNCCL(backend string, shareGPU bool, noNCCL []string) (bool, error) {
	if backend == "gloo" {
		return false, nil
	}
	for rank, why := range noNCCL {
		if why != "" && backend == "nccl" {
			return false, exit.Usagef("parallel.backend: NCCL needs NVIDIA GPUs on all ranks, but rank %d cannot use NCCL: %s; use \"auto\" or \"gloo\"",
				rank, why)
		}
		if why != "" {
			return false, nil
		}
	}
	return backend == "nccl" || !shareGPU, nil
}

// WantNCCL returns an error if the configured backend does not support the device of this rank, even in a run of one
// rank.
func WantNCCL(k *compute.Rank) error {
	if kind := k.Device.Info().Kind; k.Process.Cfg.Parallel.Backend == "nccl" && kind != "cuda" {
		return exit.Usagef(
			"parallel.backend: NCCL needs NVIDIA GPUs, but this run uses device %s; use \"auto\" or \"gloo\"",
			k.Device.Info().Name)
	}
	return nil
}

// LoadedNCCL returns the version of the loaded NCCL library as text.
func LoadedNCCL() string {
	version, path, err := nccl.Loaded()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%v (%s)", version, path)
}
