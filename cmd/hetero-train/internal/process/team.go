package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/hosts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/gradsync"
)

// Comparisons of the replicas between two saves. CompareSteps is the number of steps between comparisons. A smaller
// number finds a difference earlier, and leaves fewer steps uncompared when a rank is lost. Each comparison reads the
// state that a checkpoint contains once. CompareShare is the largest fraction of the time that these comparisons may
// take.
const (
	CompareSteps = 100
	CompareShare = 0.005
)

// findAssignment determines the rank of this process and the world size. It may instead find that this process must
// start the ranks of its machine.
func findAssignment(cfg *config.Config, flags cli.LauncherFlags, overrides []config.Override, environ []string) (
	discovery.Assignment, error) {
	env := session.Environment{Environ: environ}
	// A supervised rank has the same flags as its supervisor. They do not apply to the rank, because the supervisor
	// passes the rank's values in the environment.
	if _, set := env.Lookup(session.SupervisedVariable); set {
		assigned, err := discovery.Find(discovery.Options{}, environ)
		if err == nil && assigned.Launch {
			err = fmt.Errorf("environment variable %s, of the supervisor of this rank: %v", session.SupervisedVariable,
				assigned)
		}
		return assigned, exit.With(exit.Usage, err)
	}
	resources, unread := sageMakerHosts(env)
	p := cfg.Parallel
	o := discovery.Options{Devices: devices.LocalDevices(cfg, env.Lookup), Resources: resources,
		ResourcesFault: unread, Shell: discovery.ShellEnvironment()}
	o.Nodes, o.NodeRank = discovery.Value{Text: flags.Nodes, From: "--nnodes"}, discovery.Value{
		Text: flags.NodeRank, From: "--node-rank"}
	if p.Ranks > 0 {
		o.RanksPerNode = discovery.Value{Text: strconv.Itoa(p.Ranks), From: "parallel.ranks"}
	}
	// A configuration file may contain default values. A launcher's value has priority over a default value in a file,
	// but not over one on the command line.
	usual := parts.Defaults().Parallel
	if p.MasterAddr != usual.MasterAddr || overridden(overrides, "parallel.master_addr") {
		o.MasterAddr = discovery.Value{Text: p.MasterAddr, From: "parallel.master_addr"}
	}
	if p.MasterPort != usual.MasterPort || overridden(overrides, "parallel.master_port") {
		o.MasterPort = discovery.Value{Text: strconv.Itoa(p.MasterPort), From: "parallel.master_port"}
	}
	assigned, err := discovery.Find(o, environ)
	return assigned, exit.With(exit.Usage, err)
}

// overridden reports whether the command line sets a key.
func overridden(overrides []config.Override, key string) bool {
	return slices.ContainsFunc(overrides, func(o config.Override) bool { return o.Key == key })
}

// Team is the membership of this process in the process group of a run.
type Team struct {
	Place discovery.Assignment
	Group *rendezvous.Group
	Token rendezvous.Token // shared secret of the ranks; "": none
	// Communicators connect this rank to all ranks; nil before openPeers has connected them.
	Communicators *gradsync.Group
	// Exchange sends a value of this rank to all ranks and returns the values of all ranks, by rank. It replaces Group
	// if another program connects the ranks (package bridge).
	Exchange func(ctx context.Context, what string, own []byte) ([][]byte, error)
	Start    teamStart
	// Resolver resolves the name of rank 0's machine; nil: the resolver of the system.
	Resolver *net.Resolver
	Finished teamFinished

	address string                         // address of this machine; set by Locate
	Running atomic.Pointer[gradsync.Group] // same as Communicators, for other goroutines
}

// teamFinished is the message that rank 0 sends after it has opened the run.
type teamFinished struct {
	Run bool `json:"finished"` // the run is complete
	// Fault states why the checkpoints of a complete run are lost or unreadable; "": they are readable. Code is the
	// exit code for this fault.
	Fault string `json:"fault,omitempty"`
	Code  int    `json:"exit_code,omitempty"`
}

