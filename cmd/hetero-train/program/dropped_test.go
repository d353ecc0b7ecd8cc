package program

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// The test imports the weights of contrastive learning, and starts a run from them. Tensors that the model of the run
// lacks must be dropped.
func TestTensorsThatTheModelLacksAreDropped(t *testing.T) {
	theirs := []checkpoint.Tensor{values("queue", []int{2, 3}, 1),
		{Name: "queue_ptr", DType: tensor.I64, Data: make([]byte, 8)}}
	for _, w := range foreignCNN(t, "", 10) {
		if w.DType == tensor.F32 {
			w = values(w.Name, w.Shape, 0.1, 0.2) // all values are small, and no variance is negative
		}
		theirs = append(theirs, w)
	}
	file := writeWeights(t, theirs...)
	dir := t.TempDir()
	out := filepath.Join(dir, "o.safetensors")
	importing := append([]string{"checkpoint", "import", file, "--model", "simple_cnn", "--output", out}, smallCNN...)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exit.Usage, "leave out tensors that the model does not need with --drop REGEXP"},
		{[]string{"--drop", "("}, exit.Usage, `--drop "("`},
		{[]string{"--drop", "^queue", "--drop", "^moco"}, exit.Usage, `drop "^moco": the pattern matches no name`},
		{[]string{"--drop", "^queue"}, exit.Done, ""},
	} {
		o := execute(append(importing, c.args...))
		if o.code != c.code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%q: exit %d: %s%s; want %d and %q", c.args, o.code, o.stdout, o.stderr, c.code, c.says)
		}
		if c.code == exit.Done && !strings.Contains(o.stdout, `2 tensors left out by "^queue": queue, queue_ptr`) {
			t.Errorf("got %s", o.stdout)
		}
	}
	if got, want := len(contents(t, out)), len(foreignCNN(t, "", 10)); got > want {
		t.Errorf("got %d tensors, want at most %d", got, want)
	}

	p := buildProgram(t)
	p.config = clitest.WriteConfig(t, "[experiment]\nname = \"run\"\n[device]\nkind = \"reference\"\n[model]\nname = \"simple_cnn\"\nchannels = [3]\n[data]\ndataset = \"synthetic_image\"\nimage_size = 8\nnum_samples = 16\nbatch_size = 8\n[train]\nsteps = 1\n")
	finish(t, p.command(filepath.Join(dir, "a"), "model.init_from="+file), 0).check(t, exit.Usage,
		`leave out tensors that the model does not need with model.init_drop = ["REGEXP"]`)
	finish(t, p.command(filepath.Join(dir, "b"), "model.init_from="+file, `model.init_drop=["^nothing"]`), 0).check(t,
		exit.Usage, `model.init_drop: drop "^nothing"`)
	got := finish(t, p.command(filepath.Join(dir, "c"), "model.init_from="+file, `model.init_drop=["^queue"]`), 0)
	got.check(t, exit.Done, "")
	if !strings.Contains(got.stdout+got.stderr, "2 tensors left out by") {
		t.Errorf("the run does not say what it left out:\n%s%s", got.stdout, got.stderr)
	}
}
