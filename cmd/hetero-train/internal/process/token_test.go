package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// A secret must not be read from a pipe, nor from a file that exceeds the memory.
func TestOddTokenFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	makeAt(t, pipe, pipeAt)
	makeAt(t, large, sparse(60<<30))
	for path, says := range map[string]string{pipe: "want a regular file", large: "want at most 65536"} {
		if _, err := ReadToken(path, session.Environment{}); err == nil || exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", path, err, says)
		}
	}
}

// makeAt creates the folder of a file, then the file.
func makeAt(t *testing.T, path string, file func(path string) error) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), file(path)); err != nil {
		t.Fatal(err)
	}
}

func pipeAt(path string) error { return syscall.Mkfifo(path, 0o600) }

// Sparse files take no disk space. A program that reads a whole one exceeds the memory.
func sparse(bytes int64) func(path string) error {
	return func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, bytes))
	}
}
