package assembly

import (
	"log/slog"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// If only the result of an earlier run exists, the comparison must use the precision of that run's rank 0.
func TestAResultOfSeveralTypes(t *testing.T) {
	cfg, err := config.Parse("run.toml", nil, parts.BuiltinCatalog)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Train.Precision = "bf16" // with a fixed precision, another one is a change; with "auto", it is not
	r := New(cfg, session.Options{Env: session.Environment{Catalog: parts.BuiltinCatalog},
		Log: slog.New(slog.DiscardHandler)})
	r.Learnt = derived{"data.dataset": `"synthetic_image"`, "train.precision": `"bf16"`}
	for _, c := range []struct {
		precision string
		changes   int
	}{{"bf16", 0}, {"bf16 (ranks 0, 1), f32 (rank 2)", 0}, {"f32 (rank 0), bf16 (rank 1)", 1}} {
		got, err := r.compare(experiment.Earlier{From: "resolved.toml", Config: "[train]\nepochs = 10\n",
			Result: &experiment.Result{Dataset: "synthetic_image", Precision: c.precision}})
		if err != nil || len(got) != c.changes {
			t.Errorf("a run in %s, resumed in bf16: got %v, %v, want %d changes", c.precision, got, err, c.changes)
		}
	}
}
