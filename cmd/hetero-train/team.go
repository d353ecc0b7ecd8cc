package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// compareSteps is how often ranks compare hashes of their parameters, in steps: a pass over the weights each time.
const compareSteps = 100

// findPlace tells which rank of how many this process is, or that it starts those of its machine.
func findPlace(cfg *config.Config, environ []string) (discovery.Place, error) {
	p := cfg.Parallel
	o := discovery.Options{Devices: 1}
	if p.Ranks > 0 {
		o.RanksPerNode = discovery.Value{Text: strconv.Itoa(p.Ranks), From: "parallel.ranks"}
	}
	// The defaults say nothing: a launcher knows better.
	if usual := defaults().Parallel; p.MasterAddr != usual.MasterAddr || p.MasterPort != usual.MasterPort {
		o.MasterAddr = discovery.Value{Text: p.MasterAddr, From: "parallel.master_addr"}
		o.MasterPort = discovery.Value{Text: strconv.Itoa(p.MasterPort), From: "parallel.master_port"}
	}
	place, err := discovery.Find(o, environ)
	return place, withCode(exitUsage, err)
}

// defaults is the configuration of an empty file.
func defaults() *config.Config {
	cfg, err := config.Load("", catalog)
	if err != nil {
		panic(err) // the defaults are valid: a test says so
	}
	return cfg
}

// team is this process among the ranks of a run.
type team struct {
	place discovery.Place
	group *rendezvous.Group
	peers *train.Peers
	start teamStart

	running atomic.Pointer[train.Peers] // peers, for other goroutines
}

// teamStart is what rank 0 tells the others before the first step.
type teamStart struct {
	Finished bool   `json:"finished"` // there is nothing left to do
	LogDir   string `json:"log_dir"`  // absolute, on rank 0's machine
}

// leads reports whether this process owns the run's folder.
func (t *team) leads() bool { return t == nil || t.place.Rank == 0 }

// joined is the communicators and shares, nil for a run of one rank.
func (t *team) joined() *train.Peers {
	if t == nil {
		return nil
	}
	return t.peers
}

// abort tells the other ranks why this one gives up.
func (t *team) abort(cause error) {
	if t == nil || t.group == nil {
		return
	}
	t.peers.Abort(cause)
	t.group.Abort(cause)
}

// usableCPUs is how many this process may use, by affinity and quota, at least 1.
func usableCPUs() int {
	n := runtime.NumCPU()
	if host, err := system.Detect(); err == nil && host.CPU.Quota > 0 {
		n = min(n, int(math.Ceil(host.CPU.Quota)))
	}
	return n
}

// joinTeam meets the other ranks. Settings, data and program must be the same on all of them.
func (j *job) joinTeam(ctx context.Context) (err error) {
	place := j.opts.place
	if place.WorldSize <= 1 {
		return nil
	}
	j.team = &team{place: place}
	token, err := readToken(j.cfg.Parallel.TokenFile, j.opts.env)
	if err != nil {
		return err
	}
	listener, err := supervisor.Listener(j.opts.env.environ)
	if err != nil {
		return err
	}
	p := j.cfg.Parallel
	j.opts.log.Info("waiting for the other ranks", "rank", place.Rank, "of", place.WorldSize, "meeting_at", place.Master())
	j.team.group, err = rendezvous.Join(ctx, rendezvous.Options{Rank: place.Rank, WorldSize: place.WorldSize, LocalRank: place.LocalRank,
		Address: place.Master(), Facts: j.facts(), Token: token, Insecure: p.Insecure, Timeout: seconds(p.RendezvousTimeoutSeconds),
		HeartbeatTimeout: seconds(min(max(p.TimeoutSeconds/3, 2), 10)), Log: j.opts.log, Listener: listener, Status: j.team.position})
	if err != nil {
		return err
	}
	j.later(j.team.group.Close)
	return nil
}

// readToken is the secret that ranks show each other, "" where there is none.
func readToken(file string, env environment) (rendezvous.Token, error) {
	if file == "" {
		text, _ := env.lookup("HETERO_TOKEN")
		return rendezvous.Token(text), nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", usageError("parallel.token_file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", usageError("parallel.token_file: %s can be read by others (mode %04o, want 0600)", file, info.Mode().Perm())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", usageError("parallel.token_file: %w", err)
	}
	return rendezvous.Token(strings.TrimSpace(string(text))), nil
}

// local are the settings in which ranks may differ.
var local = []string{"device.", "data.path", "data.cache_dir", "data.workers", "data.download", "experiment.output_dir", "experiment.log_dir", "train.resume", "parallel.", "profile."}

