package observe

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
)

func TestDecisionsOfStepsThatComeAgainAreDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "balance.jsonl")
	if err := os.WriteFile(path, []byte(`{"step":10}`+"\n"+`{"step":20}`+"\n"+`{"step":5}`+"\n"+`{"step":1`),
		0o644); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLines(nil, "decisions", path, 10, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.Add(map[string]int{"step": 15})
	l.Add(map[string]int{"step": 16})
	l.RolledBack(15)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if got, want := string(clitest.ReadFile(t, path)), `{"step":10}`+"\n"+`{"step":5}`+"\n"+`{"step":15}`+
		"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
