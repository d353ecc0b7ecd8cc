package compute

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// HostLimit returns the memory that this process may use. It is measured at the first call, because the memory that the
// rank uses later is part of it. With several ranks, a call before Meet counts the memory of the other ranks as memory
// of other programs.
func (k *Rank) HostLimit() memory.Limit {
	if k.hostLimit != nil {
		return *k.hostLimit
	}
	several := k.Process.Opts.Assignment.WorldSize > 1
	k.own = k.Own(several)
	sharers := k.sharersOfMemory()
	sharers.Own = k.own
	limit := memory.ReadLimit(memory.System(), sharers)
	if k.met() || !several {
		k.hostLimit, k.released = &limit, releasedBytes()
	}
	return limit
}

// Own returns the addresses that the process of a rank reserves in addition to those that it has now. several reports
// that the rank communicates with others.
func (k *Rank) Own(several bool) memory.Own {
	info := k.Device.Info()
	return memory.Own{Threads: process.MostThreads(info.Threads, several), OneArena: memory.OneArena(),
		Tensors: onGoHeap(info)}
}

// onGoHeap reports whether a device allocates tensors on Go's heap.
func onGoHeap(info device.Info) bool { return info.Kind == "reference" }

// TotalMemory returns this rank's part of all memory of its device, or of its machine and control groups, bytes. Unlike
// MemoryBytes, it does not depend on the memory that other programs use at the moment.
func (k *Rank) TotalMemory() int64 {
	info := k.Device.Info()
	if info.Threads == 0 {
		return info.MemoryBytes / int64(max(k.sharers, 1))
	}
	total := info.MemoryBytes
	if limit, limited := memory.GroupLimit(memory.System()); limited {
		total = min(total, limit)
	}
	return total / int64(max(k.Process.LocalRanks(), 1))
}

// met reports whether this rank has joined the other ranks.
func (k *Rank) met() bool { return k.Team != nil && (k.Team.Group != nil || k.Team.Exchange != nil) }

// sharersOfMemory returns the processes that share the limits of this process. It does not matter which program started
// the ranks.
func (k *Rank) sharersOfMemory() memory.Sharers {
	if k.Team == nil || k.Team.Group == nil {
		return memory.Sharers{Coming: k.Process.LocalRanks() - 1}
	}
	return memory.Sharers{PIDs: otherProcesses(k.Team.Group.Members(), k.Team.Place.Rank, k.pidSpaces)}
}

// otherProcesses returns the processes of the other ranks on the machine of rank own. spaces are the namespaces of
// processes by rank. Processes of two namespaces may have the same number.
func otherProcesses(members []rendezvous.Member, own int, spaces []string) (pids []int) {
	for rank, m := range members {
		switch {
		case rank == own || m.Host != members[own].Host:
		case len(spaces) == len(members) && spaces[rank] == spaces[own]:
			pids = append(pids, m.PID)
		default:
			pids = append(pids, memory.Hidden)
		}
	}
	return pids
}

// pidSpace returns the namespace of processes of this process; "": unknown.
func pidSpace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
}

// PlanHost sets the limit that HostLimit returns, and the addresses that this limit excludes. It is for plans of ranks
// that do not exist.
func (k *Rank) PlanHost(l memory.Limit, own memory.Own) {
	k.hostLimit, k.own, k.released = &l, own, math.MaxInt64 // a plan counts all addresses
}

// MeasureProgram returns the memory of this process, before it contains a model. It collects garbage first. Ranks that
// share a limit also share the pages of mapped files, so each rank counts only its part of these pages. The result is
// nil if the system reports no memory of processes.
func (k *Rank) MeasureProgram() []memory.Part {
	debug.FreeOSMemory()
	resident, known := memory.Resident(memory.System(), 0)
	if !known {
		return nil
	}
	parts := []memory.Part{{Name: replica.Program, Bytes: resident}, {Name: replica.Garbage, Bytes: garbageBytes()}}
	limit := k.HostLimit()
	if limit.Addresses { // it excludes the addresses of mapped files
		now, _ := memory.ReadAddressLimit(memory.System(), k.own)
		reserved := limit.Bytes - now.Bytes
		// Go's heap uses the addresses of freed memory again, for batches and files. A run reads samples before this
		// measurement; a plan does not, and must not promise more because of its own garbage.
		reserved -= min(max(releasedBytes()-k.released, 0), memory.HeapSpread/2)
		return append(parts, memory.Part{Name: replica.Reserved, Bytes: max(reserved, 0)})
	}
	files := memory.Mapped(memory.System()) / int64(max(limit.Ranks, 1))
	return append(parts, memory.Part{Name: replica.ProgramFiles, Bytes: files})
}
