package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// TestMain sets a separate cache folder for the tests and for the programs that they start. Otherwise the cached curves
// of one run would change the shares of another run.
//
// Tests that take seconds call t.Parallel, because most of them wait for other processes. Some tests must not call
// t.Parallel. They list all processes of the program (noProcessOf), compare speeds, or change the environment or the
// folder of this process.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hetero-train-cache-")
	if err != nil {
		panic(err)
	}
	// The Go build cache keeps its place. Otherwise buildProgram would compile the standard library each time.
	if cache, err := exec.Command("go", "env", "GOCACHE").Output(); err == nil {
		os.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	}
	os.Setenv("XDG_CACHE_HOME", dir)
	// nohup ignores SIGHUP, and a shell starts background jobs with SIGINT ignored. Child processes inherit ignored
	// signals, but not caught ones. This process therefore catches both signals.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	code := m.Run()
	closeChromium()
	os.RemoveAll(dir)
	os.Exit(code)
}

// program is the compiled program, with the configuration file of a small run.
type program struct{ path, config string }

// buildProgram builds the program for a test.
func buildProgram(t *testing.T) program {
	t.Helper()
	needtest.NotShort(t, "runs the real program, which takes seconds")
	path, err := builtProgram()
	if err != nil {
		t.Fatal(err)
	}
	return program{path: path, config: clitest.WriteConfig(t, smallRun)}
}

// builtProgram builds the program once. It is in the folder that TestMain removes.
var builtProgram = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(builtVariable); path != "" {
		return path, nil
	}
	// The executable is next to the cache of the program.
	path := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "built", "hetero-train")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w -extldflags=-Wl,-z,lazy", "-o", path,
		"..").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// command returns a command that trains with changed settings. The folder of the run is below output.
func (p program) command(output string, set ...string) *exec.Cmd {
	args := []string{"-c", p.config, "--set", "experiment.output_dir=" + output}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	return exec.Command(p.path, args...)
}

// smallRun is a configuration with 10 steps per epoch. A step takes about 1 ms.
const smallRun = `
[experiment]
name = "run"
[device]
kind = "reference"
[model]
name = "simple_cnn"
channels = [3, 4]
dropout = 0.1
[data]
dataset = "synthetic_image"
batch_size = 8
num_samples = 80
image_size = 8
crop_padding = 1
flip = true
[train]
epochs = 0
steps = 1200
eval_interval = 10
log_interval = 100
[optimizer]
name = "adamw"
[checkpoint]
interval_steps = 5
interval_seconds = 0.0
keep = 2
`

// exitOf returns the exit code of a process, from the error of its Wait.
func exitOf(t *testing.T, err error) int {
	t.Helper()
	var e *exec.ExitError
	if err == nil {
		return 0
	}
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	return e.ExitCode()
}

// outcomeOfRun contains fields of result.json.
type outcomeOfRun struct {
	Steps       int64       `json:"steps"`
	Loss        json.Number `json:"final_train_loss"`
	SamplesSeen int64       `json:"samples_seen"`
	Exit        int         `json:"exit"`
}

// resultOf returns the result of the run in dir, which must have succeeded.
func resultOf(t *testing.T, dir string) outcomeOfRun {
	t.Helper()
	var r outcomeOfRun
	r.read(t, dir)
	if r.Exit != exit.Done || r.Steps == 0 {
		t.Fatalf("%s: got %+v", dir, r)
	}
	return r
}

func (r *outcomeOfRun) read(t *testing.T, dir string) {
	t.Helper()
	if err := json.Unmarshal(clitest.ReadFile(t, filepath.Join(dir, "results", "result.json")), r); err != nil {
		t.Fatal(err)
	}
}
