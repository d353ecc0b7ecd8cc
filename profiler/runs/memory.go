package runs

import (
	"encoding/json"
	"os"
	"slices"

	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// mostMemory is the largest size in bytes of a file of planned memory. The file of 4,096 ranks has about 6 MB.
const mostMemory = 16 << 20

// mostBytes is larger than any memory.
const mostBytes = 1 << 60

// MemoryView is the memory of a rank. It contains the account for the largest share of the rank, as the command plan
// prints it. It also contains the memory in use at the step of the record.
type MemoryView struct {
	Samples     int           `json:"samples"`
	Unified     bool          `json:"unified"` // the device computes in host memory, so Limit applies to both lists
	Device      []memory.Part `json:"device"`
	Host        []memory.Part `json:"host"`
	Optional    []memory.Part `json:"optional"`
	DeviceBytes int64         `json:"device_bytes"` // sum of Device
	HostBytes   int64         `json:"host_bytes"`   // sum of the parts that count against Limit, without Optional
	DeviceLimit int64         `json:"device_limit"` // bytes; 0: unknown
	Limit       int64         `json:"limit"`        // bytes; 0: unknown
	LimitSource string        `json:"limit_source"`
	// Used is the measured resident memory of the process, bytes; 0: unknown, for example for a rank with a GPU
	Used int64 `json:"used"`
	// UsedAtLeast is set if the process uses Used or more: records have no percentages above 100.
	UsedAtLeast bool `json:"used_at_least"`
	// ImageDecoders is the measured memory of the image decoders, the largest so far, bytes; 0: unknown, or no images
	// are decoded. The account does not contain it.
	ImageDecoders int64 `json:"image_decoders"`
}

// readMemory returns the planned memory of the ranks of the newest process, by rank. The parameter start is the ID of
// this process, or "" if it is unknown. step is the last step before this process began. readMemory returns nil if this
// process has written no planned memory. Older versions of the program and the bridge write none.
func readMemory(logs *os.Root, start string, step int64, ranks int) []runtime.RankMemory {
	text, err := regular.ReadIn(logs, runtime.MemoryFile, mostMemory)
	if err != nil {
		return nil
	}
	var file runtime.Memory
	if json.Unmarshal(text, &file) != nil || file.Step != step || len(file.Ranks) != ranks ||
		start != "" && file.Start != start || slices.ContainsFunc(file.Ranks, impossible) {
		return nil
	}
	return file.Ranks
}

// impossible reports whether a number of the planned memory is negative, or a sum is larger than any memory.
func impossible(r runtime.RankMemory) bool {
	sum := int64(0)
	for _, parts := range [][]memory.Part{r.Device, r.Host, r.Optional} {
		for _, p := range parts {
			if p.Bytes < 0 || p.Bytes > mostBytes-sum {
				return true
			}
			sum += p.Bytes
		}
	}
	return r.Samples < 0 || min(r.DeviceLimit, r.Limit.Bytes, r.Limit.Hard, r.MeasuredOf) < 0
}

// memoryOf returns the view of the planned memory of a rank. record is the newest record of the rank, or nil. The
// process that wrote the plan began after step. The percentages of earlier records belong to another process, so
// memoryOf ignores them.
func memoryOf(planned runtime.RankMemory, record *runtime.Record, step int64) *MemoryView {
	list := func(parts []memory.Part) []memory.Part { return append([]memory.Part{}, parts...) }
	a := planned.Account
	v := &MemoryView{Samples: a.Samples, Unified: a.Unified, Device: list(a.Device), Host: list(a.Host),
		Optional: list(a.Optional), DeviceBytes: a.DeviceBytes(), HostBytes: a.HostBytes(), DeviceLimit: a.DeviceLimit,
		Limit: a.Limit.Bytes, LimitSource: a.Limit.Source}
	if record == nil || record.Iteration <= step {
		return v
	}
	if bytes := record.Telemetry[telemetry.ImageDecoders]; bytes > 0 {
		v.ImageDecoders = int64(min(bytes, mostBytes))
	}
	if planned.MeasuredOf > 0 {
		if used := record.Telemetry[telemetry.Memory]; used > 0 {
			v.Used, v.UsedAtLeast = int64(min(used, 100)/100*float64(planned.MeasuredOf)), used >= 100
		}
	}
	return v
}
