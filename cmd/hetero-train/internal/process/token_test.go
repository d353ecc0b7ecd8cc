package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// A secret must not be read from a pipe, which would block, or from a file that is larger than the memory.
func TestOddTokenFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe, large, empty, blank := filepath.Join(dir, "pipe"), filepath.Join(dir, "large"), filepath.Join(dir, "empty"), filepath.Join(dir, "blank")
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.WriteFile(blank, []byte(" \n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	clitest.MakeAt(t, pipe, clitest.PipeAt)
	clitest.MakeAt(t, large, clitest.Sparse(60<<30))
	for path, says := range map[string]string{pipe: "want a regular file", large: "want at most 65536", empty: empty + " is empty", blank: "parallel.token_file: " + blank + " is empty"} {
		if _, err := ReadToken(path, session.Environment{}); err == nil || exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", path, err, says)
		}
	}
}
