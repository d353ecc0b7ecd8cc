package program

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

func newSweep(t *testing.T, more ...string) *sweep {
	t.Helper()
	p := buildProgram(t)
	p.config = clitest.WriteConfig(t, unnamed)
	return &sweep{t: t, p: p, output: t.TempDir(), more: more}
}

func (s *sweep) command(args ...string) *exec.Cmd {
	all := append([]string{"train", "-c", s.p.config, "--output-dir", s.output}, s.more...)
	return exec.Command(s.p.path, append(all, args...)...)
}

// run trains. It checks the exit code, and that the output contains the text says.
func (s *sweep) run(code int, says string, args ...string) ended {
	s.t.Helper()
	e := finish(s.t, s.command(args...), 0)
	if e.code != code || !strings.Contains(e.stdout+e.stderr, says) {
		s.t.Fatalf("%q: got exit code %d, want %d with %q\n%s%s", args, e.code, code, says, e.stdout, e.stderr)
	}
	return e
}

// steps checks the number of steps and the learning rate of the run with the given name.
func (s *sweep) steps(name string, want int64, rate string) {
	s.t.Helper()
	dir := filepath.Join(s.output, name)
	if got := resultOf(s.t, dir); got.Steps != want {
		s.t.Errorf("%s: got %d steps, want %d", name, got.Steps, want)
	}
	if text := string(clitest.ReadFile(s.t, filepath.Join(dir, "configs", "resolved.toml"))); !strings.Contains(text,
		"\nlr = "+rate+"\n") {
		s.t.Errorf("%s: its settings lack lr = %s", name, rate)
	}
	c, _, err := checkpoint.Latest(filepath.Join(dir, "checkpoints"))
	if err != nil {
		s.t.Errorf("%s: %v", name, err)
		return
	}
	defer c.Close()
	if c.State.Step != want {
		s.t.Errorf("%s: got a checkpoint of step %d, want %d", name, c.State.Step, want)
	}
}

func TestASweepTrainsEveryTime(t *testing.T) {
	t.Parallel()
	const name = "distributed_training"
	s := newSweep(t)
	s.run(exit.Done, "done: 20 steps", "--lr", "0.1")
	s.run(exit.Done, "train.steps = 20 ended the run", "--lr", "0.1")
	e := s.run(exit.Done, "done: 20 steps", "--lr", "0.01")
	if n := strings.Count(e.stderr, "was renamed"); n != 1 ||
		!strings.Contains(e.stderr, "optimizer.lr was 0.1, now 0.01") || !strings.Contains(e.stderr, name+"-1") {
		t.Errorf("want one line that names the change and the new name of the old run:\n%s", e.stderr)
	}
	s.steps(name+"-1", 20, "0.1")
	s.steps(name, 20, "0.01")
	if e = s.run(exit.Done, "done: 2 steps", "--lr", "0.01", "--set", "train.steps=2"); !strings.Contains(e.stderr,
		"the run has already trained 20 steps") {
		t.Errorf("a shorter run: want the reason\n%s", e.stderr)
	}
	s.steps(name+"-2", 20, "0.01")
	s.steps(name, 2, "0.01")
	// This run resumes.
	s.run(exit.Done, "done: 30 steps", "--lr", "0.01", "--set", "train.steps=30", "--set", "train.log_interval=3")
	s.steps(name, 30, "0.01")
	s.run(exit.Done, "done: 40 steps", "--lr", "0.01", "--set", "train.steps=40", "--set", "schedule.name=cosine")
	s.run(exit.Done, "done: 50 steps", "--lr", "0.01", "--set", "train.steps=50", "--set", "schedule.name=cosine")
	s.steps(name+"-3", 30, "0.01")
	s.steps(name+"-4", 40, "0.01") // with a cosine schedule, another number of steps makes another run
}

