package program

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/config"
)

func TestAFallbackIsAdvisedOnlyWhereNoneIsSet(t *testing.T) {
	cfg := config.Default()
	cfg.Data.Dataset, cfg.Data.Download, cfg.Data.CacheDir, cfg.Data.NumSamples = "cifar10", "never", t.TempDir(), 8
	cfg.Data.Fallback = ""
	if _, err := openData(t.Context(), cfg, 0, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), `data.fallback = "synthetic_image"`) {
		t.Errorf("none set: got %v, want it advised", err)
	} else if got := exitCode(err); got != exitData {
		t.Errorf("none set: got exit code %d, want %d", got, exitData)
	}
	cfg.Data.Fallback = "synthetic_image"
	set, err := openData(t.Context(), cfg, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if set.name != "synthetic_image" || !strings.Contains(set.note, "data.path") || strings.Contains(set.note, "data.fallback") {
		t.Errorf("set: got data set %s and note %q, want synthetic_image and no advice to fall back", set.name, set.note)
	}
}
