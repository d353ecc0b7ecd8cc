package program

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// The test stores known secrets in all sources of secrets. It searches all output of runs that succeed, fail or crash
// for them (row S12).
func TestNoSecretLeavesTheProgram(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	const canary = "canary-5e1f"
	look := func(what string, output []byte) {
		t.Helper()
		if at := bytes.Index(output, []byte(canary)); at >= 0 {
			t.Errorf("%s: a secret is in %q", what, output[max(at-60, 0):min(at+60, len(output))])
		}
	}
	environ := append(os.Environ(), "HETERO_TOKEN="+canary+"-token-0123456789abcdef", "AWS_SECRET_ACCESS_KEY="+canary+
		"-aws", "MLFLOW_TRACKING_PASSWORD="+canary+"-mlflow",
		"WANDB_API_KEY="+canary+"-wandb", "HTTPS_PROXY=http://user:"+canary+"-proxy@127.0.0.1:9")
	file := filepath.Join(dir, "faulty.toml")
	for name, c := range map[string]struct {
		text string   // content of the configuration; "": that of the small run
		set  []string // settings
		code int
	}{
		"a run":               {set: []string{"train.steps=30"}, code: exit.Done},
		"a password in a URL": {set: []string{"data.path=https://user:" + canary + "@host/x"}, code: exit.Usage},
		"a URL of a wrong type": {set: []string{"train.steps=\"https://user:" + canary + "@host/x\""},
			code: exit.Usage},
		"an unknown key":       {set: []string{"parallel.token=" + canary}, code: exit.Usage},
		"an unknown key, file": {text: "[parallel]\ntoken = \"" + canary + "\"\n", code: exit.Usage},
		"a URL in the file": {text: "[data]\ndataset = \"images\"\npath = \"s3://key:" + canary +
			"@bucket/train\"\n", code: exit.Usage},
		"broken TOML": {text: "[parallel]\ntoken = " + canary + "\n", code: exit.Usage},
		"broken text": {text: "[parallel]\ntoken = \"" + canary + "\n", code: exit.Usage},
	} {
		cmd := p.command(dir, c.set...)
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd.Args[2] = file
		}
		cmd.Env = environ
		out, err := cmd.CombinedOutput()
		if code := exitOf(t, err); code != c.code {
			t.Errorf("%s: got exit code %d, want %d\n%s", name, code, c.code, out)
		}
		look(name, out)
	}
	os.Remove(file)
	goesOn := p.command(dir, "train.steps=40")
	goesOn.Env = environ
	out, err := goesOn.CombinedOutput()
	if code := exitOf(t, err); code != exit.Done {
		t.Errorf("a run that resumes: got exit code %d\n%s", code, out)
	}
	look("a run that resumes", out)
	crash := p.command(filepath.Join(dir, "crash"), "train.steps=1000000", "train.log_interval=1")
	crash.Env = append(environ, "GOTRACEBACK=all")
	w := watch(t, crash)
	w.await(t, "step 20/")
	w.cmd.Process.Signal(syscall.SIGQUIT) // makes the Go runtime print the stacks of all goroutines
	w.cmd.Wait()
	w.await(t, "SIGQUIT: quit", "goroutine 1 ")
	w.mu.Lock()
	look("a crash", w.text.Bytes())
	w.mu.Unlock()
	files := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files++
			look(strings.TrimPrefix(path, dir), clitest.ReadFile(t, path))
		}
		return err
	})
	if err != nil || files < 15 {
		t.Errorf("looked into %d files: %v", files, err)
	}
}
