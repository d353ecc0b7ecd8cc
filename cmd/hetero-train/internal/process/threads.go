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

// Threads that processes have when they train, measured on 2 CPUs (docs/reliability.md): the Go runtime's, signals,
// files, the stream. The Go runtime starts more where more CPUs have work, at most one for each. It cannot be told to
// live with fewer: it ends the process.
const (
	supervisorThreads = 10
	rankThreads       = 10 // and those of the device
	networkThreads    = 2  // of a rank that talks to others over Gloo
)

// threadNeed is how many threads the processes that this one stands for have: itself, or a supervisor and its ranks.
type threadNeed struct {
	ranks int
	least int
	most  int // where each CPU has work at once
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

// CheckThreads refuses a start for which too few threads are allowed, and warns where they may not suffice. The ranks
// of a supervisor leave it to that.
func CheckThreads(cfg *config.Config, opts session.Options) error {
	if opts.Supervised() {
		return nil
	}
	need, own := needOfThreads(cfg, opts), system.OwnThreads()
	if limit, refused := system.ThreadsRefused(need.least - own); refused {
		return exit.Usagef("too few processes are allowed: %s needs at least %d threads, but %v; %s", need, need.least, limit, need.cure(limit))
	}
	if limit, refused := system.ThreadsRefused(need.most - own); refused {
		opts.Log.Warn("the limit of processes may be too small: a process that gets no thread ends with "+
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

// cure says how to raise a limit: to what exists and what is needed at most.
func (n threadNeed) cure(limit system.ThreadLimit) string {
	text := fmt.Sprintf("raise the limit (%s) to %d", limit.Cure, limit.Used+int64(n.most))
	if n.ranks > 1 {
		text += ", or start fewer ranks (parallel.ranks)"
	}
	return text
}

// gotNoThread reports whether the last lines of a process are those of a Go runtime that was refused a thread.
func gotNoThread(tail string) bool {
	return strings.Contains(tail, "pthread_create failed: Resource temporarily unavailable") ||
		strings.Contains(tail, "failed to create new OS thread")
}