func TestARunWithANameIsNeverReplaced(t *testing.T) {
	t.Parallel()
	s := newSweep(t, "--experiment-name", "mine")
	s.run(exit.Done, "done: 20 steps")
	before := snapshot(t, s.output)
	e := s.run(exit.Usage, "optimizer.lr was 0.05, now 0.2", "--lr", "0.2", "--set", "augment.mixup=0.5", "--set",
		"train.steps=30")
	for _, want := range []string{"augment.mixup was 0.0, now 0.5", "--resume none",
		"--allow augment.mixup --allow optimizer.lr"} {
		if !strings.Contains(e.stderr, want) {
			t.Errorf("want %q in\n%s", want, e.stderr)
		}
	}
	s.run(exit.Usage, "has already trained 20 steps, and the new setting is train.steps = 2", "--set", "train.steps=2")
	s.run(exit.Usage, "unknown key", "--allow", "optimizer.rate")
	s.run(exit.Usage, "does not need --allow", "--allow", "train.log_interval")
	s.run(exit.Usage, "has no effect with --resume none", "--allow", "optimizer.lr", "--resume", "none")
	if after := snapshot(t, s.output); after != before {
		t.Errorf("a refused run changed files:\n%s\nbefore:\n%s", after, before)
	}
	path := filepath.Join(s.output, "mine")
	s.run(exit.Usage, "augment.mixup was", "--resume", path, "--lr", "0.2", "--set", "augment.mixup=0.5", "--set",
		"train.steps=30", "--allow", "optimizer.lr")
	s.run(exit.Done, "done: 30 steps", "--resume", path, "--lr", "0.2", "--set", "augment.mixup=0.5", "--set",
		"train.steps=30", "--allow", "optimizer.lr", "--allow", "augment.mixup")
	s.run(exit.Done, "done: 40 steps", "--lr", "0.2", "--set", "augment.mixup=0.5", "--set", "train.steps=40", "--set",
		"device.threads=1", "--set", "balance.policy=dynamic")
	s.run(exit.Usage, "optimizer.name", "--lr", "0.2", "--set", "augment.mixup=0.5", "--set", "train.steps=50", "--set",
		"optimizer.name=adamw", "--set", "optimizer.weight_decay=0.0005", "--allow", "optimizer.name")
	s.run(exit.Done, "done: 20 steps", "--resume", "none", "--lr", "0.3")
	s.steps("mine-1", 40, "0.2")
	s.steps("mine", 20, "0.3")
}

// A finished run without its checkpoints cannot continue, and must say so.
func TestAFinishedRunStatesThatItsCheckpointsAreMissing(t *testing.T) {
	s := newSweep(t, "--experiment-name", "mine", "--set", "train.steps=0", "--epochs", "1")
	s.run(exit.Done, "done: 10 steps")
	s.run(exit.Done, "a larger value continues this run")
	if err := os.RemoveAll(filepath.Join(s.output, "mine", "checkpoints")); err != nil {
		t.Fatal(err)
	}
	s.run(exit.Done, "a larger value starts again at the first step, because the run's checkpoints are missing")
}

// A resumed run with another batch size has another number of steps per epoch. The number of epochs must count.
func TestEpochsOfAnotherBatchSizeCount(t *testing.T) {
	t.Parallel()
	s := newSweep(t, "--experiment-name", "mine", "--set", "train.steps=0")
	s.run(exit.Done, "done: 20 steps", "--epochs", "2")
	larger := []string{"--set", "data.batch_size=16", "--epochs", "4"}
	s.run(exit.Done, "done: 30 steps", append(larger, "--allow", "data.batch_size")...)
	s.run(exit.Done, "is finished: 30 steps", larger...)
	s.run(exit.Usage, "has already trained 30 steps, and the new setting is train.epochs = 3", "--set",
		"data.batch_size=16", "--epochs", "3")
}

