package program

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// No command may ignore -c or --set. A command must refuse these flags, or read the configuration and report its
// faults. arguments has a row for each command that needs arguments.
func TestNoCommandIgnoresTheConfigurationOfTheCommandLine(t *testing.T) {
	t.Parallel()
	dir, _ := trainSmall(t)
	text, empty := filepath.Join(t.TempDir(), "a.txt"), t.TempDir()
	if err := os.WriteFile(text, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := map[string][]string{
		"checkpoint export": {dir}, "checkpoint inspect": {dir}, "checkpoint verify": {dir},
		"checkpoint import": {filepath.Join(dir, "checkpoints", "step-00000020", "model.safetensors"), "--output",
			filepath.Join(empty, "w.safetensors")},
		"certs": {filepath.Join(empty, "certificates"), "node"}, "data download": {"cifar10"}, "data repack": {empty, filepath.Join(empty, "shards")},
		"data tokenize": {text},
		"eval":          {dir}, "generate": {dir, "--prompt", "a"}, "predict": {dir, text},
		"schedule ingest": {text}, "status": {dir}, "tracking sync": {dir},
		"balance compare": {"--policies", "none"},
	}
	var visit func(cmd *cobra.Command, path []string)
	visit = func(cmd *cobra.Command, path []string) {
		for _, sub := range cmd.Commands() {
			visit(sub, append(path[:len(path):len(path)], sub.Name()))
		}
		if !cmd.Runnable() {
			return
		}
		name := strings.Join(path, " ")
		for _, given := range [][]string{{"-c", "missing.toml"}, {"--set", "unknown.key=1"}} {
			args := append(append(path[:len(path):len(path)], arguments[name]...), given...)
			fault := strings.TrimSuffix(given[1], "=1")
			if o := execute(args); o.code != exit.Usage || !strings.Contains(o.stderr, fault) || o.cfg != nil {
				t.Errorf("%q: got exit code %d and\n%s%swant 2 and an error about %s", args, o.code, o.stdout, o.stderr,
					fault)
			}
		}
	}
	root := newRoot(&cli.App{Env: session.Environment{Catalog: parts.BuiltinCatalog}})
	visit(root, nil)
}

func TestUnknownVariablesOfThisProgramAreWarnedOf(t *testing.T) {
	for _, c := range []struct {
		environ []string
		says    string // "": no warning
	}{
		{[]string{"HETERO_TOKN=secret"},
			"environment variable HETERO_TOKN has no effect: this version has no such variable; nearest: HETERO_TOKEN"},
		{[]string{"HETERO_ANYTHING=1"}, "HETERO_ANYTHING has no effect: this version has no such variable\n"},
		{[]string{"HETERO_CPU_ISA=avx2", "HETERO_SHIM_GPUS=2", "HETERO_TEST_MINE=1", "HOME=/"}, ""},
		{[]string{"HETERO_TOKN=secret", session.SupervisedVariable + "=1", "RANK=0", "WORLD_SIZE=2"}, ""},
		{[]string{"HETERO_TOKN=secret", "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}, ""},
	} {
		o := execute([]string{"version"}, c.environ...)
		if o.code != exit.Done || strings.Contains(o.stderr, "warning") != (c.says != "") ||
			!strings.Contains(o.stderr, c.says) || strings.Contains(o.stderr, "secret") {
			t.Errorf("%q: got exit code %d and %q, want %q", c.environ, o.code, o.stderr, c.says)
		}
	}
}

// The list of known variables must contain each environment variable that the code reads.
func TestAllVariablesOfThisProgramAreKnown(t *testing.T) {
	name := regexp.MustCompile(`"(HETERO_[A-Z_]*[A-Z])"|\bexport (HETERO_[A-Z_]*[A-Z])`)
	reads := regexp.MustCompile(`\.go$|\.(cc|cu|h)$|^Makefile$`)
	found := 0
	for _, room := range []string{"cmd", "engine", "profiler", "balancer", "cuda", "nccl", "Makefile"} {
		err := filepath.WalkDir(filepath.Join("../../..", room), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !reads.MatchString(entry.Name()) || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range name.FindAllSubmatch(text, -1) {
				if found++; !session.KnownVariable(string(match[1]) + string(match[2])) {
					t.Errorf("%s: %s%s is not in the list of package session", path, match[1], match[2])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 10 {
		t.Errorf("found %d variables, want all of the source", found)
	}
}
