package run

import (
	"context"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exchange"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/rebalance"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// connect opens the communicators, chooses the sizes (tune) and creates the balancer. The loss of a rank ends it
// immediately.
func (tr *training) connect(ctx context.Context) error {
	t := tr.rank.Team
	if err := exchange.WantNCCL(tr.run.Rank); err != nil {
		return err
	}
	if t == nil {
		var err error
		if tr.scores, err = rebalance.New(ctx, tr.run); err != nil {
			// a run of one rank records its compute score, although no balancer uses it
			return err
		}
		return tr.tune(ctx)
	}
	if err := tr.openPeers(ctx); err != nil {
		return err
	}
	if err := tr.tune(ctx); err != nil {
		return err
	}
	var err error
	if tr.balancing, err = rebalance.New(ctx, tr.run); err != nil {
		return err
	}
	tr.scores = tr.balancing
	if lost := t.Group.Err(); lost != nil {
		return lost
	}
	watched, stop := context.WithCancel(ctx)
	tr.process.Later(func() error { stop(); return nil })
	go t.Watch(watched, max(session.Seconds(min(tr.process.Cfg.Parallel.TimeoutSeconds/4, 10)), 100*time.Millisecond),
		tr.process.Opts.LogOf(logs.ComponentCluster))
	tr.logTogether()
	return nil
}

// openPeers opens the communicators of several ranks.
func (tr *training) openPeers(ctx context.Context) error {
	t := tr.rank.Team
	whole, cancel := context.WithTimeout(ctx, session.Seconds(tr.process.Cfg.Parallel.RendezvousTimeoutSeconds))
	defer cancel()
	whole, broken := context.WithCancelCause(whole)
	ended := make(chan struct{})
	tr.process.Later(func() error { close(ended); return nil })
	go func() { // a communicator may detect a lost rank late; the group detects it early
		select {
		case <-t.Group.Broken():
			broken(t.Group.Err())
			if g := t.Running.Load(); g != nil {
				g.Abort(exit.LostPeer(t.Group.Err()))
			}
		case <-ended:
		}
	}()
	grads, stats, err := exchange.Connect(whole, tr.run.Rank)
	if lost := t.Group.Err(); err != nil && lost != nil {
		err = lost // the lost rank has caused the error of the communicators
	}
	if err != nil {
		return err
	}
	t.Communicators = &gradsync.Group{Grads: grads, Stats: stats}
	t.Running.Store(t.Communicators)
	return nil
}

// replicaOptions returns the options of this rank's replica, with the first shares.
func (tr *training) replicaOptions() (replica.Options, error) {
	o, err := tr.run.ReplicaOptions()
	if err != nil {
		return o, err
	}
	o.Host = tr.run.HostMemory()
	if o.Peers == nil {
		return o, nil
	}
	if tr.bucketBytes != 0 {
		o.Peers.CapBytes = tr.bucketBytes
	}
	if len(tr.process.Cfg.Balance.FixedShares) == 0 {
		o.Peers.Divide, o.Peers.MemoryBytes = tr.balancing.Divide, tr.rank.MemoryBytes()
		o.Peers.Preview = tr.balancing.Preview
		return o, nil
	}
	// no MemoryBytes: ranks with unequal fixed shares may need unequal parts of a machine's memory
	if o.Peers.Shares, err = parts.Divide(tr.process.Cfg, tr.rank.Team.Place.WorldSize); err == nil &&
		tr.rank.Team.Leads() {
		tr.balancing.LogBatchSizes(o.Peers.Shares, "balance.fixed_shares")
	}
	return o, err
}

// logTogether logs, on rank 0, warnings about local batch normalization and an insecure process group.
func (tr *training) logTogether() {
	if !tr.rank.Team.Leads() {
		return
	}
	c, log := tr.process.Cfg, tr.process.Opts.LogOf(logs.ComponentCluster)
	if c.Model.BatchNorm == "local" {
		log.Warn(`model.batch_norm = "local": each rank normalises with its own samples only, so the result depends on the shares`)
	}
	if c.Parallel.Insecure {
		log.Warn("parallel.insecure: every program that can connect to the port of rank 0 can join or disturb the run")
	}
}
