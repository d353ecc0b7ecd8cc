package memory

import (
	"io/fs"
	"strings"

	"github.com/hetero-train/hetero-train/engine/cgroup"
)

// Pressure describes how close this process is to the limit at which the kernel kills a process.
type Pressure struct {
	Source  string  // what sets the limit
	Limit   int64   // bytes
	Used    int64   // bytes that the kernel cannot reclaim without swapping
	Stalled float64 // percentage of the last 10 s in which all processes waited for memory; 0: unknown
}

// Throttles reports whether the kernel slows down processes at the limit (memory.high) instead of killing them.
func (p Pressure) Throttles() bool { return strings.HasPrefix(p.Source, "memory.high ") }

// Gauge reads the pressure repeatedly. It looks up the control groups only once.
type Gauge struct {
	root   fs.FS
	groups cgroup.Groups
}

// NewGauge returns a gauge of this process. root contains proc and sys.
func NewGauge(root fs.FS) Gauge { return Gauge{root, cgroup.Read(root)} }

// Pressure returns the pressure for the limit with the least memory left. This is the limit of a control group, or the
// memory of the machine. ok is false if neither is known.
func (g Gauge) Pressure() (p Pressure, ok bool) {
	root := g.root
	machine := keyed(root, "proc/meminfo")
	if total := machine["MemTotal"]; total > 0 {
		p, ok = Pressure{Source: "memory of the machine", Limit: total, Used: total - machine["MemAvailable"]}, true
	}
	level, limited := cgroup.Tightest(g.groups.Memory(root))
	if limited && (!ok || level.Limit-level.Used < p.Limit-p.Used) {
		p = Pressure{Source: level.File + " of /" + level.Folder, Limit: level.Limit, Used: level.Used,
			Stalled: level.Stalled}
		ok = true
	}
	return p, ok
}

// Thresholds of Near. Below them, the kernel can still reclaim pages of files.
const (
	nearAlways    = 0.99 // fraction of the limit
	nearUnplanned = 0.95 // fraction of the limit, if the process uses more than its account or is stalled
	overPlan      = 1.02 // ratio of resident to planned; measurements of memory are inexact by up to 2 %
	nearStalled   = 10   // percent of the time; see Pressure.Stalled
)

// Near reports whether the kernel may kill a process soon. resident is the memory that this process uses, and planned
// the memory of its account. As long as resident does not exceed planned, the process may come closer to the limit.
func (p Pressure) Near(resident, planned int64) bool {
	used := float64(p.Used) / float64(p.Limit)
	unplanned := float64(resident) > overPlan*float64(planned)
	return used >= nearAlways || used >= nearUnplanned && unplanned || p.Stalled >= nearStalled && used >= nearUnplanned
}
