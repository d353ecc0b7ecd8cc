package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// compareSteps is how often ranks compare hashes of their parameters, in steps: a pass over the weights each time.
const compareSteps = 100

// supervisedVariable is set for the ranks that this program has started. It keeps them from starting ranks themselves.
const supervisedVariable = "HETERO_SUPERVISED"

// findPlace tells which rank of how many this process is, or that it starts those of its machine.
func findPlace(cfg *config.Config, flags placeFlags, overrides []config.Override, environ []string) (discovery.Place, error) {
	env := environment{environ: environ}
	if _, set := env.lookup(supervisedVariable); set { // its flags are the supervisor's, which has told it everything else
		place, err := discovery.Find(discovery.Options{}, environ)
		if err == nil && place.Launch {
			err = fmt.Errorf("environment variable %s: this process is a rank, but %v", supervisedVariable, place)
		}
		return place, exit.With(exit.Usage, err)
	}
	p := cfg.Parallel
	o := discovery.Options{Devices: localDevices(cfg, env.lookup), Nodes: discovery.Value{Text: flags.nodes, From: "--nnodes"}, NodeRank: discovery.Value{Text: flags.nodeRank, From: "--node-rank"}}
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

// team is this process among the ranks of a run.
type team struct {
	place discovery.Place
	group *rendezvous.Group
	peers *train.Peers
	start teamStart
	// finished: there is nothing left to do
	finished bool

	running atomic.Pointer[train.Peers] // peers, for other goroutines
}

// teamStart is what rank 0 tells the others before the first step.
type teamStart struct {
	LogDir string `json:"log_dir"` // absolute, on rank 0's machine
	// Checkpoints is the folder of the run's checkpoints, likewise.
	Checkpoints string `json:"checkpoints"`
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

// verdictTime is how long a rank that lost another one waits until rank 0 has named that rank. A longer time delays the end where only a connection
// broke; a shorter one lets other ranks blame the rank that noticed the loss.
const verdictTime = 2 * time.Second

// abort tells the other ranks why this one gives up.
func (t *team) abort(cause error) {
	if t == nil || t.group == nil {
		return
	}
	t.peers.Abort(cause)
	if rank := exit.PeerOf(cause); rank >= 0 && rank != t.place.Rank && errors.Is(cause, collective.ErrDied) {
		select { // rank 0 sees the end of that process too, and names it; this rank would end the group under its own number
		case <-t.group.Broken():
		case <-time.After(verdictTime):
		}
	}
	t.group.Abort(cause)
	t.peers.Drain()
}

// localRanks is how many ranks share this machine, as far as it is known before they meet.
func (j *Session) localRanks() int { return ranksOfMachine(j.opts.place) }

func ranksOfMachine(place discovery.Place) int {
	if ip := net.ParseIP(place.MasterAddr); place.LocalWorldSize == 0 && (place.MasterAddr == "localhost" || ip != nil && ip.IsLoopback()) {
		return max(place.WorldSize, 1)
	}
	return max(place.LocalWorldSize, 1)
}

// usableCPUs is how many this process may use, by affinity and quota, at least 1.
func usableCPUs() int {
	n := runtime.NumCPU()
	if host, err := system.Detect(); err == nil && host.CPU.Quota > 0 {
		n = min(n, int(math.Ceil(host.CPU.Quota)))
	}
	return n
}

// memoryBytes is the memory that this rank may use, 0 where that is not known: of a device's own what was free when it was opened; of the host's what its limit allows, divided among the ranks of
// the machine where it is no limit of their own.
func (j *Rank) memoryBytes() int64 {
	info := j.device.Info()
	if info.FreeBytes > 0 {
		return info.FreeBytes / int64(max(j.sharers, 1))
	}
	host, _ := system.Detect() // with what it could not read left out
	if info.Threads == 0 || host.Memory.Limit <= 0 {
		return info.MemoryBytes
	}
	bytes := min(info.MemoryBytes, host.Memory.Limit)
	if sharesLimits(j.opts.place, j.opts.env) || host.Memory.Limit == host.Memory.Total {
		bytes /= int64(j.localRanks())
	}
	return bytes
}

// ownCPUs is how many this rank has for itself: the ranks of a machine divide what a process may use, unless each has a quota
// of its own.
func (j *Session) ownCPUs() int {
	if own := j.opts.lab.place.CPUs; own > 0 {
		return min(int(math.Ceil(own)), runtime.NumCPU())
	}
	return max(usableCPUs()/j.localRanks(), 1)
}

// limitOfThreads is the setting of OMP_NUM_THREADS where it gave this rank fewer threads than it has CPUs; "" where it did not.
func (j *Rank) limitOfThreads() string {
	limit, err := cpu.ThreadLimit(j.opts.env.lookup)
	info := j.device.Info()
	if err != nil || limit == 0 || info.Kind != "cpu" || j.cfg.Device.Threads != 0 || info.Threads != limit || limit >= j.ownCPUs() {
		return ""
	}
	return fmt.Sprintf("OMP_NUM_THREADS=%d", limit)
}

// joinTeam meets the other ranks. Settings, data and program must be the same on all of them.
func (j *Run) joinTeam(ctx context.Context) (err error) {
	if j.opts.place.WorldSize <= 1 {
		j.opts.logOf(logs.ComponentBalancer).Debug("no compute score is measured: a run of one rank has nothing to divide")
		return nil
	}
	return j.meet(ctx, j.facts())
}

// meet joins the other ranks, which must have the same facts.
func (j *Rank) meet(ctx context.Context, facts []rendezvous.Fact) error {
	place := j.opts.place
	j.team = &team{place: place}
	token, err := readToken(j.cfg.Parallel.TokenFile, j.opts.env)
	if err != nil {
		return err
	}
	if err := token.Check(); err != nil {
		return exit.With(exit.Usage, err)
	}
	listener, err := supervisor.Listener(j.opts.env.environ)
	if err != nil {
		return err
	}
	p, addresses := j.cfg.Parallel, place.Addresses()
	log := j.opts.logOf(logs.ComponentCluster)
	log.Info("waiting for the other ranks", "rank", place.Rank, "of", place.WorldSize, "meeting_at", place.Master())
	j.team.group, err = rendezvous.Join(ctx, rendezvous.Options{Rank: place.Rank, WorldSize: place.WorldSize, LocalRank: place.LocalRank,
		Address: addresses[0], Alternatives: addresses[1:], Generation: place.Start, Facts: facts, Token: token, Insecure: p.Insecure, Timeout: seconds(p.RendezvousTimeoutSeconds),
		HeartbeatTimeout: seconds(min(max(p.TimeoutSeconds/3, 2), 10)), Log: log, Listener: listener, Status: j.team.position})
	if err != nil {
		return err
	}
	j.later(j.team.group.Close)
	return j.refuseSharing(ctx)
}

const mostTokenBytes = 64 << 10

// readToken is the secret that ranks show each other, "" where there is none.
func readToken(file string, env environment) (rendezvous.Token, error) {
	if file == "" {
		text, _ := env.lookup("HETERO_TOKEN")
		return rendezvous.Token(strings.TrimSpace(text)), nil
	}
	f, info, err := regular.Open(file)
	if err != nil {
		return "", exit.Usagef("parallel.token_file: %w", err)
	}
	defer f.Close() // is only read
	if info.Mode().Perm()&0o077 != 0 {
		return "", exit.Usagef("parallel.token_file: %s can be read by others (mode %04o, want 0600)", file, info.Mode().Perm())
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

// local are the settings in which ranks may differ.
var local = []string{"device.", "data.path", "data.val_path", "data.class_names", "data.shard_cache_mb", "data.cache_dir", "data.workers", "data.download", "experiment.output_dir", "experiment.log_dir", "train.resume", "parallel.", "profile.", "lab."}

// facts are what all ranks must have in common.
func (j *Run) facts() []rendezvous.Fact {
	var facts []rendezvous.Fact
	for _, s := range j.cfg.Settings() {
		if !slices.ContainsFunc(local, func(prefix string) bool { return strings.HasPrefix(s.Key, prefix) }) {
			value := s.Value
			if text, err := strconv.Unquote(value); err == nil { // a text, which a message quotes
				value = text
			}
			facts = append(facts, rendezvous.Fact{Name: s.Key, Value: value})
		}
	}
	evaluated := 0
	if j.data.Eval != nil {
		evaluated = j.data.Eval.Len()
	}
	p := j.cfg.Parallel
	return append(facts, []rendezvous.Fact{
		{Name: "program", Value: version.Text()},
		{Name: "communication", Value: fmt.Sprintf("gradients as %s, buckets of %v MiB, overlap %v, shared memory %s, time-out %v s", p.WireDType, p.BucketCapMB, p.Overlap, p.SharedMemory, p.TimeoutSeconds)},
		{Name: "data", Value: fmt.Sprintf("%s, %d training and %d evaluation samples, classes %q, fingerprint %q", j.data.Name, j.data.Train.Len(), evaluated, j.data.Train.Classes(), j.data.Fingerprint)},
		{Name: "trace", Value: fmt.Sprintf("%d steps from step %d on", j.cfg.Profile.TraceSteps, j.cfg.Profile.TraceStep)},
		{Name: "weather", Value: j.opts.lab.fact()},
	}...)
}

// ready waits until all ranks are about to train. What rank 0 does alone before, loading a checkpoint, has no time-out.
func (t *team) ready(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.group.Barrier(ctx, "ready")
}

// tellFinished lets rank 0, which has opened the run, say whether there is anything left to do.
func (j *training) tellFinished(ctx context.Context) error {
	t := j.team
	if t == nil {
		return nil
	}
	return t.tell(ctx, "finished", &t.finished, func() error {
		t.finished = j.folder.Finished != nil
		return nil
	})
}

// tellStart lets rank 0, which has begun the run, say where its files are.
func (j *training) tellStart(ctx context.Context) error {
	t := j.team
	if t == nil {
		return nil
	}
	return t.tell(ctx, "start", &t.start, func() (err error) {
		if t.start.LogDir, err = filepath.Abs(j.folder.LogDir()); err == nil {
			t.start.Checkpoints, err = filepath.Abs(j.folder.CheckpointDir())
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
