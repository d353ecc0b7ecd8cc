//go:build cgo && linux

package gloo

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
)

// BenchmarkAllReduce uses loopback. The result is the speed of two hosts with a link of this speed. Ranks of one host
// should use shared memory instead.
func BenchmarkAllReduce(b *testing.B) { benchmark(b, false) }

func BenchmarkAllReduceEncrypted(b *testing.B) { benchmark(b, true) }

func benchmark(b *testing.B, encrypt bool) {
	need(b)
	collectivetest.Benchmark(b, []int{2}, func(b *testing.B, size int) []collective.Communicator {
		comms, _ := connected(b, size, 0, encrypt)
		var list []collective.Communicator
		for _, c := range comms {
			list = append(list, c)
		}
		return list
	})
}
