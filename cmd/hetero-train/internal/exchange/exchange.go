package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/collective/hosts"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/collective/staged"
	"github.com/hetero-train/hetero-train/nccl"
)

// abilities is the message with which a rank states which communicators it supports.
type abilities struct {
	// Shared contains addresses of shared memory. There are two for gradients and two for statistics: one within the
	// host, and one for results from other hosts. The ranks of a host use the addresses of its first rank.
	Shared   [4]string `json:"shared"`
	NoShared string    `json:"no_shared"` // reason why this rank cannot share memory, or ""
	NoNCCL   string    `json:"no_nccl"`   // reason why this rank cannot use NCCL, or ""
}

// Exchange is the choice of communicators. It is the same on all ranks.
type Exchange struct {
	Rank    *compute.Rank
	Hosts   [][]int // ranks by machine
	Shared  bool    // true if the ranks of a machine use shared memory
	reports []abilities
	staged  bool // true if the host cannot access the memory of this rank's device
	nccl    bool // true if NCCL transfers the memory of GPUs
	// shapes contains the gloo.Shape for small operations over the network, by group of ranks. The first communicator
	// of a group measures it. The key is the list of ranks, because other groups have other links and another number of
	// ranks.
	shapes map[string]*gloo.Shape
}

// Connect opens two communicators of all ranks: grads for gradients, and stats for statistics within forward and
// backward passes.
func Connect(ctx context.Context, k *compute.Rank) (grads, stats collective.Communicator, err error) {
	x, err := Agree(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	if grads, err = x.Open(ctx, "gradients", 0); err != nil {
		return nil, nil, err
	}
	stats, err = x.Open(ctx, "statistics", 2)
	return grads, stats, err
}

// Agree gathers the abilities of all ranks and returns the choice. The ranks of a machine use shared memory only if all
// ranks support it, otherwise the network.
func Agree(ctx context.Context, k *compute.Rank) (*Exchange, error) {
	t := k.Team
	own := abilities{}
	for i := range own.Shared {
		own.Shared[i] = shm.NewAddress()
	}
	if err := shm.Available(); err != nil {
		own.NoShared = err.Error()
	}
	var err error
	if own.NoNCCL, err = noNCCL(k); err != nil {
		return nil, err
	}
	reports, err := process.GatherAll(ctx, t, "communicators", "communicators of rank", own)
	if err != nil {
		return nil, err
	}
	x := &Exchange{Rank: k, Hosts: t.Hosts(), Shared: k.Process.Cfg.Parallel.SharedMemory != "off", reports: reports}
	if x.staged, err = staged.Needs(k.Device); err != nil {
		return nil, err
	}
	for rank, report := range reports {
		if why := report.NoShared; why != "" && x.Shared {
			x.Shared = false
			k.Process.Opts.LogOf(logs.ComponentCluster).Warn("shared memory cannot be used; the ranks use the network",
				"because_of_rank", rank, "why", why)
		}
	}
	var noNCCL []string
	for _, o := range x.reports {
		noNCCL = append(noNCCL, o.NoNCCL)
	}
	if x.nccl, err = choosesNCCL(k.Process.Cfg.Parallel.Backend, k.Process.Cfg.Device.ShareGPU, noNCCL); err != nil {
		return nil, err
	}
	return x, nil
}

// Open opens a communicator of all ranks. It uses the addresses in Shared from the index at.
func (x *Exchange) Open(ctx context.Context, name string, at int) (c collective.Communicator, err error) {
	limit := session.OperationLimit(x.Rank.Process.Cfg.Parallel.TimeoutSeconds)
	assigned := x.Rank.Team.Place
	inOrder := slices.IsSorted(slices.Concat(x.Hosts...)) // a gather within hosts requires ascending ranks
	switch {
	case x.Shared && len(x.Hosts) == 1:
		c, err = x.memory(ctx, assigned.Rank, at, limit)
	case x.Shared && len(x.Hosts) < assigned.WorldSize && inOrder:
		c, err = x.both(ctx, name, at, limit)
	default:
		everyone := make([]int, assigned.WorldSize)
		for rank := range everyone {
			everyone[rank] = rank
		}
		c, err = x.Network(ctx, x.Rank.Team.Group, name, everyone, limit, exit.LostRank)
	}
	if err != nil {
		return nil, err
	}
	if c, err = x.BehindDevice(c); err != nil {
		return nil, err
	}
	if x.nccl {
		if c, err = x.OverNCCL(ctx, c); err != nil {
			return nil, err
		}
	}
	x.Rank.Process.Later(c.Close)
	return c, nil
}

// both opens a communicator that uses shared memory within each machine, and the network between the first ranks of the
// machines.
func (x *Exchange) both(ctx context.Context, name string, at int, limit time.Duration) (_ collective.Communicator,
	err error) {
	assigned := x.Rank.Team.Place
	host, number := hosts.HostOf(x.Hosts, assigned.Rank)
	within, between, spread := hosts.Timeouts(limit)
	o := hosts.Options{Rank: assigned.Rank, Size: assigned.WorldSize, Hosts: x.Hosts, RankOf: exit.LostRank}
	defer func() {
		for _, c := range []collective.Communicator{o.Within, o.Spread, o.Between} {
			if err != nil && c != nil {
				err = errors.Join(err, c.Close())
			}
		}
	}()
	if len(x.Hosts[host]) > 1 {
		if o.Within, err = x.memory(ctx, number, at, within); err != nil {
			return nil, err
		}
		if o.Spread, err = x.memory(ctx, number, at+1, spread); err != nil {
			return nil, err
		}
	}
	if number == 0 {
		hostOf := func(err error) int {
			host, _ := hosts.HostOf(x.Hosts, exit.LostRank(err))
			return host
		}
		firsts := make([]int, len(x.Hosts))
		for i, ranks := range x.Hosts {
			firsts[i] = ranks[0]
		}
		if o.Between, err = x.Network(ctx, x.Rank.Team.Group, name, firsts, between, hostOf); err != nil {
			return nil, err
		}
	}
	return hosts.New(o)
}

// memory opens a communicator of the ranks of this machine. The parameter number is the local rank.
func (x *Exchange) memory(ctx context.Context, number, at int, limit time.Duration) (collective.Communicator, error) {
	host, _ := hosts.HostOf(x.Hosts, x.Rank.Team.Place.Rank)
	ranks := x.Hosts[host]
	return InMemory(ctx, number, len(ranks), x.reports[ranks[0]].Shared[at], limit)
}

// InMemory opens a communicator of ranks of one machine, which uses shared memory.
func InMemory(ctx context.Context, rank, size int, address string, limit time.Duration) (collective.Communicator,
	error) {
	c, err := shm.Connect(ctx, shm.Config{Rank: rank, Size: size, Address: address, Timeout: limit})
	if err != nil { // return no typed nil pointer in the interface
		return nil, err
	}
	return c, nil
}

// Network opens a communicator of some of the ranks over the network. This rank must be one of them. The parameter
// rankOf maps an error of control to an index in ranks: the rank that the error concerns.
func (x *Exchange) Network(ctx context.Context, control gloo.Control, name string, ranks []int, limit time.Duration,
	rankOf func(error) int) (collective.Communicator, error) {
	rank, size, group := slices.Index(ranks, x.Rank.Team.Place.Rank), len(ranks), fmt.Sprint(ranks)
	c, err := gloo.Connect(ctx, gloo.Config{Rank: rank, Size: size, Control: control, RankOf: rankOf, Name: name,
		Host: x.Rank.Team.OwnAddress(), Ports: x.Rank.Ports(),
		Secret: []byte(x.Rank.Team.Token), Encrypt: x.Rank.Process.Cfg.Parallel.Encrypt, Timeout: limit,
		Shape: x.shapes[group]})
	if errors.Is(err, gloo.ErrUnavailable) {
		return nil, exit.With(exit.Usage, err)
	}
	if err != nil {
		return nil, err
	}
	if x.shapes[group] == nil && size > 1 {
		shape := c.Shape()
		if x.shapes == nil {
			x.shapes = map[string]*gloo.Shape{}
		}
		x.shapes[group] = &shape
		if rank == 0 {
			x.Rank.Process.Opts.LogOf(logs.ComponentCluster).Debug("small operations over the network", "shape", shape,
				"ranks", size)
		}
	}
	return c, nil
}

// BehindDevice returns a communicator for the memory of this rank's device. It copies through the host and uses c, a
// communicator for host memory. If the host can access the memory of the device, it returns c itself.
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

// OverNCCL returns a communicator that transfers with NCCL. It coordinates the ranks through the communicator control,
// which it owns.
func (x *Exchange) OverNCCL(ctx context.Context, control collective.Communicator) (collective.Communicator, error) {
	k := x.Rank
	host := k.Team.Group.Members()[k.Process.Opts.Assignment.Rank].Host
	c, err := nccl.Connect(ctx, nccl.Config{Control: control, Device: k.Device,
		Timeout: session.OperationLimit(k.Process.Cfg.Parallel.TimeoutSeconds),
		MinCTAs: k.Process.Cfg.NCCL.MinCTAs, MaxCTAs: k.Process.Cfg.NCCL.MaxCTAs,
		ShareGPU: k.Process.Cfg.Device.ShareGPU, Host: host})
	if errors.Is(err, nccl.ErrUnusable) {
		return nil, exit.With(exit.Usage, err)
	}
	if err != nil { // return no typed nil pointer in the interface
		return nil, err
	}
	return c, nil
}
