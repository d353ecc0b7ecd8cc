package process

import (
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
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	clitest.MakeAt(t, pipe, clitest.PipeAt)
	clitest.MakeAt(t, large, clitest.Sparse(60<<30))
	for path, says := range map[string]string{pipe: "want a regular file", large: "want at most 65536"} {
		if _, err := ReadToken(path, session.Environment{}); err == nil || exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", path, err, says)
		}
	}
}
