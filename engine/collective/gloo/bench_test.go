//go:build cgo && linux

package gloo

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
)

// BenchmarkAllReduce uses loopback. The result is the speed of two hosts whose link is as fast as loopback. Ranks of
// one host should use shared memory instead.
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

// BenchmarkSmall compares the shapes by the times of small operations.
func BenchmarkSmall(b *testing.B) {
	need(b)
	for _, c := range []struct {
		name  string
		shape *Shape
	}{
		{"measured", nil},
		{"each to all", &Shape{Bytes: 4 << 10}},
		{"tree of radix 2", &Shape{Radix: 2, Bytes: 4 << 10}},
		{"tree of radix 8", &Shape{Radix: 8, Bytes: 4 << 10}},
		{"all below rank 0", &Shape{Radix: 1 << 20, Bytes: 4 << 10}},
	} {
		b.Run(c.name, func(b *testing.B) {
			sizes := []int{2, 8, 16, 32, 64}
			collectivetest.BenchmarkSmall(b, sizes, func(b *testing.B, size int) []collective.Communicator {
				comms, _ := shaped(b, size, 0, false, c.shape)
				if c.shape == nil {
					b.Logf("%d ranks: %v", size, comms[0].Shape())
				}
				var list []collective.Communicator
				for _, c := range comms {
					list = append(list, c)
				}
				return list
			})
		})
	}
}
