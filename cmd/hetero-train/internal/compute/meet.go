package compute

import (
	"context"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
)

// Meet performs the rendezvous with the other ranks. It returns an error if the facts of the ranks differ.
func (k *Rank) Meet(ctx context.Context, facts []rendezvous.Fact) error {
	assigned := k.Process.Opts.Assignment
	k.Team = &process.Team{Place: assigned}
	options, err := k.meeting()
	if err != nil {
		return err
	}
	k.Team.Token = options.Token
	if options.Listener, err = supervisor.Listener(k.Process.Opts.Env.Environ); err != nil {
		return err
	}
	options.Facts, options.Status = facts, k.Team.Position
	options.Log.Info("waiting for the other ranks", "rank", assigned.Rank, "of", assigned.WorldSize, "meeting_at",
		assigned.Master())
	if k.Team.Group, err = rendezvous.Join(ctx, options); err != nil {
		return err
	}
	k.Process.Later(k.Team.Group.Close)
	if err := k.Team.Locate(ctx); err != nil {
		return err
	}
	if err := process.CheckFilesOf(k.Process.Cfg, k.Process.Opts, k.Team.Hosts()); err != nil {
		return err
	}
	if k.Device == nil { // the command computes nothing
		return nil
	}
	return k.refuseSharing(ctx)
}

// meeting returns the options of the rendezvous, except those that Meet adds.
func (k *Rank) meeting() (rendezvous.Options, error) {
	own, err := process.ReadCredentials(k.Process.Cfg.Parallel, k.Process.Opts.Env)
	assigned, p := k.Process.Opts.Assignment, k.Process.Cfg.Parallel
	addresses := assigned.Addresses()
	return rendezvous.Options{Rank: assigned.Rank, WorldSize: assigned.WorldSize, LocalRank: assigned.LocalRank,
		Address: addresses[0], Alternatives: addresses[1:], Generation: assigned.Start,
		Token: own.Token, Certificates: own.Certificates, Insecure: p.Insecure,
		Timeout:          session.Seconds(p.RendezvousTimeoutSeconds),
		HeartbeatTimeout: session.Seconds(p.TimeoutSeconds), Log: k.Process.Opts.LogOf(logs.ComponentCluster)}, err
}

// Refuse tells the ranks that wait for this rank why it does not join them. It does nothing on rank 0 and after Meet.
// It also does nothing if one supervisor has started all ranks, because the supervisor ends the others.
func (k *Rank) Refuse(ctx context.Context, cause error) {
	opts := k.Process.Opts
	_, supervised := opts.Env.Lookup(session.SupervisedVariable)
	if assigned := opts.Assignment; assigned.Rank == 0 || k.Team != nil ||
		supervised && assigned.LocalWorldSize == assigned.WorldSize {
		return
	}
	what := rendezvous.RefusedSettings
	if exit.Code(cause) == exit.Data {
		what = rendezvous.RefusedData
	}
	options, err := k.meeting()
	if err == nil {
		err = rendezvous.Refuse(ctx, options, what, cause)
	}
	if err != nil {
		opts.LogOf(logs.ComponentCluster).Debug("rank 0 did not receive the reason", "error", err)
	}
}
