package data

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
)

func TestAFileThatCameMeanwhileIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	for _, path := range []string{from, to} {
		if err := os.WriteFile(path, []byte(path), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := nameAnew(from, to); !errors.Is(err, fs.ErrExist) || string(clitest.ReadFile(t, to)) != to {
		t.Errorf("got %v, and the file holds %q", err, clitest.ReadFile(t, to))
	}
}
