//go:build cgo && linux

package shm

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
)

func BenchmarkAllReduce(b *testing.B) {
	collectivetest.Benchmark(b, []int{2, 4}, func(b *testing.B, size int) []collective.Communicator {
		var list []collective.Communicator
		for _, c := range connect(b, size, Config{}) {
			list = append(list, c)
		}
		return list
	})
}
