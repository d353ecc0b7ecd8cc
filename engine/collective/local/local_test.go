package local

import (
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
)

func TestConformance(t *testing.T) {
	collectivetest.Run(t, func(t *testing.T, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		comms, err := New(size, Options{Timeout: limit})
		if err != nil {
			t.Fatal(err)
		}
		g := collectivetest.Group{Kill: func(rank int) { comms[rank].Die() }}
		for _, c := range comms {
			g.Comms = append(g.Comms, collective.Communicator(c))
		}
		return g
	})
}
