package program

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// finishSoon kills a command that blocks for ever.
func finishSoon(t *testing.T, p program, dir string, set ...string) ended {
	t.Helper()
	cmd := p.command(dir, set...)
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	return finish(t, cmd, 0)
}

// makeAt creates the folder of a file, then the file.
func makeAt(t *testing.T, path string, file func(path string) error) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), file(path)); err != nil {
		t.Fatal(err)
	}
}

func pipeAt(path string) error   { return syscall.Mkfifo(path, 0o600) }
func folderAt(path string) error { return os.Mkdir(path, 0o755) }

// Sparse files take no disk space. A program that reads a whole one exceeds the memory.
func sparse(bytes int64) func(path string) error {
	return func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, bytes))
	}
}

// They must be refused before the first step, without waiting for the writer of a pipe.
func TestOddFilesOfARunAreRefused(t *testing.T) {
	p := buildProgram(t)
	const irregular = "want a regular file"
	for _, c := range []struct {
		name, says string
		file       func(path string) error
	}{
		{"configs/resolved.toml", irregular, pipeAt},
		{"configs/version.txt.tmp", irregular, pipeAt},
		{"logs/train.log", irregular, pipeAt},
		{"logs/rank_0_metrics.json", irregular, pipeAt},
		{"logs/norms.jsonl", irregular, pipeAt},
		{"logs/summary.json.tmp", irregular, pipeAt},
		{"results/result.json", irregular, pipeAt},
		{"results/results.md.tmp", irregular, pipeAt},
		{"results/result.json", irregular, folderAt},
		{"configs/resolved.toml", "want at most 1048576", sparse(20 << 30)},
	} {
		dir := t.TempDir()
		makeAt(t, filepath.Join(dir, "run", c.name), c.file)
		got := finishSoon(t, p, dir, "train.steps=4")
		got.check(t, exit.Usage, c.says)
		got.check(t, exit.Usage, filepath.Base(c.name))
	}
	logs := t.TempDir()
	makeAt(t, filepath.Join(logs, "train.log"), pipeAt)
	finishSoon(t, p, t.TempDir(), "train.steps=4", "experiment.log_dir="+logs).check(t, exit.Usage, irregular)
	dir := t.TempDir() // the result of an earlier run is not needed
	makeAt(t, filepath.Join(dir, "run", "results", "result.json"), sparse(20<<30))
	finishSoon(t, p, dir, "train.steps=4").check(t, exit.Done, "want at most 16777216")
}

// The same for files that settings name.
func TestOddFilesInSettingsAreRefused(t *testing.T) {
	p := buildProgram(t)
	pictures, pipe := t.TempDir(), filepath.Join(t.TempDir(), "pipe")
	makeAt(t, pipe, pipeAt)
	const irregular = "want a regular file"
	for _, c := range []struct {
		code int
		says string
		set  []string
	}{
		{exit.Data, irregular, []string{"data.dataset=webdataset", "data.path=" + pictures, "data.class_names=" + pipe}},
		{exit.Data, irregular, []string{"data.dataset=cifar10", "data.path=" + pipe, "data.num_samples=0"}},
	} {
		finishSoon(t, p, t.TempDir(), append(c.set, "train.steps=4")...).check(t, c.code, c.says)
	}
}
