package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/cuda"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/hosts"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/nccl"
)

const ncclLong = `What NCCL, which carries gradients between NVIDIA GPUs, does on these machines.

  nccl check   versions, GPUs, bandwidth and latency between every pair of ranks, and who is slow
  nccl tune    all-reduce by size, algorithm, protocol and channels; writes the best as a [nccl] table

Ranks are started as for training: by --nproc-per-node, or by a launcher's environment variables on every machine.`

func newNCCL(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "nccl", Short: "Check and tune NCCL between GPUs", Long: ncclLong, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNCCLCheck(a), newNCCLTune(a))
	return cmd
}

// withNCCL does work on every rank, where there are GPUs and NCCL.
func (a *app) withNCCL(ctx context.Context, name string, place *placeFlags, work func(context.Context, *exchange) error) error {
	if err := cuda.Available(); err != nil {
		return exit.Usagef("%s: there is no GPU to use: %w", name, err)
	}
	return a.onRanks(ctx, place, func(ctx context.Context, j *Rank) error {
		j.cfg.Parallel.Backend = "nccl"
		if err := j.openDevice(ctx); err != nil {
			return err
		}
		if err := j.wantNCCL(); err != nil {
			return err
		}
		if j.opts.place.WorldSize < 2 {
			return exit.Usagef("%s: got one rank, want at least 2, each with a GPU: --nproc-per-node, or a launcher", name)
		}
		if err := j.meet(ctx, []rendezvous.Fact{{Name: "program", Value: version.Text()}, {Name: "command", Value: name}}); err != nil {
			return err
		}
		x, err := j.agreeOnExchange(ctx)
		if err != nil {
			return err
		}
		return work(ctx, x)
	})
}

// among joins some of the ranks by NCCL; all of them call it with the same name, which no other group has.
func (x *exchange) among(ctx context.Context, name string, ranks []int) (collective.Communicator, error) {
	control, err := x.hostAmong(ctx, name, ranks)
	if err != nil {
		return nil, err
	}
	if control, err = x.behindDevice(control); err != nil {
		return nil, err
	}
	return x.overNCCL(ctx, control)
}

// hostAmong joins them by what the host has.
func (x *exchange) hostAmong(ctx context.Context, name string, ranks []int) (collective.Communicator, error) {
	t := x.job.team
	own, limit := slices.Index(ranks, t.place.Rank), seconds(x.job.cfg.Parallel.TimeoutSeconds)
	if x.shared && x.oneHost(ranks) {
		key := "nccl/" + name
		if own == 0 {
			if err := t.group.Set(ctx, key, []byte(shm.NewAddress())); err != nil {
				return nil, err
			}
		}
		address, err := t.group.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		return inMemory(ctx, own, len(ranks), string(address), limit)
	}
	return x.network(ctx, apart{t.group}, name, own, len(ranks), limit, func(err error) int { return slices.Index(ranks, exit.LostRank(err)) })
}

// apart is the ranks' meeting place for a communicator that may fail without ending it.
type apart struct{ *rendezvous.Group }

// Abort tells nobody: the others find that the connections broke.
func (apart) Abort(error) {}

// oneHost says whether ranks are on one machine.
func (x *exchange) oneHost(ranks []int) bool {
	first, _ := hosts.HostOf(x.hosts, ranks[0])
	for _, rank := range ranks {
		if host, _ := hosts.HostOf(x.hosts, rank); host != first {
			return false
		}
	}
	return true
}

// withVariables sets variables of the environment, or takes them back where a value is empty, before a communicator is made.
func withVariables(list map[string]string) error {
	var faults []error
	for name, value := range list {
		if value == "" {
			faults = append(faults, os.Unsetenv(name))
		} else {
			faults = append(faults, os.Setenv(name, value))
		}
	}
	return errors.Join(faults...)
}

// loadedNCCL is its version in words.
func loadedNCCL() string {
	version, path, err := nccl.Loaded()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%v (%s)", version, path)
}

// oneMeasurement is how long each all-reduce curve may take.
const oneMeasurement = 2 * time.Second