// facts are what all ranks must have in common.
func (j *job) facts() []rendezvous.Fact {
	var settings strings.Builder
	for _, d := range config.Diff(defaults(), j.cfg) {
		if !slices.ContainsFunc(local, func(prefix string) bool { return strings.HasPrefix(d.Key, prefix) }) {
			fmt.Fprintf(&settings, "%s = %s\n", d.Key, d.New)
		}
	}
	evaluated := 0
	if j.data.Eval != nil {
		evaluated = j.data.Eval.Len()
	}
	p := j.cfg.Parallel
	return []rendezvous.Fact{
		{Name: "program", Value: versionText()},
		{Name: "settings that are not the defaults", Value: settings.String()},
		{Name: "communication", Value: fmt.Sprintf("gradients as %s, buckets of %v MiB, overlap %v, shared memory %s, time-out %v s", p.WireDType, p.BucketCapMB, p.Overlap, p.SharedMemory, p.TimeoutSeconds)},
		{Name: "data", Value: fmt.Sprintf("%s, %d training and %d evaluation samples, classes %q", j.data.name, j.data.Train.Len(), evaluated, j.data.Train.Classes())},
		{Name: "precision", Value: j.precision.String()},
	}
}

// connect opens the communicators.
func (j *job) connect(ctx context.Context) error {
	t := j.team
	if t == nil {
		return nil
	}
	shares, err := j.shares(t.place.WorldSize)
	if err != nil {
		return err
	}
	var shared [2]string // addresses in shared memory: gradients, statistics
	if err := t.tell(ctx, "communicators", &shared, func() error {
		shared = [2]string{shm.NewAddress(), shm.NewAddress()}
		return nil
	}); err != nil {
		return err
	}
	grads, err := j.communicator(ctx, "gradients", shared[0])
	if err != nil {
		return err
	}
	stats, err := j.communicator(ctx, "statistics", shared[1])
	if err != nil {
		return err
	}
	p, m := j.cfg.Parallel, j.cfg.Model
	t.peers = &train.Peers{Grads: grads, Stats: stats, Shares: shares, SyncNorm: m.BatchNorm == "sync",
		CapBytes: int64(p.BucketCapMB * (1 << 20)), Sequential: !p.Overlap}
	if p.WireDType == "bf16" {
		t.peers.Wire = tensor.BF16
	}
	t.running.Store(t.peers)
	go func() { // a rank that is gone may not be missed by a communicator for long
		<-t.group.Broken()
		t.peers.Abort(t.group.Err())
	}()
	if t.leads() {
		watched, stop := context.WithCancel(ctx)
		j.later(func() error { stop(); return nil })
		go j.watch(watched, seconds(min(p.TimeoutSeconds/4, 10)))
	}
	if t.leads() {
		j.opts.log.Info("all ranks are here", "ranks", t.place.WorldSize, "shares", shares)
		if m.BatchNorm == "local" {
			j.opts.log.Warn(`model.batch_norm = "local": each rank normalises by its own samples, so the result depends on how the batch is split`)
		}
		if len(j.cfg.Balance.FixedShares) == 0 && j.cfg.Balance.Policy != "none" {
			j.opts.log.Warn("balance.policy: this version divides the batch equally; balance.fixed_shares sets other shares", "got", j.cfg.Balance.Policy)
		}
	}
	return nil
}

// tellStart lets rank 0, which has opened the run, say how it begins.
func (j *job) tellStart(ctx context.Context) error {
	t := j.team
	if t == nil {
		return nil
	}
	return t.tell(ctx, "start", &t.start, func() (err error) {
		if t.start.Finished = j.run.Finished != nil; !t.start.Finished {
			t.start.LogDir, err = filepath.Abs(j.run.LogDir())
		}
		return err
	})
}

// tell gives all ranks rank 0's value, which set makes there.
func (t *team) tell(ctx context.Context, what string, value any, set func() error) error {
	var word []byte
	if t.leads() {
		if err := set(); err != nil {
			return err
		}
		var err error
		if word, err = json.Marshal(value); err != nil {
			return err
		}
	}
	words, err := t.group.Gather(ctx, what, word)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(words[0], value); err != nil {
		return fmt.Errorf("%s, as rank 0 tells it: %w", what, err)
	}
	return nil
}

