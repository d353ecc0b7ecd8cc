package compute

import (
	"runtime/debug"
	"runtime/metrics"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// HostLimit returns the memory that this process may use. It is measured at the first call, because the memory that the
// rank uses later is part of it. With several ranks, calls before Meet count the memory of the other ranks as that of
// other programs.
func (k *Rank) HostLimit() memory.Limit {
	if k.hostLimit != nil {
		return *k.hostLimit
	}
	limit := memory.ReadLimit(memory.System(), k.sharersOfMemory())
	if k.Team != nil || k.Process.LocalRanks() == 1 {
		k.hostLimit = &limit
	}
	return limit
}

// sharersOfMemory returns the processes that divide the limits of this process.
func (k *Rank) sharersOfMemory() memory.Sharers {
	s := memory.Sharers{Group: 1, Machine: k.Process.LocalRanks()}
	if session.SharesLimits(k.Process.Opts.Assignment, k.Process.Opts.Env) {
		s.Group = s.Machine
	}
	if k.Team == nil || k.Team.Group == nil {
		return s
	}
	members := k.Team.Group.Members()
	own := members[k.Team.Place.Rank]
	for _, m := range members {
		if m.Host == own.Host && m.PID != own.PID {
			s.PIDs = append(s.PIDs, m.PID)
		}
	}
	return s
}

// PlanHost sets the limit that HostLimit returns, and the number of ranks that share the mapped files, for plans of
// ranks that do not exist.
func (k *Rank) PlanHost(l memory.Limit, ranks int) { k.hostLimit, k.planned = &l, ranks }

// MeasureProgram returns the memory of this process, which holds no model yet. It collects garbage first. Ranks of one
// control group share the pages of mapped files, so each counts its part of them. The result is nil if the system
// reports no memory of processes.
func (k *Rank) MeasureProgram() []memory.Part {
	debug.FreeOSMemory()
	resident, known := memory.Resident(memory.System(), 0)
	if !known {
		return nil
	}
	files := memory.Mapped(memory.System()) / int64(max(k.planned, k.sharersOfMemory().Group))
	return []memory.Part{{Name: replica.Program, Bytes: resident}, {Name: replica.Garbage, Bytes: garbageBytes()},
		{Name: replica.ProgramFiles, Bytes: files}}
}

// garbageBytes returns the bytes by which Go's heap may grow before the next collection.
func garbageBytes() int64 {
	samples := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return max(int64(samples[0].Value.Uint64())-int64(samples[1].Value.Uint64()), 0)
}

// goBytes returns the memory that Go's runtime has obtained from the system and not returned.
func goBytes() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}

// GoLimit returns the limit of Go's runtime (GOMEMLIMIT) for an account: what remains of the limit of this process
// after the memory of native libraries, and after that of a device that computes in host memory. Go collects garbage
// before it exceeds the limit.
func (k *Rank) GoLimit(a memory.Account) int64 {
	native := int64(0)
	for _, p := range a.Host {
		switch p.Name {
		case replica.Program:
			native += max(p.Bytes-goBytes(), 0)
		case replica.ProgramFiles, replica.PageTables, replica.Results, replica.Staging:
			native += p.Bytes
		}
	}
	if a.Unified && k.Device.Info().Kind != "reference" { // the reference device allocates on Go's heap
		native += a.DeviceBytes()
	}
	return max(a.Limit.Bytes-native, goBytes())
}
