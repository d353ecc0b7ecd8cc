package exchange

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/staged"
	"github.com/hetero-train/hetero-train/nccl"
)

// noNCCL returns why this rank cannot use NCCL, "" if it can. In that case NCCL is open, with the settings of [nccl]
// and of the environment.
func noNCCL(k *compute.Rank) (why string, err error) {
	if kind := k.Device.Info().Kind; kind != "cuda" {
		return fmt.Sprintf("device %s is not a GPU", k.Device.Info().Name), nil
	}
	if k.Cfg.Parallel.Backend == "gloo" {
		return "parallel.backend is gloo", nil
	}
	settings, warnings, err := nccl.Settle(k.Cfg.NCCL.Variables(), os.Environ())
	if err != nil {
		return "", exit.With(exit.Usage, err)
	}
	for _, w := range warnings {
		k.Opts.LogOf(logs.ComponentCluster).Warn("nccl: " + w)
	}
	if err := settings.Apply(); err != nil {
		return "", err
	}
	version, path, err := nccl.Loaded()
	if err != nil {
		return err.Error(), nil
	}
	if late := settings.TooNew(version); len(late) > 0 {
		k.Opts.LogOf(logs.ComponentCluster).Warn("this version of NCCL ignores some settings", "version", version.String(), "settings", strings.Join(late, ", "))
	}
	if k.Team.Leads() {
		k.Opts.LogOf(logs.ComponentCluster).Info("NCCL", "version", version.String(), "library", path, "settings", settings.String(), "max_ctas", k.Cfg.NCCL.MaxCTAs)
	}
	return "", nil
}

// choosesNCCL reports whether gradients travel by NCCL. All ranks must support it: noNCCL has the reason for each rank
// that does not. Ranks that share a GPU use NCCL only if the configuration names it.
func choosesNCCL(backend string, shareGPU bool, noNCCL []string) (bool, error) {
	if backend == "gloo" {
		return false, nil
	}
	for rank, why := range noNCCL {
		if why != "" && backend == "nccl" {
			return false, exit.Usagef("parallel.backend: NCCL needs NVIDIA GPUs on all ranks, but rank %d cannot use NCCL: %s; use \"auto\" or \"gloo\"", rank, why)
		}
		if why != "" {
			return false, nil
		}
	}
	return backend == "nccl" || !shareGPU, nil
}

// WantNCCL refuses a backend that this rank's device does not support, even for a single rank.
func WantNCCL(k *compute.Rank) error {
	if kind := k.Device.Info().Kind; k.Cfg.Parallel.Backend == "nccl" && kind != "cuda" {
		return exit.Usagef("parallel.backend: NCCL needs NVIDIA GPUs, but this run uses device %s; use \"auto\" or \"gloo\"", k.Device.Info().Name)
	}
	return nil
}

// OverNCCL combines NCCL with a communicator of the host, which it then owns.
func (x *Exchange) OverNCCL(ctx context.Context, control collective.Communicator) (collective.Communicator, error) {
	k := x.Rank
	host := k.Team.Group.Members()[k.Opts.Place.Rank].Host
	c, err := nccl.Connect(ctx, nccl.Config{Control: control, Device: k.Device, Timeout: session.Seconds(k.Cfg.Parallel.TimeoutSeconds),
		MinCTAs: k.Cfg.NCCL.MinCTAs, MaxCTAs: k.Cfg.NCCL.MaxCTAs, ShareGPU: k.Cfg.Device.ShareGPU, Host: host})
	if errors.Is(err, nccl.ErrUnusable) {
		return nil, exit.With(exit.Usage, err)
	}
	if err != nil { // return a nil interface, not a nil pointer in an interface
		return nil, err
	}
	return c, nil
}

// BehindDevice makes a communicator of the host transfer memory of this rank's device, if the host cannot access it.
func (x *Exchange) BehindDevice(c collective.Communicator) (collective.Communicator, error) {
	if !x.staged {
		return c, nil
	}
	s, err := staged.New(c, x.Rank.Device)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// LoadedNCCL returns NCCL's version as text.
func LoadedNCCL() string {
	version, path, err := nccl.Loaded()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%v (%s)", version, path)
}