// communicator joins all ranks: through shared memory on one machine, at an address that rank 0 has made up, else over the network.
func (j *job) communicator(ctx context.Context, name, address string) (collective.Communicator, error) {
	t, p := j.team, j.cfg.Parallel
	ctx, cancel := context.WithTimeout(ctx, seconds(p.RendezvousTimeoutSeconds))
	defer cancel()
	if t.oneMachine() && p.SharedMemory != "off" {
		c, err := shm.Connect(ctx, shm.Config{Rank: t.place.Rank, Size: t.place.WorldSize, Address: address, Timeout: seconds(p.TimeoutSeconds)})
		if err != nil {
			return nil, err
		}
		j.later(c.Close)
		return c, nil
	}
	host, err := ownAddress(t.place.Master())
	if err != nil {
		return nil, err
	}
	c, err := gloo.Connect(ctx, gloo.Config{Rank: t.place.Rank, Size: t.place.WorldSize, Control: t.group, RankOf: lostRank, Name: name,
		Host: host, Timeout: seconds(p.TimeoutSeconds)})
	if errors.Is(err, gloo.ErrUnavailable) {
		return nil, withCode(exitUsage, err)
	}
	if err != nil {
		return nil, err
	}
	j.later(c.Close)
	return c, nil
}

func (t *team) oneMachine() bool {
	members := t.group.Members()
	return !slices.ContainsFunc(members, func(m rendezvous.Member) bool { return m.Host != members[0].Host })
}

// ownAddress is this machine's as rank 0's machine sees it: that of the route to it. Nothing is sent.
func ownAddress(master string) (string, error) {
	conn, err := net.Dial("udp", master)
	if err != nil {
		return "", withCode(exitCommunication, fmt.Errorf("find the address of this machine: %w", err))
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// lostRank is the rank that an error of the group is about, -1 for none.
func lostRank(err error) int {
	var lost *rendezvous.LostError
	if errors.As(err, &lost) {
		return lost.Rank
	}
	return -1
}

// shares is how many samples of each micro-batch every rank has: those of balance.fixed_shares, else equal ones. With groups of
// samples for batch normalisation whole groups are divided, and the samples beyond go to the last rank.
func (j *job) shares(ranks int) ([]int, error) {
	c := j.cfg
	if err := c.CheckRanks(ranks); err != nil {
		return nil, err
	}
	micro, unit := c.Data.BatchSize/c.Train.GradAccumulation, 1
	if c.Model.BatchNorm == "ghost" {
		unit = c.Model.GhostGroup
	}
	speed, limit := make([]float64, ranks), make([]int, ranks)
	for rank := range ranks {
		speed[rank], limit[rank] = 1, micro
		if fixed := c.Balance.FixedShares; len(fixed) > 0 {
			if speed[rank] = float64(fixed[rank]); fixed[rank] == 0 {
				speed[rank], limit[rank] = 1, 0
			}
		}
	}
	shares, err := balancer.Split(micro/unit, speed, limit)
	if err != nil {
		return nil, usageError("shares of a micro-batch of %d samples (data.batch_size / train.grad_accumulation) in units of %d: %w", micro, unit, err)
	}
	for rank := range shares {
		shares[rank] *= unit
	}
	shares[ranks-1] += micro % unit
	if fixed := c.Balance.FixedShares; len(fixed) > 0 && c.Train.GradAccumulation == 1 && !slices.Equal(fixed, shares) {
		return nil, usageError("balance.fixed_shares: got %v, want whole groups of model.ghost_group = %d samples, the rest on the last rank, as %v", fixed, unit, shares)
	}
	return shares, nil
}

// follow trains as a rank that does not lead: it owns no files but a log.
func (j *job) follow(ctx context.Context) error {
	if logFile, err := os.OpenFile(filepath.Join(j.team.start.LogDir, fmt.Sprintf("rank_%d.log", j.team.place.Rank)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err == nil {
		j.later(logFile.Close)
		j.opts.logFile.to(logFile)
	} // on another machine there may be no such folder: then standard error is the log
	options, err := j.sharedOptions()
	if err != nil {
		return err
	}
	options.Observer = follower{j.opts.log}
	result, err := train.Run(ctx, options)
	if err == nil && result.Interrupted {
		err = j.interruption(ctx)
		return withCode(exitCode(err), shown{err}) // rank 0 says it
	}
	return err
}

// follower is the observer of a rank that does not lead: the leader shows and records the run.
type follower struct{ log *slog.Logger }

func (follower) StepDone(*train.StepRecord)            {}
func (follower) EvalDone(train.Evaluation)             {}
func (follower) RolledBack(int64)                      {}
func (follower) Saving()                               {}
func (follower) Saved(checkpoint.Saved, time.Duration) {}
func (f follower) Warn(err error)                      { f.log.Warn(err.Error()) }
