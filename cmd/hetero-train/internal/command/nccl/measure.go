package nccl

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exchange"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/cuda"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/hosts"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/profiler/measure"
)

// withNCCL calls work on every rank. It returns an error if there are no GPUs or no NCCL.
func withNCCL(ctx context.Context, a *cli.App, name string, assigned *cli.LauncherFlags,
	work func(context.Context, *exchange.Exchange) error) error {
	if _, err := a.Read(); err != nil { // first, so that invalid settings are reported without a GPU, too
		return err
	}
	if err := cuda.Available(); err != nil {
		return exit.Usagef("%s: there is no GPU to use: %w", name, err)
	}
	return compute.OnRanks(ctx, a, assigned, false, func(ctx context.Context, k *compute.Rank) error {
		k.Process.Cfg.Parallel.Backend = "nccl"
		if err := k.OpenDevice(ctx); err != nil {
			return err
		}
		if err := exchange.WantNCCL(k); err != nil {
			return err
		}
		if k.Process.Opts.Assignment.WorldSize < 2 {
			return exit.Usagef(
				"%s: got one rank, want at least 2 ranks with a GPU each (--nproc-per-node, or a launcher)", name)
		}
		if err := k.Meet(ctx, []rendezvous.Fact{{Name: "program", Value: version.Source()},
			{Name: "command", Value: name}}); err != nil {
			return err
		}
		x, err := exchange.Agree(ctx, k)
		if err != nil {
			return err
		}
		return work(ctx, x)
	})
}

// among opens an NCCL communicator for some of the ranks. All of these ranks must call among with the same name, which
// no other call may use.
func among(ctx context.Context, x *exchange.Exchange, name string, ranks []int) (collective.Communicator, error) {
	control, err := hostAmong(ctx, x, name, ranks)
	if err != nil {
		return nil, err
	}
	if control, err = x.BehindDevice(control); err != nil {
		return nil, err
	}
	return x.OverNCCL(ctx, control)
}

// hostAmong opens a communicator for some of the ranks, with buffers in host memory. For among, it is the control
// channel.
func hostAmong(ctx context.Context, x *exchange.Exchange, name string, ranks []int) (collective.Communicator, error) {
	t := x.Rank.Team
	own, limit := slices.Index(ranks, t.Place.Rank), session.OperationLimit(x.Rank.Process.Cfg.Parallel.TimeoutSeconds)
	if x.Shared && oneHost(x, ranks) {
		key := "nccl/" + name
		if own == 0 {
			if err := t.Group.Set(ctx, key, []byte(shm.NewAddress())); err != nil {
				return nil, err
			}
		}
		address, err := t.Group.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		return exchange.InMemory(ctx, own, len(ranks), string(address), limit)
	}
	return x.Network(ctx, apart{t.Group}, name, ranks, limit, func(err error) int {
		return slices.Index(ranks, exit.LostRank(err))
	})
}

// apart is the rendezvous for a communicator whose failure must not abort the process group.
type apart struct{ *rendezvous.Group }

// Abort does nothing: the other ranks notice the broken connections.
func (apart) Abort(error) {}

// oneHost reports whether the given ranks are on one machine.
func oneHost(x *exchange.Exchange, ranks []int) bool {
	first, _ := hosts.HostOf(x.Hosts, ranks[0])
	for _, rank := range ranks {
		if host, _ := hosts.HostOf(x.Hosts, rank); host != first {
			return false
		}
	}
	return true
}

// withVariables sets the environment variables that NCCL reads when a communicator is opened. It unsets variables whose
// value is empty.
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

// oneMeasurement is the time limit for the measurement of one all-reduce curve.
const oneMeasurement = 2 * time.Second

// curve measures the time of an all-reduce over ranks, for several sizes.
func curve(ctx context.Context, x *exchange.Exchange, name string, ranks []int) (list []measure.AllReduced, err error) {
	comm, err := among(ctx, x, name, ranks)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	return measure.AllReduce(ctx, x.Rank.Team.Group, comm, x.Rank.Device.Alloc, oneMeasurement, nil)
}
