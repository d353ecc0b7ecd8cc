package process

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// Numbers of threads of a process during training, measured on 2 CPUs (docs/reliability.md). The Go runtime uses these
// threads, also for signals and files, and for the stream of the device. With more CPUs, the Go runtime starts more
// threads, at most one per CPU. If it cannot start a thread, it ends the process.
const (
	supervisorThreads = 10
	rankThreads       = 10 // threads of a rank without the threads of its device
	networkThreads    = 2  // additional threads of a rank that communicates over Gloo
)

// threadNeed contains the numbers of threads that this process needs. In a supervisor, they include the threads of its
// ranks.
type threadNeed struct {
	ranks int
	least int
	most  int // number of threads if all CPUs are busy at the same time
}

func needOfThreads(cfg *config.Config, opts session.Options) threadNeed {
	assigned, cpus := opts.Assignment, runtime.GOMAXPROCS(0)
	rank := rankThreads + DeviceThreads(cfg.Device.Kind, cfg, opts)
	starts := assigned.Launch && assigned.LocalWorldSize > 1
	if assigned.WorldSize > 1 && (!starts || assigned.WorldSize > assigned.LocalWorldSize ||
		cfg.Parallel.SharedMemory == "off") {
		rank += networkThreads
	}
	if !starts {
		return threadNeed{ranks: 1, least: rank, most: rank + cpus}
	}
	n := assigned.LocalWorldSize
	return threadNeed{ranks: n, least: supervisorThreads + n*rank, most: supervisorThreads + cpus + n*(rank+cpus)}
}

// DeviceThreads returns the number of threads that the device of a rank will have, if the device is of this kind. For
// every kind except "cpu" it returns 1, also for "auto".
func DeviceThreads(kind string, cfg *config.Config, opts session.Options) int {
	if kind != "cpu" {
		return 1
	}
	threads := cfg.Device.Threads
	if threads == 0 {
		threads = max(session.UsableCPUs()/session.RanksOfMachine(opts.Assignment), 1)
		// The device will report an invalid limit when it opens.
		if limit, err := cpu.ThreadLimit(opts.Env.Lookup); err == nil && limit > 0 {
			threads = min(threads, limit)
		}
	}
	return min(threads, runtime.NumCPU())
}

// MostThreads returns the largest number of OS threads of a rank. The parameter deviceThreads is the number of threads
// of its device, and several is true if the rank communicates with other ranks.
func MostThreads(deviceThreads int, several bool) int {
	n := rankThreads + max(deviceThreads, 1) + runtime.GOMAXPROCS(0)
	if several {
		n += networkThreads
	}
	return n
}

// CheckThreads returns an error if the limits allow too few threads, and warns if the limits may allow too few. A
// supervisor also checks the threads of its ranks.
func CheckThreads(cfg *config.Config, opts session.Options) error {
	if opts.Supervised() {
		return nil
	}
	need, own := needOfThreads(cfg, opts), system.OwnThreads()
	if limit, refused := system.ThreadsRefused(need.least - own); refused {
		return exit.Usagef("the limit of processes is too low: %s needs at least %d threads, but %v; %s", need,
			need.least, limit, need.cure(limit))
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

// cure returns the advice to raise a limit to the number of existing threads plus n.most.
func (n threadNeed) cure(limit system.ThreadLimit) string {
	text := fmt.Sprintf("raise the limit (%s) to %d", limit.Cure, limit.Used+int64(n.most))
	if n.ranks > 1 {
		text += ", or start fewer ranks (parallel.ranks)"
	}
	return text
}

// gotNoThread reports whether the last output of a process shows that the Go runtime could not start a thread.
func gotNoThread(tail string) bool {
	return strings.Contains(tail, "pthread_create failed: Resource temporarily unavailable") ||
		strings.Contains(tail, "failed to create new OS thread")
}
