package process

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// Threads of processes during training, measured on 2 CPUs (docs/reliability.md): threads of the Go runtime, for
// signals, files and the stream. On more CPUs the Go runtime starts more threads, at most one per CPU. If it cannot
// start a thread, it ends the process.
const (
	supervisorThreads = 10
	rankThreads       = 10 // without those of the device
	networkThreads    = 2  // of a rank that communicates over Gloo
)

// threadNeed is the number of threads that this process needs, or a supervisor with its ranks.
type threadNeed struct {
	ranks int
	least int
	most  int // if every CPU has work at the same time
}

func needOfThreads(cfg *config.Config, opts session.Options) threadNeed {
	place, cpus := opts.Place, runtime.GOMAXPROCS(0)
	rank := rankThreads + 1
	if cfg.Device.Kind == "cpu" {
		threads := cfg.Device.Threads
		if threads == 0 {
			threads = max(session.UsableCPUs()/session.RanksOfMachine(place), 1)
		}
		rank = rankThreads + min(threads, runtime.NumCPU())
	}
	starts := place.Launch && place.LocalWorldSize > 1
	if place.WorldSize > 1 && (!starts || place.WorldSize > place.LocalWorldSize || cfg.Parallel.SharedMemory == "off") {
		rank += networkThreads
	}
	if !starts {
		return threadNeed{ranks: 1, least: rank, most: rank + cpus}
	}
	n := place.LocalWorldSize
	return threadNeed{ranks: n, least: supervisorThreads + n*rank, most: supervisorThreads + cpus + n*(rank+cpus)}
}

// CheckThreads returns an error if too few threads are allowed, and warns if they may not suffice. A supervisor does
// this for its ranks.
func CheckThreads(cfg *config.Config, opts session.Options) error {
	if opts.Supervised() {
		return nil
	}
	need, own := needOfThreads(cfg, opts), system.OwnThreads()
	if limit, refused := system.ThreadsRefused(need.least - own); refused {
		return exit.Usagef("the limit of processes is too low: %s needs at least %d threads, but %v; %s", need, need.least, limit, need.cure(limit))
	}
	if limit, refused := system.ThreadsRefused(need.most - own); refused {
		opts.Log.Warn("the limit of processes may be too low; a process that cannot start a thread ends with "+
			"\"pthread_create failed\" and exit code 134; "+need.cure(limit),
			"limit", limit.Name, "allowed", limit.Limit, "exist", limit.Used, "needed_at_most", need.most)
	}
	return nil
}

func (n threadNeed) String() string {
	if n.ranks == 1 {
		return "a rank"
	}
	return fmt.Sprintf("a run of %d ranks on this machine", n.ranks)
}

// cure explains how to raise a limit: to the existing threads plus the maximum need.
func (n threadNeed) cure(limit system.ThreadLimit) string {
	text := fmt.Sprintf("raise the limit (%s) to %d", limit.Cure, limit.Used+int64(n.most))
	if n.ranks > 1 {
		text += ", or start fewer ranks (parallel.ranks)"
	}
	return text
}

// gotNoThread reports whether the last lines of a process show that the Go runtime could not start a thread.
func gotNoThread(tail string) bool {
	return strings.Contains(tail, "pthread_create failed: Resource temporarily unavailable") ||
		strings.Contains(tail, "failed to create new OS thread")
}
