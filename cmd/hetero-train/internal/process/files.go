package process

import (
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// Open files of processes during training, counted in /proc/PID/fd with 1 to 24 ranks (docs/reliability.md).
const (
	// supervisorFiles: standard streams, quota of the CPU, the runtime's poller, and the pipes of a rank that starts.
	supervisorFiles = 11
	supervisedFiles = 4 // of each rank: handle of the process, two streams of output, cause of a failure
	// leaderFiles: records, tables, lock and log of the run, what every rank has, and 6 for a save, a probe of the
	// machine, and the files of libraries.
	leaderFiles   = 30
	recordFiles   = 2  // of each other rank, at rank 0: its metrics and its part of the records
	followerFiles = 18 // of a rank that is not rank 0
	networkFiles  = 4  // of a rank that communicates over Gloo: two pollers and, while it connects, two sockets
	communicators = 2  // for gradients and for statistics
	relayFiles    = 2  // of an encrypted connection: the two ends of a connection within the process
	// mostDataFiles: files of a data set that a process opens at once. The readers take a quarter of the limit.
	mostDataFiles = 256
)

// FileNeed is what decides how many files the processes of a run open.
type FileNeed struct {
	Ranks   int  // of the run
	Local   int  // ranks of this machine
	First   bool // rank 0 is on this machine
	Starts  bool // this process starts the ranks of this machine
	Shared  bool // the ranks of a machine communicate through shared memory
	Encrypt bool
	Data    bool // the samples are in files
}

// needOfFiles returns what the configuration and the place of a process mean for its files.
func needOfFiles(cfg *config.Config, opts session.Options) FileNeed {
	assigned := opts.Assignment
	n := FileNeed{Ranks: max(assigned.WorldSize, 1), Local: session.RanksOfMachine(assigned),
		Starts: assigned.Launch && assigned.LocalWorldSize > 1, First: assigned.Rank == 0,
		Shared: cfg.Parallel.SharedMemory != "off", Encrypt: cfg.Parallel.Encrypt,
		Data: !strings.HasPrefix(cfg.Data.Dataset, "synthetic")}
	n.Local = min(n.Local, n.Ranks)
	return n
}

// Most returns the largest number of files that one process of this machine opens.
func (n FileNeed) Most() int {
	most := n.rank()
	if n.Starts {
		most = max(most, supervisorFiles+supervisedFiles*n.Local)
	}
	return most
}

// rank returns the number of files of the rank with most files on this machine: rank 0, or the first rank.
func (n FileNeed) rank() int {
	others, machines := n.Ranks-1, (n.Ranks+n.Local-1)/n.Local
	files := followerFiles
	if n.First {
		files = leaderFiles + (1+recordFiles)*others // a connection for rank discovery, and records, of each
	}
	groups := 1 // groups of ranks in shared memory
	if machines > 1 {
		groups = 2 // within the machine, and for results of other machines
	}
	peers := 0 // ranks with a connection over the network
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
	if n.Data {
		files += min((files+2)/3, mostDataFiles)
	}
	return files
}

// CheckFiles raises the limit of open files to the need of the run, or up to the hard limit. It returns an error if the
// result is too low. A supervisor checks the files of its ranks too.
func CheckFiles(cfg *config.Config, opts session.Options) error {
	if opts.Supervised() {
		return nil
	}
	need := needOfFiles(cfg, opts)
	limit, known := platform.RaiseFileLimit(uint64(need.Most()))
	if !known || limit >= uint64(need.Most()) {
		return nil
	}
	of := "a rank"
	if need.Ranks > 1 {
		of = fmt.Sprintf("a run of %d ranks", need.Ranks)
	}
	err := fmt.Errorf("the limit of open files is too low: got %d, want at least %d for the process with most files of %s; "+
		"raise the hard limit (ulimit -n %d, LimitNOFILE=%d in a unit of systemd, or docker run --ulimit nofile=%d)",
		limit, need.Most(), of, need.Most(), need.Most(), need.Most())
	if need.Ranks > 1 {
		err = fmt.Errorf("%w, or start fewer ranks (parallel.ranks)", err)
	}
	return exit.With(exit.Usage, err)
}
