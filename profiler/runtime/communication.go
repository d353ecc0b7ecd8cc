package runtime

import (
	"math"
	"time"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// CommunicationFile is the name of the file with the communication of a run, in the folder of logs. Each line is a JSON
// object.
const CommunicationFile = "communication.jsonl"

// Communication is a line of CommunicationFile. It describes the steps since the previous line. When a run resumes or
// rolls back, the lines of steps after the checkpoint are removed.
type Communication struct {
	Step    int64               `json:"step"` // last step
	Steps   int64               `json:"steps"`
	Time    time.Time           `json:"time"`
	Seconds float64             `json:"step_seconds"` // mean duration of a step on rank 0, s
	Ranks   []RankCommunication `json:"ranks"`
	// all-reduces of rank 0, in their order; empty with a single rank
	Buckets []BucketTimes `json:"buckets,omitempty"`
}

// RankCommunication is the communication of a rank. Times are means per step, in s.
type RankCommunication struct {
	// time of data, forward and backward pass without waits for other ranks, and optimizer
	Compute float64       `json:"compute_seconds"`
	Exposed float64       `json:"exposed_seconds"` // wait for gradients
	Hidden  float64       `json:"hidden_seconds"`
	Bytes   float64       `json:"bytes"` // bytes of gradients that were summed over ranks, per step
	Links   []LinkTraffic `json:"links"`
}

// LinkTraffic is the traffic of a link in bytes/s.
type LinkTraffic struct {
	telemetry.Link
	Sent     *float64 `json:"sent,omitempty"` // nil: unknown
	Received *float64 `json:"received,omitempty"`
}

// BucketTimes contains the times of one bucket's all-reduce: means per step, in s. The times are nil if the device does
// not measure them.
type BucketTimes struct {
	Name    string   `json:"name"`
	Bytes   int64    `json:"bytes"`
	Exposed *float64 `json:"exposed_seconds,omitempty"` // time after the backward pass
	Hidden  *float64 `json:"hidden_seconds,omitempty"`
	// Bandwidth is the bus bandwidth in bytes/s, computed from bytes and time; see BusBandwidth.
	Bandwidth *float64 `json:"bus_bandwidth,omitempty"`
}

// BusBandwidth returns the bandwidth of each link in a ring all-reduce, in bytes/s, as defined by NCCL's tests. It is
// computed from the bytes of the buffer and the time. Without communication it is NaN.
func BusBandwidth(bytes, seconds float64, ranks int) float64 {
	if ranks < 2 || bytes <= 0 || seconds <= 0 {
		return math.NaN()
	}
	n := float64(ranks)
	return 2 * (n - 1) / n * bytes / seconds
}
