package program

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/checkpoints"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/run"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/golden"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// trainIn runs the program in this process, on the reference device.
func trainIn(t *testing.T, dir string, set ...string) outcome {
	t.Helper()
	args := []string{"-c", clitest.WriteConfig(t, smallRun), "--set", "experiment.output_dir=" + dir, "--set",
		"train.steps=5", "--set", "data.workers=1"}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	var out, messages bytes.Buffer
	o := outcome{
		code: runLine(context.Background(), args,
			session.Environment{Stdout: &out, Stderr: &messages, Train: run.Train})}
	o.stdout, o.stderr = out.String(), messages.String()
	return o
}

// values returns an f32 tensor with the given elements.
func values(name string, shape []int, v ...float32) checkpoint.Tensor {
	var data []byte
	for i := range int(tensor.Shape(shape).Elements()) {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v[i%len(v)]))
	}
	return checkpoint.Tensor{Name: name, DType: tensor.F32, Shape: shape, Data: data}
}

// writeWeights writes a safetensors file.
func writeWeights(t *testing.T, tensors ...checkpoint.Tensor) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weights.safetensors")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := checkpoint.Write(f, tensors, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	return path
}

// saveCheckpoint writes a checkpoint of a simple_cnn with the given tensors, and returns the folder of the run.
func saveCheckpoint(t *testing.T, model ...checkpoint.Tensor) string {
	t.Helper()
	run := filepath.Join(t.TempDir(), "run")
	store, err := checkpoint.Open(filepath.Join(run, "checkpoints"), checkpoint.Options{Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var moments []checkpoint.Tensor
	for _, m := range model {
		moments = append(moments, values(m.Name+".momentum", m.Shape, 0.5))
	}
	for step := range int64(2) {
		state := checkpoint.State{Program: "hetero-train 1.2.3", Step: 10 + step, Epoch: 1, EpochSample: 8,
			SamplesSeen: 88, Seed: 7,
			Optimizer: checkpoint.OptimizerState{Name: "sgd", Scalars: map[string]checkpoint.Float{"steps": 10}},
			Best:      &checkpoint.Best{Metric: "top1", Value: 0.5, Step: 9},
			Counters:  map[string]int64{"skipped_steps": 1},
			Config:    "[model]\nname = \"simple_cnn\"\n[data]\ndataset = \"synthetic_image\"\n"}
		if _, err := store.Save(context.Background(),
			checkpoint.Snapshot{State: state, Model: model, Optimizer: moments, Best: step == 0}); err != nil {
			t.Fatal(err)
		}
	}
	return run
}

func TestInspect(t *testing.T) {
	run := saveCheckpoint(t, values("fc.weight", []int{3, 4}, 1), values("fc.bias", []int{3}, 2))
	for name, path := range map[string]string{"inspect.txt": run, "inspect_best.txt": filepath.Join(run, "checkpoints",
		"best"), "inspect_file.txt": filepath.Join(run, "checkpoints", "step-00000011", "model.safetensors")} {
		o := execute([]string{"checkpoint", "inspect", path})
		if o.code != exit.Done || o.stderr != "" {
			t.Errorf("%s: got exit code %d and %s", name, o.code, o.stderr)
		}
		golden.Check(t, filepath.Join("testdata", name), strings.ReplaceAll(o.stdout, run, "RUN"))
	}
	o := execute([]string{"checkpoint", "inspect", "--json", run})
	var got checkpoints.Inspection
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil {
		t.Fatalf("%v in %s", err, o.stdout)
	}
	if got.State.Step != 11 || got.Model.Name != "simple_cnn" || got.Model.Classes != 3 ||
		fmt.Sprint(got.Moments) != "[momentum]" || len(got.Files) != 2 || got.Files[0].Tensors[1].Bytes != 48 ||
		got.State.Config == "" {
		t.Errorf("got %s", o.stdout)
	}
}

func TestVerify(t *testing.T) {
	run := saveCheckpoint(t, values("fc.weight", []int{3, 4}, 1), values("fc.bias", []int{3}, 2))
	if o := execute([]string{"checkpoint", "verify", run}); o.code != exit.Done ||
		strings.Count(o.stdout, "sound") != 2 {
		t.Errorf("got exit code %d, %s and %s", o.code, o.stdout, o.stderr)
	}
	file := filepath.Join(run, "checkpoints", "step-00000011", "model.safetensors")
	text := clitest.ReadFile(t, file)
	text[len(text)-1] ^= 1
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	o := execute([]string{"checkpoint", "verify", run})
	if o.code != exit.Data || !strings.Contains(o.stderr, "error: "+file+": got SHA-256") ||
		!strings.Contains(o.stderr, "(and 1 more faults)") ||
		!strings.Contains(o.stdout, `tensor "fc.weight": bytes`) ||
		!strings.Contains(o.stdout, "step-00000010: sound") {
		t.Errorf("got exit code %d, %s and %s", o.code, o.stdout, o.stderr)
	}
	var got checkpoints.Verification
	o = execute([]string{"checkpoint", "verify", "--json", run})
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || got.Sound || len(got.Faults) != 2 ||
		got.Faults[1].Tensor != "fc.weight" || len(got.Checked) != 2 {
		t.Errorf("got %v, %s", err, o.stdout)
	}
	// The command must use the newest valid checkpoint, and must warn that this checkpoint is not the newest one.
	if o := execute([]string{"checkpoint", "inspect", run}); o.code != exit.Done ||
		!strings.Contains(o.stderr, "warning: checkpoint") || !strings.Contains(o.stdout, "step-00000010") {
		t.Errorf("got exit code %d, %s and %s", o.code, o.stdout, o.stderr)
	}
	bad := writeWeights(t, values("w", []int{3}, 1, float32(math.NaN())))
	if o := execute([]string{"checkpoint", "verify", bad}); o.code != exit.Data ||
		!strings.Contains(o.stderr,
			`tensor "w": bytes 100 to 103: element 1 of 3 is NaN; NaN or infinite elements: 1`) {
		t.Errorf("got exit code %d and %s", o.code, o.stderr)
	}
}

func TestCheckpointCommandsRefuseWhatTheyCannotUse(t *testing.T) {
	empty, file := t.TempDir(), clitest.WriteConfig(t, "")
	hostile := filepath.Join(empty, "hostile.safetensors")
	if err := os.WriteFile(hostile, append(binary.LittleEndian.AppendUint64(nil, math.MaxUint64), '{', '}'),
		0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"inspect"}, exit.Usage, "want a checkpoint"},
		{[]string{"inspect", "a", "b"}, exit.Usage, "got 2 arguments"},
		{[]string{"inspect", filepath.Join(empty, "none")}, exit.Usage, "no such file"},
		{[]string{"inspect", empty}, exit.Usage, "neither a checkpoint nor a folder of checkpoints"},
		{[]string{"inspect", hostile}, exit.Data, "header of 18446744073709551615 bytes"},
		{[]string{"inspect", "-c", file, empty}, exit.Usage, " cannot be used with this command"},
		{[]string{"verify", filepath.Join(empty, "none")}, exit.Usage, "no such file"},
		{[]string{"verify", empty}, exit.Usage, "neither a checkpoint nor a folder of checkpoints"},
		{[]string{"verify", hostile}, exit.Data, "header of 18446744073709551615 bytes"},
		{[]string{"verify", file}, exit.Usage, "got a file"},
	} {
		o := execute(append([]string{"checkpoint"}, c.args...))
		if o.code != c.code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%v: got exit code %d and %s, want %d and %q", c.args, o.code, o.stderr, c.code, c.says)
		}
	}
}

