package runs

import (
	"encoding/json"
	"os"

	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// mostMemory is the largest file of planned memory, bytes: that of 4,096 ranks has about 6 MB.
const mostMemory = 16 << 20

// MemoryView is the memory of a rank: the account that `plan` prints, for the largest share of the rank, and the memory
// in use at the step of the records.
type MemoryView struct {
	Samples     int           `json:"samples"`
	Unified     bool          `json:"unified"` // the device computes in host memory, so Limit applies to both lists
	Device      []memory.Part `json:"device"`
	Host        []memory.Part `json:"host"`
	Optional    []memory.Part `json:"optional"`
	DeviceBytes int64         `json:"device_bytes"` // sum of Device
	HostBytes   int64         `json:"host_bytes"`   // what counts against Limit, without Optional
	DeviceLimit int64         `json:"device_limit"` // bytes; 0: unknown
	Limit       int64         `json:"limit"`        // bytes; 0: unknown
	LimitSource string        `json:"limit_source"`
	// Used is the measured resident memory of the process, bytes; 0: unknown
	Used int64 `json:"used"`
}

// readMemory returns the planned memory of the ranks of the newest process, by rank. It returns nil if this process
// wrote none, as older versions of the program do.
func readMemory(logs *os.Root, step int64, ranks int) []runtime.RankMemory {
	text, err := regular.ReadIn(logs, runtime.MemoryFile, mostMemory)
	if err != nil {
		return nil
	}
	var file runtime.Memory
	if json.Unmarshal(text, &file) != nil || file.Step != step || len(file.Ranks) != ranks {
		return nil
	}
	for _, r := range file.Ranks {
		for _, parts := range [][]memory.Part{r.Device, r.Host, r.Optional} {
			for _, p := range parts {
				if p.Bytes < 0 {
					return nil
				}
			}
		}
	}
	return file.Ranks
}

// memoryOf returns the view of the planned memory of a rank. record is its newest record, or nil.
func memoryOf(planned runtime.RankMemory, record *runtime.Record) *MemoryView {
	list := func(parts []memory.Part) []memory.Part { return append([]memory.Part{}, parts...) }
	a := planned.Account
	v := &MemoryView{Samples: a.Samples, Unified: a.Unified, Device: list(a.Device), Host: list(a.Host),
		Optional: list(a.Optional), DeviceBytes: a.DeviceBytes(), HostBytes: a.HostBytes(), DeviceLimit: a.DeviceLimit,
		Limit: a.Limit.Bytes, LimitSource: a.Limit.Source}
	if record != nil {
		if used := record.Telemetry[telemetry.Memory]; used > 0 {
			v.Used = int64(used / 100 * float64(planned.MeasuredOf))
		}
	}
	return v
}
