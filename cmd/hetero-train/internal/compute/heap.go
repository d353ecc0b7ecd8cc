package compute

import (
	"math"
	"runtime/debug"
	"runtime/metrics"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// mostGrowth is the largest growth of Go's heap between two collections, in percent of its live part, while the memory
// of a rank is measured. It is the default of GOGC. With a larger value, the tensors of the initial values remain as
// garbage until memory is used up.
const mostGrowth = 100

// HoldHeap lets Go's heap grow by at most mostGrowth percent between two collections, even if GOGC permits more. The
// memory of a rank is measured with this setting. BoundHeap replaces it when the memory account of the rank is known.
func (k *Rank) HoldHeap() {
	k.growth = debug.SetGCPercent(mostGrowth)
	if k.growth >= 0 && k.growth < mostGrowth {
		debug.SetGCPercent(k.growth)
	}
	k.Process.Later(func() error { debug.SetGCPercent(k.growth); return nil })
}

// BoundHeap limits Go's heap to the memory that the account leaves, even if GOMEMLIMIT permits more. GOGC then applies
// again, because Go collects garbage before it exceeds the limit. But if RLIMIT_AS or RLIMIT_DATA limits the process,
// the setting of HoldHeap remains. These limits also count addresses whose memory Go has returned; Go's own limit does
// not.
func (k *Rank) BoundHeap(a memory.Account) {
	log := k.Process.Opts.LogOf(logs.ComponentTrainer)
	if !a.Limit.Addresses {
		debug.SetGCPercent(k.growth)
	} else if k.growth < 0 || k.growth > mostGrowth {
		log.Warn("GOGC has no effect: ulimit counts all addresses of Go's heap, so the heap may grow by at most 100 % between two collections",
			"got_percent", k.growth, "using_percent", mostGrowth, "limit_from", a.Limit.Source)
	}
	if a.Limit.Bytes == 0 {
		return
	}
	before, left := debug.SetMemoryLimit(-1), k.GoLimit(a)
	if before <= left {
		return // GOMEMLIMIT is lower than this limit
	}
	debug.SetMemoryLimit(left)
	k.Process.Later(func() error { debug.SetMemoryLimit(before); return nil })
	if before < math.MaxInt64 {
		log.Warn("GOMEMLIMIT is larger than the memory that the other parts of this process leave, so the program lowers it",
			"got", memory.Size(before), "using", memory.Size(left), "limit_from", a.Limit.Source)
	}
}

// garbageBytes returns the bytes by which Go's heap may grow before the next collection. The result is at most the
// growth with the default of GOGC, because BoundHeap makes Go collect garbage earlier if memory is short.
func garbageBytes() int64 {
	samples := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	goal, live := samples[0].Value.Uint64(), samples[1].Value.Uint64()
	const leastHeap = 4 << 20 // smallest heap goal of Go's runtime, with the default of GOGC
	most := max(2*live+samples[2].Value.Uint64()+samples[3].Value.Uint64(), leastHeap)
	return max(int64(min(goal, most))-int64(live), 0)
}

// releasedBytes returns the bytes of Go's heap addresses whose memory Go has returned to the system.
func releasedBytes() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64())
}

// goBytes returns the bytes that Go's runtime has obtained from the system and has not returned.
func goBytes() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}

// GoLimit returns the largest value for GOMEMLIMIT, the memory limit of Go's runtime. It is the limit of this process
// minus the memory of native libraries, and minus that of a device that computes in host memory.
func (k *Rank) GoLimit(a memory.Account) int64 {
	native := int64(0)
	for _, p := range a.Host {
		switch p.Name {
		case replica.Program:
			native += max(p.Bytes-goBytes(), 0)
		case replica.ProgramFiles, replica.Reserved, replica.PageTables, replica.Results, replica.Staging:
			native += p.Bytes
		}
	}
	if a.Unified && !onGoHeap(k.Device.Info()) {
		native += a.DeviceBytes()
	}
	return max(a.Limit.Bytes-native, goBytes())
}

// onGoHeap reports whether a device allocates tensors on Go's heap.
func onGoHeap(info device.Info) bool { return info.Kind == "reference" }
