package program

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// finishSoon runs a command and kills it after a time limit.
func finishSoon(t *testing.T, p program, dir string, set ...string) ended {
	t.Helper()
	cmd := p.command(dir, set...)
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	return finish(t, cmd, 0)
}

func folderAt(path string) error { return os.Mkdir(path, 0o755) }

// The program must refuse files of a wrong type in the folder of a run before the first step. A pipe must not block it.
func TestOddFilesOfARunAreRefused(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	const irregular = "want a regular file"
	for _, c := range []struct {
		name, says string
		file       func(path string) error
	}{
		{"configs/resolved.toml", irregular, clitest.PipeAt},
		{"configs/version.txt.tmp", irregular, clitest.PipeAt},
		{"logs/train.log", irregular, clitest.PipeAt},
		{"logs/rank_0_metrics.json", irregular, clitest.PipeAt},
		{"logs/norms.jsonl", irregular, clitest.PipeAt},
		{"logs/summary.json.tmp", irregular, clitest.PipeAt},
		{"results/result.json", irregular, clitest.PipeAt},
		{"results/results.md.tmp", irregular, clitest.PipeAt},
		{"results/result.json", irregular, folderAt},
		{"configs/resolved.toml", "want at most 1048576", clitest.Sparse(20 << 30)},
	} {
		dir := t.TempDir()
		clitest.MakeAt(t, filepath.Join(dir, "run", c.name), c.file)
		got := finishSoon(t, p, dir, "train.steps=4")
		got.check(t, exit.Usage, c.says)
		got.check(t, exit.Usage, filepath.Base(c.name))
	}
	logs := t.TempDir()
	clitest.MakeAt(t, filepath.Join(logs, "train.log"), clitest.PipeAt)
	finishSoon(t, p, t.TempDir(), "train.steps=4", "experiment.log_dir="+logs).check(t, exit.Usage, irregular)
	dir := t.TempDir() // a new folder, because the result of an earlier run would be used instead
	clitest.MakeAt(t, filepath.Join(dir, "run", "results", "result.json"), clitest.Sparse(20<<30))
	finishSoon(t, p, dir, "train.steps=4").check(t, exit.Done, "want at most 16777216")
}

// The program must also refuse files of a wrong type that settings name.
func TestOddFilesInSettingsAreRefused(t *testing.T) {
	p := buildProgram(t)
	pictures, pipe := t.TempDir(), filepath.Join(t.TempDir(), "pipe")
	clitest.MakeAt(t, pipe, clitest.PipeAt)
	const irregular = "want a regular file"
	for _, c := range []struct {
		code int
		says string
		set  []string
	}{
		{exit.Data, irregular, []string{"data.dataset=webdataset", "data.path=" + pictures,
			"data.class_names=" + pipe}},
		{exit.Data, irregular, []string{"data.dataset=cifar10", "data.path=" + pipe, "data.num_samples=0"}},
	} {
		finishSoon(t, p, t.TempDir(), append(c.set, "train.steps=4")...).check(t, c.code, c.says)
	}
}
