package session

import (
	"math"
	"net"
	"runtime"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// IsCPURank reports whether this rank uses the CPU because of parallel.cpu_ranks. These ranks are the last ranks of
// their machine.
func (s *Session) IsCPURank() (bool, error) {
	n, assigned := s.Cfg.Parallel.CPURanks, s.Opts.Assignment
	if n == 0 || assigned.WorldSize <= 1 {
		return false, nil
	}
	if assigned.LocalRank < 0 || assigned.LocalWorldSize == 0 {
		return false, exit.Usagef("parallel.cpu_ranks: got %d, but the launcher sets neither the local rank of this process nor the number of ranks on this machine: set LOCAL_RANK and LOCAL_WORLD_SIZE, or set device.kind for each rank",
			n)
	}
	return assigned.LocalRank >= assigned.LocalWorldSize-n, nil
}

// LocalRanks returns the number of ranks on this machine if it is known before the rendezvous; see RanksOfMachine.
func (s *Session) LocalRanks() int { return RanksOfMachine(s.Opts.Assignment) }

// RanksOfMachine returns the number of ranks on this machine according to assigned. If the address of rank 0 is a
// loopback address, all ranks are on this machine.
func RanksOfMachine(assigned discovery.Assignment) int {
	if ip := net.ParseIP(assigned.MasterAddr); assigned.LocalWorldSize == 0 &&
		(assigned.MasterAddr == "localhost" || ip != nil && ip.IsLoopback()) {
		return max(assigned.WorldSize, 1)
	}
	return max(assigned.LocalWorldSize, 1)
}

// UsableCPUs returns the number of CPUs that the affinity and the quota of this process allow, but at least 1.
func UsableCPUs() int {
	n := runtime.NumCPU()
	if host, err := system.Detect(); err == nil && host.CPU.Quota > 0 {
		n = min(n, int(math.Ceil(host.CPU.Quota)))
	}
	return n
}

// OwnCPUs returns the number of CPUs of this rank. The ranks of a machine divide the usable CPUs, unless the testbed
// sets a quota for each rank.
func (s *Session) OwnCPUs() int {
	if own := s.Opts.Lab.Setup.CPUs; own > 0 {
		return min(int(math.Ceil(own)), runtime.NumCPU())
	}
	return max(UsableCPUs()/s.LocalRanks(), 1)
}
