package local

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
)

// Model is how long operations take on devices that model time. The zero value: no time at all.
type Model struct {
	LatencySeconds float64 // of one message from a rank to another
	BytesPerSecond float64 // that a rank sends and, at the same time, receives; 0 = no limit
	RealTime       float64 // seconds of sleep for a modelled second; 0 = never sleep
}

// Duration is what op takes among size ranks, on a ring: an all-reduce sends 2·(size-1)/size of the buffer in
// 2·(size-1) messages one after the other, the others half of that.
func (m Model) Duration(op collective.Op, size int) time.Duration {
	messages := float64(size - 1)
	if _, both := op.(collective.AllReduce); both {
		messages *= 2
	}
	seconds := messages * m.LatencySeconds
	if m.BytesPerSecond > 0 {
		buffer, _, _ := op.Memory()
		seconds += messages / float64(size) * float64(buffer.Bytes) / m.BytesPerSecond
	}
	return time.Duration(seconds * float64(time.Second))
}
