package program

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train"
)

// connect opens the communicators. A rank that is lost meanwhile ends it at once.
func (j *training) connect(ctx context.Context) error {
	t := j.team
	if err := j.wantNCCL(); err != nil || t == nil {
		return err
	}
	var err error
	if j.balancing, err = newBalancing(ctx, &j.Run); err != nil {
		return err
	}
	whole, cancel := context.WithTimeout(ctx, seconds(j.cfg.Parallel.RendezvousTimeoutSeconds))
	defer cancel()
	whole, broken := context.WithCancelCause(whole)
	ended := make(chan struct{})
	j.later(func() error { close(ended); return nil })
	go func() { // a rank that is gone may not be missed by a communicator for long
		select {
		case <-t.group.Broken():
			broken(t.group.Err())
			if p := t.running.Load(); p != nil {
				p.Abort(exit.LostPeer(t.group.Err()))
			}
		case <-ended:
		}
	}()
	grads, stats, err := j.communicators(whole)
	if lost := t.group.Err(); err != nil && lost != nil {
		err = lost // the reason for what the communicators say
	}
	if err != nil {
		return err
	}
	p, m := j.cfg.Parallel, j.cfg.Model
	t.peers = &train.Peers{Grads: grads, Stats: stats, SyncNorm: m.BatchNorm == "sync",
		CapBytes: int64(p.BucketCapMB * (1 << 20)), Sequential: !p.Overlap}
	if p.WireDType == "bf16" {
		t.peers.Wire = tensor.BF16
	}
	if len(j.cfg.Balance.FixedShares) > 0 { // ranks that are unequal on purpose may need unequal parts of a machine's memory
		if t.peers.Shares, err = divide(j.cfg, t.place.WorldSize); err != nil {
			return err
		}
		if t.leads() {
			j.balancing.sayBatchSizes(t.peers.Shares, "balance.fixed_shares")
		}
	} else {
		t.peers.Divide, t.peers.MemoryBytes = j.balancing.divide, j.memoryBytes()
	}
	t.running.Store(t.peers)
	if lost := t.group.Err(); lost != nil {
		return lost
	}
	watched, stop := context.WithCancel(ctx)
	j.later(func() error { stop(); return nil })
	go t.watch(watched, max(seconds(min(p.TimeoutSeconds/4, 10)), 100*time.Millisecond), j.opts.logOf(logs.ComponentCluster))
	j.sayTogether()
	return nil
}

// sayTogether tells, on rank 0, how the ranks train together.
func (j *training) sayTogether() {
	if !j.team.leads() {
		return
	}
	c, log := j.cfg, j.opts.logOf(logs.ComponentCluster)
	if c.Model.BatchNorm == "local" {
		log.Warn(`model.batch_norm = "local": each rank normalises by its own samples, so the result depends on how the batch is split`)
	}
	if c.Parallel.Insecure {
		log.Warn("parallel.insecure: whoever reaches the port of rank 0 can join or disturb the run")
	}
}

// ownAddress is this machine's as rank 0's machine sees it: that of the route to it. Nothing is sent.
func (t *team) ownAddress() (string, error) {
	conn, err := net.Dial("udp", t.place.Master())
	if err != nil {
		return "", exit.With(exit.Communication, fmt.Errorf("find the address of this machine: %w", err))
	}
	defer conn.Close()
	ip := conn.LocalAddr().(*net.UDPAddr).IP
	if ip.IsLoopback() && len(t.hosts()) > 1 {
		return "", exit.Usagef("%s: %s is this machine itself here (%v), where ranks of other machines cannot come: give rank 0's address in the network", t.place.MasterFrom, t.place.MasterAddr, ip)
	}
	return ip.String(), nil
}
