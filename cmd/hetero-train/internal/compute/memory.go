package compute

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// MemoryBytes returns the memory that this rank may use, in bytes, or 0 if it is unknown. For a device with its own
// memory, this is the rank's part of the memory that was free when the device was opened. For host memory, it is at
// most HostLimit.
func (k *Rank) MemoryBytes() int64 {
	info := k.Device.Info()
	if info.FreeBytes > 0 {
		return info.FreeBytes / int64(max(k.sharers, 1))
	}
	limit := k.HostLimit()
	if info.Threads == 0 || limit.Bytes == 0 {
		return info.MemoryBytes
	}
	return min(info.MemoryBytes, limit.Bytes)
}

// HostLimit returns the memory that this process may use. It measures this memory only once, because later measurements
// would exclude the memory that the rank uses by then. In a run of several ranks, it measures at the first call after
// Meet. Calls before Meet return a preliminary result, which counts the memory of other ranks as that of other
// programs.
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

// Own returns the addresses that the process of a rank will reserve in addition to those that it has now. The parameter
// several is true if the rank communicates with other ranks.
func (k *Rank) Own(several bool) memory.Own {
	info := k.Device.Info()
	return memory.Own{Threads: process.MostThreads(info.Threads, several), OneArena: memory.OneArena(),
		Stack: memory.ThreadStack(), Tensors: onGoHeap(info)}
}

// AddressesLeft returns the addresses in bytes that this process can still reserve for data. limited is false if it has
// no limit of addresses.
func (k *Rank) AddressesLeft() (bytes int64, limited bool) {
	return memory.AddressesLeft(memory.System(), k.own)
}

// TotalMemory returns this rank's part, in bytes, of the whole memory of its GPU. For a device that computes in host
// memory, it returns the rank's part of the memory of the machine or the control group. Unlike MemoryBytes, it does not
// depend on the memory that other programs use at the moment.
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

// sharersOfMemory returns the other ranks on this machine, which share the limits of this process, whichever program
// started them.
func (k *Rank) sharersOfMemory() memory.Sharers {
	if k.Team == nil || k.Team.Group == nil {
		return memory.Sharers{Coming: k.Process.LocalRanks() - 1}
	}
	return memory.Sharers{PIDs: otherProcesses(k.Team.Group.Members(), k.Team.Place.Rank, k.pidSpaces)}
}

// otherProcesses returns the process numbers of the other ranks on the machine of rank own. The parameter spaces has
// the PID namespace of each rank. For a rank in another namespace, whose number may belong to a different process here,
// it returns memory.Hidden.
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

// pidSpace returns the PID namespace of this process, or "" if it is unknown.
func pidSpace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
}

// PlanHost sets the limit that HostLimit returns, and the addresses that this limit excludes. Commands that plan for
// ranks that are not running use it.
func (k *Rank) PlanHost(l memory.Limit, own memory.Own) {
	k.hostLimit, k.own, k.released = &l, own, math.MaxInt64 // a plan counts all released addresses as reserved
}

// MeasureProgram returns the parts of this process's memory before it contains a model. It collects garbage first.
// Ranks that share a limit also share the pages of mapped files, so each rank counts only its part of these pages. The
// result is nil if the system does not report the memory of a process.
func (k *Rank) MeasureProgram() []memory.Part {
	debug.FreeOSMemory()
	resident, known := memory.Resident(memory.System(), 0)
	if !known {
		return nil
	}
	parts := []memory.Part{{Name: replica.Program, Bytes: resident}, {Name: replica.Garbage, Bytes: garbageBytes()}}
	limit := k.HostLimit()
	if limit.Addresses { // limit already excludes the addresses of mapped files
		now, _ := memory.ReadAddressLimit(memory.System(), k.own)
		reserved := now.Excluded - limit.Excluded
		// Go's heap will reuse addresses whose memory it has released since HostLimit measured, for batches and files.
		// This applies to a run, which reads samples before this measurement. A plan reads no samples, and must not
		// promise more memory because of its own garbage.
		reserved -= min(max(releasedBytes()-k.released, 0), memory.HeapSpread/2)
		return append(parts, memory.Part{Name: replica.Reserved, Bytes: max(reserved, 0)})
	}
	files := memory.Mapped(memory.System()) / int64(max(limit.Ranks, 1))
	return append(parts, memory.Part{Name: replica.ProgramFiles, Bytes: files})
}
