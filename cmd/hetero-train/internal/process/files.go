package process

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// Numbers of open files of processes during training, counted in /proc/PID/fd with 1 to 24 ranks on CPUs
// (docs/reliability.md).
const (
	// supervisorFiles: the standard streams, the CPU quota, the runtime's poller, and the pipes of a rank that is being
	// started.
	supervisorFiles = 11
	supervisedFiles = 4 // files of a supervisor for each rank: process handle, two output streams, cause of a failure
	// leaderFiles: the files of rank 0. These are the records, tables, lock and log of the run, and the files that
	// every rank opens. 6 more are for a save, a probe of the machine and libraries.
	leaderFiles   = 30
	recordFiles   = 2  // files of rank 0 for each other rank: its metrics and its part of the records
	followerFiles = 18 // files of any other rank
	networkFiles  = 4  // files of a rank that uses Gloo: two pollers and, while it connects, two sockets
	communicators = 2  // for gradients and for statistics
	relayFiles    = 2  // files of an encrypted connection: the two ends of a local connection within the process
	// dataFiles: the data files that a process opens at the same time, for training and for evaluation together. Each
	// of these two parts fetches up to 256 files, and uses at most a quarter of the limit of open files.
	dataFiles = 2 * 256
	// deviceFiles is a reserve for the driver and the libraries of a GPU. It was not measured, so a limit that is too
	// low only because of this reserve causes a warning, not an error.
	deviceFiles = 64
)

// FileNeed contains the values that determine the number of files that the processes of a run open.
type FileNeed struct {
	Ranks    int  // number of ranks of the run
	Local    int  // number of ranks of this machine
	Machines int  // number of machines of the run; 0: unknown
	First    bool // rank 0 is on this machine
	Starts   bool // this process starts the ranks of this machine
	Shared   bool // the ranks of a machine communicate through shared memory
	Encrypt  bool
	Data     bool // the process reads samples from files
	GPU      bool // ranks of this machine compute on GPUs
}

// needOfFiles returns the FileNeed for a configuration and the rank of this process. The parameter reads is false for
// commands that read no samples.
func needOfFiles(cfg *config.Config, opts session.Options, reads bool) FileNeed {
	assigned := opts.Assignment
	n := FileNeed{Ranks: max(assigned.WorldSize, 1), Local: session.RanksOfMachine(assigned), Machines: assigned.Nodes,
		Starts: assigned.Launch && assigned.LocalWorldSize > 1, First: assigned.Rank == 0,
		Shared: cfg.Parallel.SharedMemory != "off", Encrypt: cfg.Parallel.Encrypt,
		Data: reads && !strings.HasPrefix(cfg.Data.Dataset, "synthetic"),
		GPU:  cfg.Device.Kind == "cuda" || devices.HasGPU(cfg, opts.Env.Lookup)}
	n.Local = min(n.Local, n.Ranks)
	return n
}

// Least returns a lower bound for the open files of the process that opens the most files on this machine.
func (n FileNeed) Least() int {
	machines := n.Machines
	if machines < 1 || machines > 1 && n.Local == n.Ranks || machines == 1 && n.Local < n.Ranks {
		machines = 1
		if n.Local < n.Ranks {
			machines = 2
		}
	}
	return n.process(n.rank(machines))
}

// Most returns an upper bound for the open files of the process that opens the most files on this machine. If the
// number of machines is unknown, Most assumes that each rank of the other machines is on a separate machine.
func (n FileNeed) Most() int {
	machines := n.Machines
	if machines < 1 || machines == 1 && n.Local < n.Ranks {
		machines = 1 + n.Ranks - n.Local
	}
	files := n.rank(machines)
	if n.Data {
		files += min(files, dataFiles) // the data set uses at most half of the limit
	}
	if n.GPU {
		files += deviceFiles
	}
	return n.process(files)
}

// process returns the number of files of the process that opens the most: a rank or the supervisor of the ranks. The
// parameter rank is the number of files of a rank.
func (n FileNeed) process(rank int) int {
	if n.Starts {
		return max(rank, supervisorFiles+supervisedFiles*n.Local)
	}
	return rank
}

// rank returns the number of files of the rank that opens the most files on this machine, without data files. This is
// the first rank of the machine, which is rank 0 on one machine.
func (n FileNeed) rank(machines int) int {
	others := n.Ranks - 1
	files := followerFiles
	if n.First {
		files = leaderFiles + (1+recordFiles)*others // for each other rank: a connection and records
	}
	groups := 1 // number of groups that communicate through shared memory
	if machines > 1 {
		groups = 2 // one within the machine, one for the results of other machines
	}
	peers := 0 // number of ranks with a network connection to this rank
	switch {
	case !n.Shared:
		peers = others
	case machines > 1:
		peers = machines - 1
	}
	if n.Shared {
		files += communicators * groups * (n.Local - 1)
	}
	if peers > 0 {
		files += networkFiles + communicators*peers
		if n.Encrypt {
			files += communicators * relayFiles * peers
		}
	}
	return files
}

// CheckFiles returns an error if the limit of open files is too low for the run, and warns if the limit may be too low.
// A supervisor also checks the files of its ranks. CheckFiles uses the hard limit, because Go raises the soft limit
// when a program starts. The parameter reads is false for commands that read no samples.
func CheckFiles(cfg *config.Config, opts session.Options, reads bool) error {
	if opts.Supervised() {
		return nil
	}
	return needOfFiles(cfg, opts, reads).check(opts)
}

// CheckFilesOf repeats the check for errors of CheckFiles, when the machines of all ranks are known.
func CheckFilesOf(cfg *config.Config, opts session.Options, hosts [][]int) error {
	n := needOfFiles(cfg, opts, false)
	known := n.Machines == len(hosts) || n.Local == n.Ranks
	n.Machines, n.Starts = len(hosts), false
	for _, ranks := range hosts {
		if slices.Contains(ranks, opts.Assignment.Rank) {
			n.Local, n.First = len(ranks), slices.Contains(ranks, 0)
		}
	}
	if !slices.IsSorted(slices.Concat(hosts...)) {
		n.Shared = false // with this order of ranks, package exchange uses only the network
	} else if known {
		return nil // CheckFiles has used the same numbers
	}
	if limit, ok := platform.FileLimit(); ok && limit < uint64(n.Least()) {
		return n.refuse(limit)
	}
	return nil
}

func (n FileNeed) check(opts session.Options) error {
	limit, ok := platform.FileLimit()
	switch {
	case !ok || limit >= uint64(n.Most()):
		return nil
	case limit < uint64(n.Least()):
		return n.refuse(limit)
	}
	opts.Log.Warn("the limit of open files may be too low; an operation that cannot open a file or a connection fails; "+
		cureOfFiles(n.Most()), "limit", limit, "needed_at_least", n.Least(), "needed_at_most", n.Most())
	return nil
}

func cureOfFiles(need int) string {
	return fmt.Sprintf("raise the hard limit (ulimit -n %d, LimitNOFILE=%d in a unit of systemd, or "+
		"docker run --ulimit nofile=%d)", need, need, need)
}

func (n FileNeed) refuse(limit uint64) error {
	of := "a rank"
	if n.Ranks > 1 {
		of = fmt.Sprintf("a run of %d ranks", n.Ranks)
	}
	err := fmt.Errorf("the limit of open files is too low: got %d, want at least %d for the process with most files of %s; %s",
		limit, n.Least(), of, cureOfFiles(n.Least()))
	if n.Ranks > 1 {
		err = fmt.Errorf("%w, or start fewer ranks (parallel.ranks)", err)
	}
	return exit.With(exit.Usage, err)
}
