package run

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/config"
)

// Machines may share a configuration. Only the machines that serve metrics need the certificate files of the server.
func TestFilesOfMetricsAreNeededWhereTheyAreServed(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	files := map[string]config.Metrics{
		"metrics.cert_file":  {CertFile: absent, KeyFile: absent},
		"metrics.token_file": {TokenFile: absent},
	}
	for key, m := range files {
		for _, c := range []struct {
			ranks  string
			first  int // first rank of this machine
			launch bool
			needed bool
		}{
			{"first", 0, true, true}, {"first", 0, false, true}, {"first", 2, true, false}, {"first", 2, false, false},
			{"all", 0, true, true}, {"all", 2, true, true}, {"all", 2, false, true},
		} {
			m.Address, m.Ranks = "127.0.0.1:0", c.ranks
			at := discovery.Assignment{Rank: c.first, Launch: c.launch, WorldSize: 4}
			err := checkMetrics(&config.Config{Metrics: m}, session.Options{Assignment: at})
			if got := err != nil && strings.Contains(err.Error(), key); got != c.needed || !c.needed && err != nil {
				t.Errorf("%s, rank %d of ranks %q: got %v, want an error: %v", key, c.first, c.ranks, err, c.needed)
			}
		}
	}
}
