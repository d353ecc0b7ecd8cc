package assembly

import (
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
)

// Only one rank may have the dashboard, the metrics of all ranks, or a tracking server.
func TestRanksMayServeAndReportDifferently(t *testing.T) {
	cfg, err := config.Parse("defaults", nil, parts.BuiltinCatalog)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, s := range cfg.Settings() {
		if slices.ContainsFunc(local, func(prefix string) bool { return strings.HasPrefix(s.Key, prefix) }) {
			continue
		}
		compared++
		for _, table := range []string{"dashboard", "metrics", "notify", "tracking"} {
			if strings.HasPrefix(s.Key, table+".") {
				t.Errorf("ranks compare %s", s.Key)
			}
		}
	}
	if compared < 50 {
		t.Errorf("ranks compare only %d settings", compared)
	}
}

// A data set of another module may lack names and stored bytes of its samples. Ranks then compare the digest that the
// data set provides.
func TestRanksCompareTheDigestOfADataSetWithoutNames(t *testing.T) {
	r := &Run{Data: &parts.Opened{Splits: data.Splits{Fingerprint: "digest"}}}
	if got := r.fingerprint(); got != `, fingerprint "digest"` {
		t.Errorf("without names: got %q, want the digest of the data set", got)
	}
	r.Data.Tokens = &parts.TokenSplits{Identity: "tokens"}
	if got := r.fingerprint(); got != `, fingerprint "tokens"` {
		t.Errorf("text without content: got %q, want its identity", got)
	}
	r.Data.Tokens.Identity = ""
	if got := r.fingerprint(); got != "" {
		t.Errorf("data that the settings determine: got %q, want nothing", got)
	}
}
