package program

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// pages returns the text of the pages for users and developers.
func pages(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	files := []string{"README.md", "CONTRIBUTING.md", "configs/README.md"}
	err := filepath.WalkDir("../../../docs", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") && !strings.Contains(path, "decisions") {
			files = append(files, strings.TrimPrefix(path, "../../../"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join("../../..", file))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// documented reports whether a page names an environment variable. For a variable of NCCL, the key of [nccl] is also
// sufficient.
func documented(page, name string) bool {
	if key, ok := strings.CutPrefix(name, "NCCL_"); ok && strings.Contains(page, "| `"+strings.ToLower(key)+"` |") {
		return true
	}
	return regexp.MustCompile(`\b` + name + `\b`).MatchString(page)
}

// The test takes names from the list of this program's variables, and from the code that reads variables of other
// programs.
func TestAllVariablesAreOnAPage(t *testing.T) {
	t.Parallel()
	page := pages(t)
	names := map[string]bool{}
	for _, name := range session.Variables {
		names[name] = true
	}
	const others = `(?:PET|SLURM|OMPI|PMI|PMIX|MV2|MPI|SM|NCCL|OMP|GOMP|TORCHELASTIC|MLFLOW|CUDA|XDG|MASTER|LOCAL|WORLD|JOB)_[A-Z0-9_]*[A-Z0-9]|RANK|NO_COLOR`
	read := regexp.MustCompile(`"(` + others + `)"`)
	for _, room := range []string{"cmd", "engine", "profiler", "cuda", "nccl"} {
		err := filepath.WalkDir(filepath.Join("../../..", room), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/shim/") ||
				!regexp.MustCompile(`\.(go|cc|cu|h)$`).MatchString(path) {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range read.FindAllSubmatch(text, -1) {
				names[string(match[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range names {
		if !documented(page, name) {
			t.Errorf("the program reads %s, and no page has it", name)
		}
	}
	if documented(page, "SLURM_NOTHING") || documented(page, "NCCL_NOTHING") || len(names) < 100 {
		t.Errorf("found %d variables, want at least 100, and no SLURM_NOTHING", len(names))
	}
}

// internalFlags contains flags that only processes of this program pass to each other.
var internalFlags = map[string]bool{"with-training": true}

// The test checks hidden flags; the help lists all others.
func TestHiddenFlagsAreOnAPage(t *testing.T) {
	page, found := pages(t), 0
	for _, cmd := range commands(newRoot(&cli.App{Env: session.Environment{Catalog: parts.BuiltinCatalog}})) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden && !internalFlags[f.Name] {
				if found++; !strings.Contains(page, "--"+f.Name) {
					t.Errorf("%s: the help hides --%s, and no page has it", cmd.CommandPath(), f.Name)
				}
			}
		})
	}
	if found == 0 {
		t.Error("found no hidden flag, want those of the dashboard")
	}
}
