package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/policies"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// completed returns the words that a shell offers for the last argument, without their descriptions.
func completed(t *testing.T, args ...string) []string {
	t.Helper()
	o := execute(append([]string{"__complete"}, args...))
	if o.code != exit.Done {
		t.Fatalf("%q: exit code %d: %s", args, o.code, o.stderr)
	}
	var words []string
	for line := range strings.Lines(o.stdout) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if word != "" && word[0] != ':' {
			words = append(words, word)
		}
	}
	return words
}

func TestCompletionOffersValues(t *testing.T) {
	runs := t.TempDir()
	newest := filepath.Join(runs, "one", "checkpoints", "step-00000010")
	if err := os.MkdirAll(newest, 0o755); err != nil {
		t.Fatal(err)
	}
	file := clitest.WriteConfig(t, "[experiment]\noutput_dir = \""+runs+"\"\n")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--set", "data.dataset="}, []string{"data.dataset=synthetic_image", "data.dataset=cifar10",
			"data.dataset=images"}},
		{[]string{"--set", "model.ch"}, []string{"model.channels="}},
		{[]string{"--set", "profile.enabled=t"}, []string{"profile.enabled=true"}},
		{[]string{"train", "--load-balance-policy", ""}, policies.Names()},
		{[]string{"train", "--model", ""}, parts.KindNames(parts.BuiltinCatalog.Models)},
		{[]string{"bench", "peak", "--device", ""}, []string{"auto", "cpu", "reference", "null"}},
		{[]string{"bench", "train", "--precision", ""}, []string{"auto", "f32", "bf16"}},
		{[]string{"--log-level", ""}, []string{"debug", "info", "warn", "error"}},
		{[]string{"-c", file, "--resume", ""}, []string{"auto", "none", filepath.Join(runs, "one"), newest}},
		{[]string{"-c", ""}, []string{"toml"}}, // file extension that the shell completes
		{[]string{"version", ""}, nil},
		{[]string{"dev"}, []string{"devices"}},
	} {
		got := completed(t, c.args...)
		for _, want := range c.want {
			if !slices.Contains(got, want) {
				t.Errorf("%q: got %q, want %q among them", c.args, got, want)
			}
		}
		if c.want == nil && got != nil {
			t.Errorf("%q: got %q, want nothing", c.args, got)
		}
	}
}

// In bash, a word ends at "=", so the completion must contain only the value.
func TestBashCompletesBehindTheEqualsSign(t *testing.T) {
	bash := needtest.Program(t, "bash", "bash")
	script := execute([]string{"completion", "bash"})
	if script.code != exit.Done {
		t.Fatal(script.stderr)
	}
	out, err := exec.Command(bash, "-c", script.stdout+`
_get_comp_words_by_ref() { cur=data.dataset=c; prev=--set; words=(hetero-train --set data.dataset=c); cword=2; }
hetero-train() { printf 'data.dataset=cifar10\ndata.dataset=cifar100\n:4\n'; }
COMP_WORDBREAKS=' ='
COMP_LINE='hetero-train --set data.dataset=c' COMP_POINT=33
__hetero_train_behind_equals 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}"`).CombinedOutput()
	if got, want := strings.Fields(string(out)), []string{"cifar10", "cifar100"}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}
