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

// CompareSteps is how often ranks compare hashes of their parameters, in steps: a pass over the weights each time.
const CompareSteps = 100

// findPlace tells which rank of how many this process is, or that it starts those of its machine.
func findPlace(cfg *config.Config, flags cli.PlaceFlags, overrides []config.Override, environ []string) (discovery.Place, error) {
	env := session.Environment{Environ: environ}
	if _, set := env.Lookup(session.SupervisedVariable); set { // its flags are the supervisor's, which has told it everything else
		place, err := discovery.Find(discovery.Options{}, environ)
		if err == nil && place.Launch {
			err = fmt.Errorf("environment variable %s: this process is a rank, but %v", session.SupervisedVariable, place)
		}
		return place, exit.With(exit.Usage, err)
	}
	p := cfg.Parallel
	o := discovery.Options{Devices: devices.LocalDevices(cfg, env.Lookup), Nodes: discovery.Value{Text: flags.Nodes, From: "--nnodes"}, NodeRank: discovery.Value{Text: flags.NodeRank, From: "--node-rank"}}
	if p.Ranks > 0 {
		o.RanksPerNode = discovery.Value{Text: strconv.Itoa(p.Ranks), From: "parallel.ranks"}
	}
	// A file that lists every key holds the defaults, too: they say nothing there, since a launcher knows better. On the command line they count.
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

// Team is this process among the ranks of a run.
type Team struct {
	Place discovery.Place
	Group *rendezvous.Group
	Peers *train.Peers
	Start teamStart
	// finished: there is nothing left to do
	Finished bool

	Running atomic.Pointer[train.Peers] // peers, for other goroutines
}

// teamStart is what rank 0 tells the others before the first step.
type teamStart struct {
	LogDir string `json:"log_dir"` // absolute, on rank 0's machine
	// Checkpoints is the folder of the run's checkpoints, likewise.
	Checkpoints string `json:"checkpoints"`
}

// Leads reports whether this process owns the run's folder.
func (t *Team) Leads() bool { return t == nil || t.Place.Rank == 0 }

// Joined is the communicators and shares, nil for a run of one rank.
func (t *Team) Joined() *train.Peers {
	if t == nil {
		return nil
	}
	return t.Peers
}

// verdictTime is how long a rank that lost another one waits until rank 0 has named that rank. A longer time delays the end where only a connection
// broke; a shorter one lets other ranks blame the rank that noticed the loss.
const verdictTime = 2 * time.Second

// Abort tells the other ranks why this one gives up.
func (t *Team) Abort(cause error) {
	if t == nil || t.Group == nil {
		return
	}
	t.Peers.Abort(cause)
	if rank := exit.PeerOf(cause); rank >= 0 && rank != t.Place.Rank && errors.Is(cause, collective.ErrDied) {
		select { // rank 0 sees the end of that process too, and names it; this rank would end the group under its own number
		case <-t.Group.Broken():
		case <-time.After(verdictTime):
		}
	}
	t.Group.Abort(cause)
	t.Peers.Drain()
}

const mostTokenBytes = 64 << 10

// ReadToken is the secret that ranks show each other, "" where there is none.
func ReadToken(file string, env session.Environment) (rendezvous.Token, error) {
	if file == "" {
		text, _ := env.Lookup("HETERO_TOKEN")
		return rendezvous.Token(strings.TrimSpace(text)), nil
	}
	f, info, err := regular.Open(file)
	if err != nil {
		return "", exit.Usagef("parallel.token_file: %w", err)
	}
	defer f.Close() // is only read
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

// Ready waits until all ranks are about to train. What rank 0 does alone before, loading a checkpoint, has no time-out.
func (t *Team) Ready(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.Group.Barrier(ctx, "ready")
}

// Tell gives all ranks rank 0's value, which set makes there.
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

// OwnAddress is this machine's as rank 0's machine sees it: that of the route to it. Nothing is sent.
func (t *Team) OwnAddress() (string, error) {
	conn, err := net.Dial("udp", t.Place.Master())
	if err != nil {
		return "", exit.With(exit.Communication, fmt.Errorf("find the address of this machine: %w", err))
	}
	defer conn.Close()
	ip := conn.LocalAddr().(*net.UDPAddr).IP
	if ip.IsLoopback() && len(t.Hosts()) > 1 {
		return "", exit.Usagef("%s: %s is the loopback address of this machine (%v), which other machines cannot reach: set rank 0's address in the network", t.Place.MasterFrom, t.Place.MasterAddr, ip)
	}
	return ip.String(), nil
}

// Hosts are the ranks of each machine.
func (t *Team) Hosts() [][]int {
	members := t.Group.Members()
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Host
	}
	return hosts.ByHost(names)
}

// Speaks reports whether this rank shows the run on its terminal: rank 0, the first rank of every other machine, and a rank that has a terminal of
// its own.
func (t *Team) Speaks() bool {
	return t.Leads() || t.Place.OwnOutput || t.Group.Members()[t.Place.Rank].LocalRank == 0
}
