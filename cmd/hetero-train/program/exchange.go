package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/collective/hosts"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/collective/staged"
)

// offer is what a rank brings to the choice of communicators.
type offer struct {
	// Shared are addresses in shared memory. Those of the first rank of a host are taken: for gradients and for statistics,
	// within the host and for what comes back to it from the others.
	Shared   [4]string `json:"shared"`
	NoShared string    `json:"no_shared"` // why this rank cannot share memory
	NoNCCL   string    `json:"no_nccl"`   // why it cannot use NCCL
}

// exchange is how the ranks reach each other: all of them choose alike.
type exchange struct {
	job    *Rank
	hosts  [][]int // ranks of each machine
	shared bool    // memory, within each machine
	offers []offer
	staged bool // the host cannot see the memory of this rank's device
	nccl   bool // what lies in the GPUs' memory goes from one to the other
}

// communicators joins all ranks twice: for gradients, and for what passes exchange.
func (j *Rank) communicators(ctx context.Context) (grads, stats collective.Communicator, err error) {
	x, err := j.agreeOnExchange(ctx)
	if err != nil {
		return nil, nil, err
	}
	if grads, err = x.open(ctx, "gradients", 0); err != nil {
		return nil, nil, err
	}
	stats, err = x.open(ctx, "statistics", 2)
	return grads, stats, err
}

// agreeOnExchange learns what every rank can do. Memory is shared only where all ranks can; so the network, which always can, is used alike.
func (j *Rank) agreeOnExchange(ctx context.Context) (*exchange, error) {
	t := j.team
	own := offer{}
	for i := range own.Shared {
		own.Shared[i] = shm.NewAddress()
	}
	if err := shm.Available(); err != nil {
		own.NoShared = err.Error()
	}
	var err error
	if own.NoNCCL, err = j.noNCCL(); err != nil {
		return nil, err
	}
	word, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	words, err := t.group.Gather(ctx, "communicators", word)
	if err != nil {
		return nil, err
	}
	x := &exchange{job: j, hosts: t.hosts(), shared: j.cfg.Parallel.SharedMemory != "off", offers: make([]offer, len(words))}
	if x.staged, err = staged.Needs(j.device); err != nil {
		return nil, err
	}
	for rank, text := range words {
		if err := json.Unmarshal(text, &x.offers[rank]); err != nil {
			return nil, fmt.Errorf("communicators, as rank %d tells: %w", rank, err)
		}
		if why := x.offers[rank].NoShared; why != "" && x.shared {
			x.shared = false
			j.opts.logOf(logs.ComponentCluster).Warn("the ranks use the network instead of shared memory", "because_of_rank", rank, "why", why)
		}
	}
	var noNCCL []string
	for _, o := range x.offers {
		noNCCL = append(noNCCL, o.NoNCCL)
	}
	if x.nccl, err = choosesNCCL(j.cfg.Parallel.Backend, j.cfg.Device.ShareGPU, noNCCL); err != nil {
		return nil, err
	}
	return x, nil
}

// hosts are the ranks of each machine.
func (t *team) hosts() [][]int {
	members := t.group.Members()
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Host
	}
	return hosts.ByHost(names)
}

// open joins all ranks; addresses from number at on are this group's.
func (x *exchange) open(ctx context.Context, name string, at int) (c collective.Communicator, err error) {
	limit := seconds(x.job.cfg.Parallel.TimeoutSeconds)
	place := x.job.team.place
	inOrder := slices.IsSorted(slices.Concat(x.hosts...)) // what gathers within hosts need
	switch {
	case x.shared && len(x.hosts) == 1:
		c, err = x.memory(ctx, place.Rank, at, limit)
	case x.shared && len(x.hosts) < place.WorldSize && inOrder:
		c, err = x.both(ctx, name, at, limit)
	default:
		c, err = x.network(ctx, x.job.team.group, name, place.Rank, place.WorldSize, limit, exit.LostRank)
	}
	if err != nil {
		return nil, err
	}
	if c, err = x.behindDevice(c); err != nil {
		return nil, err
	}
	if x.nccl {
		if c, err = x.overNCCL(ctx, c); err != nil {
			return nil, err
		}
	}
	x.job.later(c.Close)
	return c, nil
}

// both shares memory within each machine; the first ranks of the machines speak for them in the network.
func (x *exchange) both(ctx context.Context, name string, at int, limit time.Duration) (_ collective.Communicator, err error) {
	place := x.job.team.place
	host, number := hosts.HostOf(x.hosts, place.Rank)
	within, between, spread := hosts.Timeouts(limit)
	o := hosts.Options{Rank: place.Rank, Size: place.WorldSize, Hosts: x.hosts, RankOf: exit.LostRank}
	defer func() {
		for _, c := range []collective.Communicator{o.Within, o.Spread, o.Between} {
			if err != nil && c != nil {
				err = errors.Join(err, c.Close())
			}
		}
	}()
	if len(x.hosts[host]) > 1 {
		if o.Within, err = x.memory(ctx, number, at, within); err != nil {
			return nil, err
		}
		if o.Spread, err = x.memory(ctx, number, at+1, spread); err != nil {
			return nil, err
		}
	}
	if number == 0 {
		hostOf := func(err error) int {
			host, _ := hosts.HostOf(x.hosts, exit.LostRank(err))
			return host
		}
		if o.Between, err = x.network(ctx, x.job.team.group, name, host, len(x.hosts), between, hostOf); err != nil {
			return nil, err
		}
	}
	return hosts.New(o)
}

// memory joins the ranks of this machine, of which this is the number-th.
func (x *exchange) memory(ctx context.Context, number, at int, limit time.Duration) (collective.Communicator, error) {
	host, _ := hosts.HostOf(x.hosts, x.job.team.place.Rank)
	ranks := x.hosts[host]
	return inMemory(ctx, number, len(ranks), x.offers[ranks[0]].Shared[at], limit)
}

// inMemory joins ranks of one machine.
func inMemory(ctx context.Context, rank, size int, address string, limit time.Duration) (collective.Communicator, error) {
	c, err := shm.Connect(ctx, shm.Config{Rank: rank, Size: size, Address: address, Timeout: limit})
	if err != nil { // and no communicator that is a nil pointer
		return nil, err
	}
	return c, nil
}

// network joins ranks of several machines.
func (x *exchange) network(ctx context.Context, control gloo.Control, name string, rank, size int, limit time.Duration, rankOf func(error) int) (collective.Communicator, error) {
	own, err := x.job.team.ownAddress()
	if err != nil {
		return nil, err
	}
	c, err := gloo.Connect(ctx, gloo.Config{Rank: rank, Size: size, Control: control, RankOf: rankOf, Name: name, Host: own, Timeout: limit})
	if errors.Is(err, gloo.ErrUnavailable) {
		return nil, exit.With(exit.Usage, err)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}
