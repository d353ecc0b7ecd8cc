package supervisor

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/hetero-train/hetero-train/engine/platform"
)

// Defaults of Options.
const (
	DefaultGrace     = 10 * time.Second
	DefaultKillAfter = 5 * time.Second
	// DefaultLeaveAfter is longer than the kernel and a GPU driver need to free the memory of a killed process.
	DefaultLeaveAfter = 20 * time.Second
)

// Options describe the processes to start and how to watch them.
type Options struct {
	Command []string // program and arguments of every rank
	Dir     string   // working directory; "": the current one
	Env     []string // environment of every rank, without the variables that Run sets; nil: os.Environ()
	RankEnv func(rank int) []string

	Ranks     int // number of ranks on this machine
	FirstRank int // first rank of this machine
	WorldSize int // number of ranks on all machines; 0: Ranks

	MasterAddr string // address of rank 0; "": 127.0.0.1
	MasterPort int    // port of rank 0; 0: a free port (only if all ranks are on this machine)

	Threads int // CPU threads to divide among the ranks; 0: leave OMP_NUM_THREADS unchanged

	Stdout, Stderr io.Writer                // output of the first rank on this machine; nil: discarded
	Output         func(rank int) io.Writer // returns the writer for both streams of another rank; nil: discarded

	Signals <-chan os.Signal // forwarded to every rank

	Grace     time.Duration // time for the other ranks to end after one rank has ended; 0: DefaultGrace
	KillAfter time.Duration // time between SIGTERM and SIGKILL; 0: DefaultKillAfter
	// LeaveAfter is the time for which Run waits for a rank after SIGKILL, before it returns without this rank. 0:
	// DefaultLeaveAfter
	LeaveAfter time.Duration

	Orderly   []int // exit codes of a rank that stopped as requested
	Secondary []int // exit codes of a rank that ends because another rank is lost

	Log *slog.Logger // nil: no log

	kill func(pid int) error // kills a process group; a test replaces it
}

// complete sets defaults and checks the other options.
func (o *Options) complete() error {
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.WorldSize == 0 {
		o.WorldSize = o.Ranks
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.KillAfter == 0 {
		o.KillAfter = DefaultKillAfter
	}
	if o.kill == nil {
		o.kill = platform.KillGroup
	}
	if o.LeaveAfter == 0 {
		o.LeaveAfter = DefaultLeaveAfter
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var faults []error
	if len(o.Command) == 0 {
		faults = append(faults, errors.New("no command to start"))
	}
	if o.Ranks < 1 || o.FirstRank < 0 || o.FirstRank+o.Ranks > o.WorldSize {
		faults = append(faults,
			fmt.Errorf("got %d ranks from rank %d on, want at least 1 rank, all below the world size %d", o.Ranks,
				o.FirstRank, o.WorldSize))
	}
	if o.MasterPort < 0 || o.MasterPort > 65535 {
		faults = append(faults, fmt.Errorf("got port %d of rank 0, want 0 to 65535", o.MasterPort))
	}
	if o.MasterPort == 0 && o.Ranks < o.WorldSize {
		faults = append(faults,
			fmt.Errorf("got no port for rank 0, want one, because %d of %d ranks are on other machines",
				o.WorldSize-o.Ranks, o.WorldSize))
	}
	if o.MasterPort == 0 && o.MasterAddr != "" && o.MasterAddr != loopback {
		faults = append(faults, fmt.Errorf("got no port for rank 0 at %s, want one", o.MasterAddr))
	}
	if o.Threads < 0 || o.Grace < 0 || o.KillAfter < 0 || o.LeaveAfter < 0 {
		faults = append(faults,
			fmt.Errorf("got %d threads, grace period %v, kill period %v and leave period %v, want values of at least 0",
				o.Threads, o.Grace, o.KillAfter, o.LeaveAfter))
	}
	if o.MasterAddr == "" {
		o.MasterAddr = loopback
	}
	return errors.Join(faults...)
}

const loopback = "127.0.0.1"

// Part divides total among n as evenly as possible, and returns part i, but at least 1. The first parts get the
// remainder.
func Part(total, n, i int) int {
	part := total / n
	if i < total%n {
		part++
	}
	return max(part, 1)
}
