package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/config"
)

func TestCredentialsAreReadAsARunReadsThem(t *testing.T) {
	dir := t.TempDir()
	token, missing := filepath.Join(dir, "token"), filepath.Join(dir, "missing")
	if err := os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := probeCredentials(compute.NewRank(new(config.Config), session.Options{})); len(got) != 0 {
		t.Errorf("nothing is configured: got %+v", got)
	}
	metrics := func(ranks string) func(*config.Config) {
		return func(c *config.Config) {
			c.Metrics = config.Metrics{Address: "127.0.0.1:0", Ranks: ranks, CertFile: missing, KeyFile: token}
		}
	}
	dashboard := func(enabled bool) func(*config.Config) {
		return func(c *config.Config) {
			c.Dashboard.Enabled, c.Dashboard.CertFile, c.Dashboard.KeyFile = enabled, token, token
		}
	}
	for _, c := range []struct {
		name, key, fault string // "": no finding
		level            level
		rank, ranks      int
		change           func(*config.Config)
		environ          []string
	}{
		{"a token", "parallel.token_file", "", good, 0, 2, func(c *config.Config) {
			c.Parallel.TokenFile = token
		}, nil},
		{"a short token", "parallel", "has 5 characters", fault, 0, 2, func(*config.Config) {},
			[]string{"HETERO_TOKEN=short"}},
		{"a short token of one rank", "parallel", "has 5 characters", warning, 0, 1, func(*config.Config) {},
			[]string{"HETERO_TOKEN=short"}},
		{"no token", "parallel", "no such file", fault, 0, 2, func(c *config.Config) {
			c.Parallel.TokenFile = missing
		}, nil},
		{"no certificate of the metrics", "metrics.cert_file", "no such file", fault, 0, 2, metrics("first"), nil},
		{"the metrics of another rank", "", "", "", 1, 2, metrics("first"), nil},
		{"the metrics of each rank", "metrics.cert_file", "no such file", fault, 1, 2, metrics("all"), nil},
		{"no metrics", "", "", "", 0, 1, func(c *config.Config) {
			c.Metrics.CertFile, c.Metrics.KeyFile = missing, token
		}, nil},
		{"a short token of the metrics", "metrics.token_file", "has 5 bytes", fault, 0, 1, func(c *config.Config) {
			c.Metrics.Address = "127.0.0.1:0"
		}, []string{"HETERO_METRICS_TOKEN=short"}},
		{"no certificate in the file", "dashboard.cert_file", "failed to find", warning, 0, 1, dashboard(true), nil},
		{"no dashboard", "", "", "", 0, 1, dashboard(false), nil},
		{"no receiver", "notify.webhook_file", "no such file", fault, 0, 1, func(c *config.Config) {
			c.Notify.WebhookFile = missing
		}, nil},
	} {
		cfg := new(config.Config)
		c.change(cfg)
		k := compute.NewRank(cfg, session.Options{Env: session.Environment{Environ: c.environ},
			Assignment: discovery.Assignment{Rank: c.rank, WorldSize: c.ranks}})
		if c.ranks > 1 {
			k.Team = &process.Team{Place: k.Process.Opts.Assignment}
		}
		got := probeCredentials(k)
		if c.key == "" {
			if len(got) > 0 {
				t.Errorf("%s: got %+v, want nothing", c.name, got)
			}
			continue
		}
		f := findings{of: &machine{Credentials: got}}
		f.credentials()
		if len(got) != 1 || got[0].Key != c.key || !strings.Contains(got[0].Fault, c.fault) ||
			(c.fault == "") != (got[0].Fault == "") || f.list[0].Level != c.level {
			t.Errorf("%s: got %+v, %+v, want %s, %s with %q", c.name, got, f.list, c.level, c.key, c.fault)
		}
	}
}

func TestTheTimeBeforeACertificateExpires(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name       string
		life, left time.Duration
		server     bool
		want       level
		cure       string
	}{
		{"a year, a month left", 365 * day, 30 * day, false, good, ""},
		{"a year, a week left", 365 * day, 7 * day, false, warning, "hetero-train certs"},
		{"a week, three days left", 7 * day, 3 * day, true, good, ""},
		{"a week, two days left", 7 * day, 2 * day, true, warning, "without a restart"},
		{"valid tomorrow", 7 * day, 8 * day, true, warning, "correct the clock"},
	} {
		until := time.Now().Add(c.left)
		from := until.Add(-c.life)
		f := findings{of: &machine{Credentials: []credential{{Key: "a", From: &from, Until: &until, Server: c.server}}}}
		f.credentials()
		if got := f.list[0]; got.Level != c.want || !strings.Contains(got.Cure, c.cure) {
			t.Errorf("%s: got %+v, want %s, %q", c.name, got, c.want, c.cure)
		}
	}
}
