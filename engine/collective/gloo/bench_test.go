//go:build cgo && linux

package gloo

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
)

// BenchmarkAllReduce goes over loopback: what two hosts would get with a link of that speed, and what ranks of one host
// should not use.
func BenchmarkAllReduce(b *testing.B) {
	collectivetest.Benchmark(b, []int{2}, func(b *testing.B, size int) []collective.Communicator {
		comms, _ := connect(b, size, 0)
		var list []collective.Communicator
		for _, c := range comms {
			list = append(list, c)
		}
		return list
	})
}
