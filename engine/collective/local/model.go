package local

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
)

// Model computes how long operations take on devices that model time. With the zero value, operations take no time.
type Model struct {
	LatencySeconds float64 // time of one message between two ranks, s
	BytesPerSecond float64 // rate at which a rank sends and, at the same time, receives; 0: no limit
	RealTime       float64 // seconds of sleep per modelled second; 0 = no sleep
}

// Duration returns the duration of op among size ranks on a ring. An all-reduce sends 2·(size-1)/size of the buffer in
// 2·(size-1) sequential messages. The other operations send half as many bytes in half as many messages.
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
