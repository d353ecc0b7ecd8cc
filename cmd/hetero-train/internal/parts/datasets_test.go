package parts

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
)

func TestAFallbackIsAdvisedOnlyWhereNoneIsSet(t *testing.T) {
	load := func(fallback string) *config.Config {
		var set []config.Override
		for key, value := range map[string]string{"data.dataset": "cifar10", "data.download": "never",
			"data.cache_dir": t.TempDir(), "data.num_samples": "8", "data.fallback": fallback} {
			set = append(set, config.Override{Key: key, Value: value})
		}
		cfg, err := config.Load("", BuiltinCatalog, set...)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	cfg := load("")
	if _, err := OpenData(t.Context(), cfg, 0, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), `data.fallback = "synthetic_image"`) {
		t.Errorf("none set: got %v, want it advised", err)
	} else if got := exit.Code(err); got != exit.Data {
		t.Errorf("none set: got exit code %d, want %d", got, exit.Data)
	}
	cfg = load("synthetic_image")
	set, err := OpenData(t.Context(), cfg, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if set.Name != "synthetic_image" || !strings.Contains(set.Note, "data.path") ||
		strings.Contains(set.Note, "data.fallback") {
		t.Errorf("set: got data set %s and note %q, want synthetic_image and no advice to fall back", set.Name,
			set.Note)
	}
}