// snapshot returns the files of a folder with their sizes and times. It omits locks, because a lock file contains its
// last holder.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == ".lock" {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			fmt.Fprintln(&b, path, info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// If the program refuses to resume a run, it must not change the records of the run, whichever check fails.
func TestARefusedResumeChangesNoFile(t *testing.T) {
	t.Parallel()
	s := newSweep(t, "--experiment-name", "mine")
	s.run(exit.Done, "done: 20 steps")
	dir := filepath.Join(s.output, "mine")
	before := snapshot(t, dir)
	for says, set := range map[string][]string{"tensor": {"model.channels=[4]"},
		"optimizer.name":     {"optimizer.name=adamw", "optimizer.lr=0.05", "optimizer.weight_decay=0.0005"},
		"optimizer.momentum": {"optimizer.momentum=0"}} {
		for _, resume := range []string{"auto", dir} {
			args := []string{"--set", "train.steps=30", "--resume", resume}
			for _, one := range set {
				key, _, _ := strings.Cut(one, "=")
				args = append(args, "--set", one, "--allow", key)
			}
			s.run(exit.Usage, says, args...)
			if now := snapshot(t, dir); now != before {
				t.Fatalf("%q: files before\n%s\nand after\n%s", args, before, now)
			}
		}
	}
	s.run(exit.Done, "is finished")
}

