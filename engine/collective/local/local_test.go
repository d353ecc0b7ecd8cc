package local

import (
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/conformance"
)

func TestConformance(t *testing.T) {
	suite := conformance.Go(t)
	if testing.Short() {
		suite = conformance.Brief(suite, "-short: takes seconds, and a minute under the race detector")
	}
	collectivetest.Run(suite, func(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		comms, err := New(size, Options{Timeout: limit})
		if err != nil {
			t.Fatal(err)
		}
		return collectivetest.GroupOf(comms, func(rank int) { comms[rank].Die() })
	})
}
