package program_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

const repository = "../../.."

// TestHeadlinesAreNotStale fails if a figure of BENCHMARKS.md names a commit that is not an ancestor. It also fails if
// the code that the figure measures has changed since this commit, unless the page states the change.
func TestHeadlinesAreNotStale(t *testing.T) {
	t.Parallel()
	needGit(t)
	if out, err := exec.CommandContext(t.Context(), "git", "-C", repository, "rev-parse", "--is-shallow-repository").
		Output(); err != nil || strings.TrimSpace(string(out)) != "false" {
		t.Skip("the checkout has no history, so rows cannot be compared with their commits")
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(repository, "scripts/headlines.sh"),
		"--check").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestStaleHeadlinesAreFound runs this check in a repository whose page has one row in the table, and one line for each
// other figure.
func TestStaleHeadlinesAreFound(t *testing.T) {
	t.Parallel()
	needGit(t)
	dir := t.TempDir()
	run := func(wantFailure bool, words string, command ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t",
			"GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t")
		out, err := cmd.CombinedOutput()
		if (err != nil) != wantFailure || !strings.Contains(string(out), words) {
			t.Fatalf("%v: got %v, %s; want failure %t and %q", command, err, out, wantFailure, words)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"headlines.sh", "headlines/main.py", "headlines/parts.py", "headlines/quiet.py",
		"headlines/table.py"} {
		text, err := os.ReadFile(filepath.Join(repository, "scripts", name))
		if err != nil {
			t.Fatal(err)
		}
		write("scripts/"+name, string(text))
	}
	write("engine/data/jpeg/jpeg.go", "package jpeg\n")
	write("engine/data/jpeg/jpeg_test.go", "package jpeg\n")
	run(false, "", "git", "init", "-q")
	run(false, "", "git", "add", ".")
	run(false, "", "git", "commit", "-qm", "one")
	commit := run(false, "", "git", "rev-parse", "--short=8", "HEAD")
	text := func(name string) string { // scripts/five_figures.sh writes lines of this form
		return "\nMeasured at " + commit + ", 2026-11-28 (code of `" + name + "`), with 2 CPUs.\n"
	}
	others := text("five_figures") + text("h100") + text("amx")
	row := func(commit string) {
		write("BENCHMARKS.md", "<!-- headlines: scripts/headlines.sh writes these rows -->\n\n| JPEG | 1 | 2 | 0.5 | | `decoding` | measured at "+
			commit+", 2026-11-28 |\n\n<!-- end of headlines -->\n"+others)
	}
	const check, mark = "--check", "--mark"
	row(commit)
	run(false, "no figure is stale", "scripts/headlines.sh", check)
	write("engine/data/jpeg/jpeg_test.go", "package jpeg // the row does not depend on tests\n")
	run(false, "no figure is stale", "scripts/headlines.sh", check)
	write("engine/data/jpeg/jpeg.go", "// Package jpeg decodes.\npackage jpeg // in Go\n")
	run(false, "no figure is stale", "scripts/headlines.sh", check)
	write("engine/data/jpeg/jpeg.go", "package jpeg\n\nconst url = \"http://a\"\n")
	run(true, "JPEG: stale: 1 files changed since "+commit, "scripts/headlines.sh", check)
	run(false, "no figure is stale", "scripts/headlines.sh", mark)
	run(false, "no figure is stale", "scripts/headlines.sh", check)
	run(false, "code changed since, 2026-11-28", "cat", "BENCHMARKS.md")
	write("cuda/src/sum.cu", "// new\n")
	run(false, "", "git", "add", "cuda")
	run(true, "h100: stale: 1 files changed since "+commit, "scripts/headlines.sh", check)
	run(false, "no figure is stale", "scripts/headlines.sh", mark)
	run(false, commit+", code changed since, 2026-11-28 (code of `h100`)", "cat", "BENCHMARKS.md")
	run(false, commit+", 2026-11-28 (code of `five_figures`)", "cat", "BENCHMARKS.md")
	others = text("five_figures") + text("h100")
	row(commit)
	run(true, "amx: no line names the commit", "scripts/headlines.sh", check)
	row("0123456789")
	run(true, "commit 0123456789 is not an ancestor of HEAD", "scripts/headlines.sh", check)
	row("")
	run(true, "names no part and no commit", "scripts/headlines.sh", check)
}

func needGit(t *testing.T) {
	t.Helper()
	needtest.Program(t, "git", "git")
	needtest.Program(t, "python3", "python3")
	if _, err := os.Stat(filepath.Join(repository, ".git")); err != nil {
		needtest.Missing(t, "git", err)
	}
}
