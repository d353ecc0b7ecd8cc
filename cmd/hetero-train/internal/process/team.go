package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
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
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/engine/train"
)

// CompareSteps is the number of steps between two comparisons of the ranks' parameter hashes. Each comparison reads all
// weights once.
const CompareSteps = 100

// findPlace determines the rank and world size of this process, or that it starts the ranks of its machine.
func findPlace(cfg *config.Config, flags cli.PlaceFlags, overrides []config.Override, environ []string) (discovery.Place, error) {
	env := session.Environment{Environ: environ}
	// Its flags are those of the supervisor, which sets everything else in the environment.
	if _, set := env.Lookup(session.SupervisedVariable); set {
		place, err := discovery.Find(discovery.Options{}, environ)
		if err == nil && place.Launch {
			err = fmt.Errorf("environment variable %s, of the supervisor of this rank: %v", session.SupervisedVariable, place)
		}
		return place, exit.With(exit.Usage, err)
	}
	p := cfg.Parallel
	o := discovery.Options{Devices: devices.LocalDevices(cfg, env.Lookup), Nodes: discovery.Value{Text: flags.Nodes, From: "--nnodes"}, NodeRank: discovery.Value{Text: flags.NodeRank, From: "--node-rank"}}
	if p.Ranks > 0 {
		o.RanksPerNode = discovery.Value{Text: strconv.Itoa(p.Ranks), From: "parallel.ranks"}
	}
	// A file that lists every key also contains the defaults. A launcher overrides defaults from a file, but not from
	// the command line.
	usual := parts.Defaults().Parallel
	if p.MasterAddr != usual.MasterAddr || overridden(overrides, "parallel.master_addr") {
		o.MasterAddr = discovery.Value{Text: p.MasterAddr, From: "parallel.master_addr"}
	}
	if p.MasterPort != usual.MasterPort || overridden(overrides, "parallel.master_port") {
		o.MasterPort = discovery.Value{Text: strconv.Itoa(p.MasterPort), From: "parallel.master_port"}
	}
	place, err := discovery.Find(o, environ)
	return place, exit.With(exit.Usage, err)
}

// overridden reports whether the command line sets a key.
func overridden(overrides []config.Override, key string) bool {
	return slices.ContainsFunc(overrides, func(o config.Override) bool { return o.Key == key })
}

// Team is the membership of this process in the ranks of a run.
type Team struct {
	Place discovery.Place
	Group *rendezvous.Group
	Peers *train.Peers
	Start teamStart
	// finished: the run is complete
	Finished bool

	Running atomic.Pointer[train.Peers] // peers, for other goroutines
}

// teamStart is the message of rank 0 to the other ranks before the first step.
type teamStart struct {
	LogDir string `json:"log_dir"` // absolute, on rank 0's machine
	// Checkpoints is the folder of the run's checkpoints, absolute, on rank 0's machine.
	Checkpoints string `json:"checkpoints"`
}

// Leads reports whether this process owns the run's folder.
func (t *Team) Leads() bool { return t == nil || t.Place.Rank == 0 }

// Joined returns the communicators and shares, nil for a single-rank run.
func (t *Team) Joined() *train.Peers {
	if t == nil {
		return nil
	}
	return t.Peers
}

// verdictTime is how long a rank that notices a lost connection waits until rank 0 has named the lost rank. A longer
// time delays the end if only a connection broke. With a shorter time, other ranks may blame the rank that noticed the
// loss.
const verdictTime = 2 * time.Second

// Abort sends the reason for the end of this rank to the other ranks.
func (t *Team) Abort(cause error) {
	if t == nil || t.Group == nil {
		return
	}
	t.Peers.Abort(cause)
	if rank := exit.PeerOf(cause); rank >= 0 && rank != t.Place.Rank && errors.Is(cause, collective.ErrDied) {
		// Rank 0 notices the end of the other process too, and names it; without the wait, this rank would end the
		// group under its own number.
		select {
		case <-t.Group.Broken():
		case <-time.After(verdictTime):
		}
	}
	t.Group.Abort(cause)
	t.Peers.Drain()
}

const mostTokenBytes = 64 << 10

// ReadToken returns the shared secret of the ranks, "" if there is none.
func ReadToken(file string, env session.Environment) (rendezvous.Token, error) {
	if file == "" {
		text, _ := env.Lookup("HETERO_TOKEN")
		return rendezvous.Token(strings.TrimSpace(text)), nil
	}
	f, info, err := regular.Open(file)
	if err != nil {
		return "", exit.Usagef("parallel.token_file: %w", err)
	}
	defer f.Close() // opened for reading only
	if info.Mode().Perm()&0o077 != 0 {
		return "", exit.Usagef("parallel.token_file: other users can read %s (mode %04o, want 0600)", file, info.Mode().Perm())
	}
	if info.Size() > mostTokenBytes {
		return "", exit.Usagef("parallel.token_file: %s: got %d bytes, want at most %d", file, info.Size(), mostTokenBytes)
	}
	text, err := io.ReadAll(io.LimitReader(f, mostTokenBytes))
	if err != nil {
		return "", exit.Usagef("parallel.token_file: %w", err)
	}
	return rendezvous.Token(strings.TrimSpace(string(text))), nil
}

// Ready waits until all ranks are ready to train. Before that, rank 0 works alone, for example loads a checkpoint,
// without a time-out.
func (t *Team) Ready(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.Group.Barrier(ctx, "ready")
}

// Tell sends rank 0's value, which set writes, to all ranks.
func (t *Team) Tell(ctx context.Context, what string, value any, set func() error) error {
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
	words, err := t.Group.Gather(ctx, what, word)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(words[0], value); err != nil {
		return fmt.Errorf("%s of rank 0: %w", what, err)
	}
	return nil
}

// OwnAddress returns this machine's address as rank 0's machine sees it: the local address of the route to rank 0. It
// sends nothing.
func (t *Team) OwnAddress() (string, error) {
	conn, err := net.Dial("udp", t.Place.Master())
	if err != nil {
		return "", exit.With(exit.Communication, fmt.Errorf("find the address of this machine: %w", err))
	}
	defer conn.Close()
	ip := conn.LocalAddr().(*net.UDPAddr).IP
	if ip.IsLoopback() && len(t.Hosts()) > 1 {
		return "", exit.Usagef("%s: other machines cannot reach %s, a loopback address of this machine (%v): set the network address of rank 0", t.Place.MasterFrom, t.Place.MasterAddr, ip)
	}
	return ip.String(), nil
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

// Speaks reports whether this rank prints the run on its terminal: rank 0, the first rank of every other machine, and a
// rank with its own terminal.
func (t *Team) Speaks() bool {
	return t.Leads() || t.Place.OwnOutput || t.Group.Members()[t.Place.Rank].LocalRank == 0
}
