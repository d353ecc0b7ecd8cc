package local

import (
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/conformance"
)

func TestConformance(t *testing.T) {
	collectivetest.Run(conformance.Go(t), func(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		comms, err := New(size, Options{Timeout: limit})
		if err != nil {
			t.Fatal(err)
		}
		return collectivetest.GroupOf(comms, func(rank int) { comms[rank].Die() })
	})
}