// Err returns the fault of the complete run as an error of rank 0, or nil.
func (f teamFinished) Err() error {
	if f.Fault == "" {
		return nil
	}
	return exit.With(f.Code, fmt.Errorf("rank 0: %s", f.Fault))
}

// teamStart is the message that rank 0 sends to the other ranks before the first step.
type teamStart struct {
	LogDir string `json:"log_dir"` // absolute path of the folder of log files on rank 0's machine
	// Checkpoints is the absolute path of the folder of checkpoints on rank 0's machine.
	Checkpoints string `json:"checkpoints"`
}

// Leads reports whether this process owns the folder of the run.
func (t *Team) Leads() bool { return t == nil || t.Place.Rank == 0 }

// Joined returns the communicators. It returns nil for a run of one rank.
func (t *Team) Joined() *gradsync.Group {
	if t == nil {
		return nil
	}
	return t.Communicators
}

// verdictTime is the longest time for which a rank that notices a lost connection waits until rank 0 names the lost
// rank. With a longer time, a run ends later if only a connection broke. With a shorter time, other ranks may blame the
// rank that noticed the loss.
const verdictTime = 2 * time.Second

// Abort ends the process group and sends the reason why this rank ends to the other ranks.
func (t *Team) Abort(cause error) {
	if t == nil || t.Group == nil {
		return
	}
	t.Communicators.Abort(cause)
	if rank := exit.PeerOf(cause); rank >= 0 && rank != t.Place.Rank && errors.Is(cause, collective.ErrDied) {
		// Rank 0 also notices the end of the lost process, and names its rank. Without this wait, this rank would end
		// the group first, and would appear as the cause.
		select {
		case <-t.Group.Broken():
		case <-time.After(verdictTime):
		}
	}
	t.Group.Abort(cause)
	t.Communicators.Drain()
}

// Ready waits until all ranks are ready to train. It has no time-out, because rank 0 may need much longer than the
// others, for example to load a checkpoint.
func (t *Team) Ready(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.Group.Barrier(ctx, "ready")
}

// Gather exchanges one value of each rank and returns all values, by rank. In a run of one rank it returns only value.
func (t *Team) Gather(ctx context.Context, what string, value []byte) ([][]byte, error) {
	if t == nil {
		return [][]byte{value}, nil
	}
	if t.Exchange != nil {
		return t.Exchange(ctx, what, value)
	}
	return t.Group.Gather(ctx, what, value)
}

// GatherAll exchanges one value of each rank as JSON, and returns all values, by rank. In a run of one rank it returns
// only own. The error about a value that is not valid begins with valueOf and the number of its rank.
func GatherAll[T any](ctx context.Context, t *Team, what, valueOf string, own T) ([]T, error) {
	if t == nil {
		return []T{own}, nil
	}
	word, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	words, err := t.Gather(ctx, what, word)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(words))
	for rank, w := range words {
		if err := json.Unmarshal(w, &all[rank]); err != nil {
			return nil, fmt.Errorf("%s %d: %w", valueOf, rank, err)
		}
	}
	return all, nil
}

// Send sends a value of rank 0 to all ranks. On rank 0, and in a run of one rank, it first calls set, which computes
// the value.
func (t *Team) Send(ctx context.Context, what string, value any, set func() error) error {
	if t == nil {
		return set()
	}
	var word []byte
	if t.Leads() {
		if err := set(); err != nil {
			return err
		}
		var err error
		if word, err = json.Marshal(value); err != nil {
			return err
		}
	}
	words, err := t.Gather(ctx, what, word)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(words[0], value); err != nil {
		return fmt.Errorf("%s of rank 0: %w", what, err)
	}
	return nil
}

// Hosts returns the ranks of each machine.
func (t *Team) Hosts() [][]int {
	members := t.Group.Members()
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Host
	}
	return hosts.ByHost(names)
}

// Speaks reports whether this rank prints the progress of the run. These are rank 0, the first rank of every other
// machine, and every rank whose output no launcher combines with that of other ranks.
func (t *Team) Speaks() bool {
	return t.Leads() || t.Place.OwnOutput || t.Group.Members()[t.Place.Rank].LocalRank == 0
}