func TestRunStartsFromWeights(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if o := trainIn(t, filepath.Join(dir, "first")); o.code != exit.Done {
		t.Fatal(o.stderr)
	}
	first := filepath.Join(dir, "first", "run")
	start := func(name, from string, set ...string) outcome {
		return trainIn(t, filepath.Join(dir, name),
			append([]string{"model.init_from=" + from, "optimizer.lr=1e-30", "schedule.name=constant",
				"optimizer.weight_decay=0.0"}, set...)...)
	}
	weightsOf := func(name, tensor string) string {
		t.Helper()
		c, _, err := checkpoint.Latest(filepath.Join(dir, name, "run", "checkpoints"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got, err := c.Model.Read(tensor)
		if err != nil {
			t.Fatal(err)
		}
		return string(got.Data)
	}
	c, _, err := checkpoint.Latest(filepath.Join(first, "checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.Path, "model.safetensors")
	c.Close()
	for name, from := range map[string]string{
		"run": first, "file": file, "latest": filepath.Join(first, "checkpoints", "latest")} {
		if o := start(name, from); o.code != exit.Done ||
			weightsOf(name, "fc.weight") != weightsOf("first", "fc.weight") {
			t.Errorf("%s: exit code %d, other weights than those to start from\n%s", name, o.code, o.stderr)
		}
	}
	const random = "some layers start with random weights"
	if o := start("classes", file, "model.num_classes=12"); o.code != exit.Done ||
		!strings.Contains(o.stderr, random) || !strings.Contains(o.stderr, "the file has 10 classes, the model 12") ||
		weightsOf("classes", "block0.conv1.weight") != weightsOf("first", "block0.conv1.weight") {
		t.Errorf("another number of classes: exit code %d\n%s", o.code, o.stderr)
	}
	if o := start("fresh", file, "model.init_head=new"); o.code != exit.Done || !strings.Contains(o.stderr, random) ||
		weightsOf("fresh", "fc.weight") == weightsOf("first", "fc.weight") {
		t.Errorf("a new head: exit code %d\n%s", o.code, o.stderr)
	}
	for _, c := range []struct {
		name, from, says string
		set              []string
		code             int
	}{
		{"kept", file, "fc.bias: file F32 (10), model F32 (12)",
			[]string{"model.num_classes=12", "model.init_head=keep"}, exit.Usage},
		{"another", file, "block1.conv1.weight: file F32 (4, 3, 3, 3), model F32 (6, 3, 3, 3)",
			[]string{"model.channels=[3, 6]"}, exit.Usage},
		{"missing", filepath.Join(dir, "none"), "no such file", nil, exit.Usage},
		{"nan", writeWeights(t, values("fc.bias", []int{10}, float32(math.NaN()))), "only in the model", nil,
			exit.Usage},
	} {
		o := start(c.name, c.from, c.set...)
		if o.code != c.code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%s: got exit code %d and %s, want %d and %q", c.name, o.code, o.stderr, c.code, c.says)
		}
		if parts.Exists(filepath.Join(dir, c.name)) {
			t.Errorf("%s: a folder was made", c.name)
		}
	}
	// A run that resumes does not use initial weights, so their file may be missing.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if o := start("classes", filepath.Join(dir, "none"), "model.num_classes=12",
		"train.steps=7"); o.code != exit.Usage || !strings.Contains(o.stderr, "--allow model.init_from") {
		t.Errorf("resumed with another file: exit code %d\n%s", o.code, o.stderr)
	}
	if o := start("classes", file, "model.num_classes=12", "train.steps=7"); o.code != exit.Done ||
		strings.Contains(o.stderr, random) {
		t.Errorf("resumed: exit code %d\n%s", o.code, o.stderr)
	}
}
