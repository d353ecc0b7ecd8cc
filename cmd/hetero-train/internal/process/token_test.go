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

// The program must refuse to read a secret from a pipe, which would block, or from a file that is larger than the
// memory.
func TestOddTokenFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe, large, empty, blank := filepath.Join(dir, "pipe"), filepath.Join(dir, "large"), filepath.Join(dir, "empty"),
		filepath.Join(dir, "blank")
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.WriteFile(blank, []byte(" \n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	clitest.MakeAt(t, pipe, clitest.PipeAt)
	clitest.MakeAt(t, large, clitest.Sparse(60<<30))
	for path, says := range map[string]string{pipe: "want a regular file", large: "want at most 65536",
		empty: empty + " is empty", blank: "parallel.token_file: " + blank + " is empty"} {
		if _, err := ReadToken(path, session.Environment{}); err == nil || exit.Code(err) != exit.Usage ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", path, err, says)
		}
	}
}

// Kubernetes mounts a secret with mode 0440, owner root and the group of fsGroup. If the owner of a file is not root,
// the group may contain untrusted users. The group must then not be able to read the file.
func TestWhoMayReadASecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := os.Getuid() == 0
	for mode, want := range map[os.FileMode]bool{
		0o600: true, 0o400: true, 0o440: root, 0o640: root, 0o444: false, 0o644: false, 0o460: false, 0o660: false,
		0o450: false, 0o401: false,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadToken(path, session.Environment{}); (err == nil) != want ||
			want && got != "0123456789abcdef" {
			t.Errorf("mode %04o, owner root %v: got %q, %v, want accepted %v", mode, root, got, err, want)
		}
	}
	if !root {
		return
	}
	const nobody = 65534
	if err := errors.Join(os.Chmod(path, 0o440), os.Chown(path, nobody, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadToken(path, session.Environment{}); err == nil ||
		!strings.Contains(err.Error(), "mode 0440, want 0600, or 0440 of a file of root") {
		t.Errorf("a file of another user: got %v", err)
	}
}
