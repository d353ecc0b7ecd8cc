package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
)

func TestCredentialsAreReadAsARunReadsThem(t *testing.T) {
	dir := t.TempDir()
	token, missing := filepath.Join(dir, "token"), filepath.Join(dir, "missing")
	if err := os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	probe := func(change func(*config.Config), environ ...string) []credential {
		cfg := new(config.Config)
		change(cfg)
		return probeCredentials(compute.NewRank(cfg, session.Options{Env: session.Environment{Environ: environ}}))
	}
	if got := probe(func(*config.Config) {}); len(got) != 0 {
		t.Errorf("nothing is configured: got %+v", got)
	}
	for _, c := range []struct {
		name, key, fault string
		change           func(*config.Config)
		environ          []string
	}{
		{"a token", "parallel.token_file", "", func(c *config.Config) { c.Parallel.TokenFile = token }, nil},
		{"a short token", "parallel", "has 5 characters", func(*config.Config) {}, []string{"HETERO_TOKEN=short"}},
		{"no token", "parallel", "no such file", func(c *config.Config) { c.Parallel.TokenFile = missing }, nil},
		{"no certificate", "metrics.cert_file", "no such file", func(c *config.Config) {
			c.Metrics.CertFile, c.Metrics.KeyFile = missing, token
		}, nil},
		{"no certificate in the file", "dashboard.cert_file", "failed to find", func(c *config.Config) {
			c.Dashboard.CertFile, c.Dashboard.KeyFile = token, token
		}, nil},
	} {
		got := probe(c.change, c.environ...)
		if len(got) != 1 || got[0].Key != c.key || !strings.Contains(got[0].Fault, c.fault) ||
			(c.fault == "") != (got[0].Fault == "") {
			t.Errorf("%s: got %+v, want %s with %q", c.name, got, c.key, c.fault)
		}
	}
}