// writePictures writes n images into each of two class folders. shade selects the content of the images.
func writePictures(t *testing.T, dir string, n int, shade uint8) {
	t.Helper()
	for class := range 2 {
		folder := filepath.Join(dir, fmt.Sprint("class", class))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			img := image.NewGray(image.Rect(0, 0, 8, 8))
			for k := range img.Pix {
				img.Pix[k] = color.Gray{Y: uint8(k*i) + uint8(class)*90 + shade}.Y
			}
			var b bytes.Buffer
			if err := errors.Join(png.Encode(&b, img), os.WriteFile(filepath.Join(folder, fmt.Sprintf("%03d.png", i)),
				b.Bytes(), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// If the first decision of a chosen policy would come after the end of the run, the program must warn.
func TestAPolicyThatCannotActIsWarnedOf(t *testing.T) {
	t.Parallel()
	buildRanks(t)
	s := newSweep(t, "--nproc-per-node", "2", "--resume", "none")
	const warning = "never changes the shares"
	e := s.run(exit.Done, "policy dynamic "+warning+
		": 8 steps remain, and its first decision takes effect after 10 steps", "--load-balance-policy", "dynamic",
		"--set", "train.steps=8")
	if n := strings.Count(e.stderr, warning); n != 1 {
		t.Errorf("got %d warnings, want 1:\n%s", n, e.stderr)
	}
	for _, args := range [][]string{{"--load-balance-policy", "hybrid"}, {"--load-balance-policy", "proportional"},
		{"--load-balance-policy", "dynamic", "--set", "balance.interval=7"}, {}} {
		if e := s.run(exit.Done, "done: 8 steps", append(args, "--set", "train.steps=8")...); strings.Contains(e.stderr,
			warning) {
			t.Errorf("%q: got the warning\n%s", args, e.stderr)
		}
	}
}

// The program must compare the content of the data, and not only its path.
func TestOtherDataIsAnotherRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
	writePictures(t, here, 40, 0)
	s := newSweep(t, "--experiment-name", "mine", "--dataset", "images", "--set", "data.image_size=8", "--set",
		"data.num_samples=0")
	s.run(exit.Done, "done: 20 steps", "--set", "data.path="+here)
	if err := os.Rename(here, there); err != nil {
		t.Fatal(err)
	}
	s.run(exit.Done, "is finished", "--set", "data.path="+there)
	s.run(exit.Done, "done: 25 steps", "--set", "data.path="+there, "--set", "train.steps=25")
	writePictures(t, there, 40, 1)
	s.run(exit.Usage, ` compared training samples differ)`, "--set", "data.path="+there, "--set", "train.steps=25")
	s.run(exit.Usage, "data.path was content", "--set", "data.path="+there, "--set", "train.steps=25")
	s.run(exit.Done, "done: 30 steps", "--set", "data.path="+there, "--set", "train.steps=30", "--allow", "data.path")
	writePictures(t, here, 41, 1)
	s.run(exit.Usage, " training samples, now ", "--set", "data.path="+here, "--set", "train.steps=30")
}

// Samples that were unreadable, and have been repaired, must not prevent a resume. Other changes of the data must be
// listed, with advice.
func TestRepairedSamplesDoNotPreventAResume(t *testing.T) {
	t.Parallel()
	here := filepath.Join(t.TempDir(), "here")
	writePictures(t, here, 40, 0)
	bad := filepath.Join(here, "class1", "003.png")
	sound, err := os.ReadFile(bad)
	if err != nil {
		t.Fatal(err)
	}
	put := func(path string, contents []byte) {
		t.Helper()
		if err := os.WriteFile(path, contents, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(bad, nil)
	s := newSweep(t, "--experiment-name", "mine", "--dataset", "images", "--set", "data.image_size=8", "--set",
		"data.num_samples=0", "--set", "data.path="+here, "--set", "data.val_fraction=0")
	s.run(exit.Data, `003.png": empty file; the 2 steps before it are saved; repair or delete it, or set data.corrupt = "skip"`)
	s.run(exit.Done, " unreadable samples replaced", "--set", "data.corrupt=skip", "--set", "train.steps=12")
	put(bad, sound)
	s.run(exit.Done, `could not be read before and can be read now: 1 of the compared ones, the first "class1/003.png"`,
		"--set", "train.steps=24")
	put(bad, nil)
	s.run(exit.Usage, "1 cannot be read now", "--set", "data.corrupt=skip", "--set", "train.steps=30")
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	s.run(exit.Usage, "80 training samples, now 79 training samples", "--set", "train.steps=30")
	s.run(exit.Usage, "--allow data.path", "--set", "train.steps=30")
	s.run(exit.Done, "done: 30 steps", "--set", "train.steps=30", "--allow", "data.path")
}

// If the data set has changed since the run, an epoch has a different number of steps. The message must state both
// numbers.
func TestAFinishedRunStatesBothNumbersOfSteps(t *testing.T) {
	here := filepath.Join(t.TempDir(), "here")
	writePictures(t, here, 40, 0)
	s := newSweep(t, "--experiment-name", "mine", "--dataset", "images", "--set", "data.image_size=8", "--set",
		"data.num_samples=0", "--set", "data.path="+here, "--set", "data.val_fraction=0", "--set", "train.steps=0",
		"--epochs", "2")
	s.run(exit.Done, "done: 20 steps")
	for class := range 2 {
		for i := range 20 {
			if err := os.Remove(filepath.Join(here, fmt.Sprint("class", class),
				fmt.Sprintf("%03d.png", i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.run(exit.Done, "train.epochs = 2 (10 steps with the present data; 20 when the run was trained) ended the run",
		"--allow", "data.path")
}

// Other data in the evaluation part must count as a change of data.val_path, which --allow permits.
func TestOtherEvaluationDataIsAChangeOfItsKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	here, held := filepath.Join(dir, "here"), filepath.Join(dir, "held")
	writePictures(t, here, 40, 0)
	writePictures(t, held, 10, 100)
	s := newSweep(t, "--experiment-name", "mine", "--dataset", "images", "--set", "data.image_size=8", "--set",
		"data.num_samples=0", "--set", "data.path="+here, "--set", "data.val_path="+held)
	s.run(exit.Done, "done: 20 steps")
	writePictures(t, held, 10, 101)
	more := []string{"--set", "train.steps=30"}
	const says = `the content of "class0/000.png" differs (20 of 20 compared evaluation samples differ)`
	for _, args := range [][]string{more, append(more, "--allow", "data.path")} {
		if e := s.run(exit.Usage, says, args...); !strings.Contains(e.stderr, "data.val_path was content ") ||
			!strings.Contains(e.stderr, "--allow data.val_path") || strings.Contains(e.stderr, "data.path was") {
			t.Errorf("%q: got\n%s\nwant a change of data.val_path only", args, e.stderr)
		}
	}
	s.run(exit.Done, "done: 30 steps", append(more, "--allow", "data.val_path")...)
	writePictures(t, held, 11, 101)
	s.run(exit.Usage, "20 evaluation samples, now 22 evaluation samples", "--set", "train.steps=40")
	writePictures(t, here, 40, 1)
	if e := s.run(exit.Usage, " compared training samples differ)", "--set", "train.steps=40"); !strings.Contains(
		e.stderr, "data.path was") || !strings.Contains(e.stderr, "data.val_path was") {
		t.Errorf("got\n%s\nwant a change of both keys", e.stderr)
	}
}

// A run on fallback images must not resume with CIFAR-10.
func TestWhatStoodInForTheDataIsOtherData(t *testing.T) {
	t.Parallel()
	cache, archive := t.TempDir(), t.TempDir()
	for _, name := range []string{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
		"data_batch_5.bin", "test_batch.bin"} {
		if err := os.WriteFile(filepath.Join(archive, name), make([]byte, 20*3073), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(archive, "batches.meta.txt"), []byte("a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	s := newSweep(t, "--dataset", "cifar10", "--set", "data.fallback=synthetic_image", "--set", "data.download=never",
		"--set", "data.cache_dir="+cache, "--set", "data.crop_padding=1")
	s.run(exit.Done, "done: 20 steps")
	s.run(exit.Done, "is finished")
	s.run(exit.Done, `data.dataset was \"synthetic_image\", now \"cifar10\"`, "--set", "data.path="+archive)
	s.steps("distributed_training-1", 20, "0.05")
	s.run(exit.Done, "done: 20 steps", "--experiment-name", "mine")
	s.run(exit.Usage, `data.dataset was "synthetic_image", now "cifar10"`, "--experiment-name", "mine", "--set",
		"data.path="+archive, "--set", "train.steps=30")
}

// The program must compare the content of the file of initial weights, and not only its path.
func TestOtherWeightsToStartFromAreAnotherRun(t *testing.T) {
	t.Parallel()
	s := newSweep(t)
	s.run(exit.Done, "done: 20 steps", "--experiment-name", "a")
	s.run(exit.Done, "done: 20 steps", "--experiment-name", "b", "--lr", "0.3")
	weights := filepath.Join(t.TempDir(), "start.safetensors")
	from := func(name string) {
		t.Helper()
		if err := os.WriteFile(weights,
			clitest.ReadFile(t, filepath.Join(s.output, name, "checkpoints", "step-00000020", "model.safetensors")),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	from("a")
	own := []string{"--experiment-name", "mine", "--set", "model.init_from=" + weights}
	s.run(exit.Done, "done: 20 steps", own...)
	s.run(exit.Done, "is finished", own...)
	from("b")
	s.run(exit.Usage, "model.init_from was content", append(own, "--set", "train.steps=30")...)
	s.run(exit.Done, "done: 30 steps", append(own, "--set", "train.steps=30", "--allow", "model.init_from")...)
}

// A run with precision "auto" and a run with the precision that "auto" selects must be the same run.
func TestResolvedPrecisionIsCompared(t *testing.T) {
	t.Parallel()
	s := newSweep(t, "--experiment-name", "mine")
	s.run(exit.Done, "done: 20 steps", "--set", "train.precision=auto") // "auto" selects f32 on this device
	s.run(exit.Done, "done: 25 steps", "--set", "train.precision=f32", "--set", "train.steps=25")
	s.run(exit.Usage, "train.precision", "--set", "train.precision=bf16", "--set", "train.steps=30")
}
