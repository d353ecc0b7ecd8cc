package program

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/inference"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/device"
)

func TestGenerateContinuesWhatTheModelLearned(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	p.trainOnTokens(t, dir, strings.Repeat("abcdefgh", 400))
	finish(t, p.command(dir, "train.epochs=12", "model.dropout=0.0", "optimizer.lr=0.03"), 0).check(t, exit.Done, "")
	run := filepath.Join(dir, "run")
	generate := func(args ...string) outcome { return execute(append([]string{"generate", run}, args...)) }

	// The 3 tokens of the prompt and the 30 generated tokens exceed the 12 positions of the model.
	if o := generate("--prompt", "cde", "--tokens", "30", "--temperature", "0"); o.code != 0 ||
		o.stdout != "cdefghabcdefghabcdefghabcdefghabc\n" {
		t.Errorf("exit %d: %q %s", o.code, o.stdout, o.stderr)
	}
	var first, second, other inference.Generation
	for seed, to := range map[string]*inference.Generation{"3": &first, "03": &second, "4": &other} {
		o := generate("--prompt", "a", "--tokens", "20", "--temperature", "5", "--seed", strings.TrimPrefix(seed, "0"),
			"--json")
		if o.code != 0 {
			t.Fatalf("exit %d: %s", o.code, o.stderr)
		}
		if err := json.Unmarshal([]byte(o.stdout), to); err != nil {
			t.Fatal(err)
		}
	}
	if first.Text != second.Text || first.Text == other.Text || first.Tokenizer != "bytes" || first.Prompt != "a" {
		t.Errorf("got %+v, %+v and %+v, want the first two equal", first, second, other)
	}
	// The seeds of samples are consecutive, so the first and the second sample equal the samples above.
	if o := generate("--prompt", "a", "--tokens", "20", "--temperature", "5", "--seed", "3", "--samples", "2",
		"--json"); o.code != 0 {
		t.Errorf("exit %d: %s", o.code, o.stderr)
	} else {
		decoder := json.NewDecoder(strings.NewReader(o.stdout))
		for _, want := range []inference.Generation{first, other} {
			var got inference.Generation
			if err := decoder.Decode(&got); err != nil || got.Text != want.Text || got.Seed != want.Seed {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		}
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--samples", "0"}, "--samples: got 0"},
		{[]string{"--samples", "2", "--temperature", "0"}, "all samples would be equal"},
		{[]string{"--prompt", "abcdefghabcdefgh"},
			"--prompt: got 16 tokens, want at most the 12 positions of the model"},
		{[]string{"--prompt", "a\xff"}, "--prompt: byte 1 is not valid UTF-8"},
		{[]string{"--tokens", "0"}, "--tokens: got 0"},
		{[]string{"--temperature", "-1"}, "temperature: got -1"},
		{[]string{"--top-p", "0"}, "top-p: got 0"},
		{[]string{"--tokenizer", "words"}, `unknown tokenizer "words"`},
		{[]string{"--prompt", "hello there", "--tokenizer", "gpt2"},
			"leave the flag out, or name the tokenizer of the training"},
	} {
		if o := generate(c.args...); o.code != exit.Usage || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%q: exit %d: %s%s, want %q", c.args, o.code, o.stdout, o.stderr, c.says)
		}
	}
}

func TestGenerateNeedsALanguageModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if o := trainIn(t, dir, "train.epochs=1"); o.code != exit.Done {
		t.Fatal(o.stderr)
	}
	runs, err := filepath.Glob(filepath.Join(dir, "*", "checkpoints"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("got %v, %v", runs, err)
	}
	if o := execute([]string{"generate", filepath.Dir(runs[0])}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "want a language model") {
		t.Errorf("exit %d: %s", o.code, o.stderr)
	}
}

// lackingDriver opens devices without the op that reads the key-value cache.
type lackingDriver struct{ device.Driver }

func (d lackingDriver) Open(index int, o device.Options) (device.Device, error) {
	dev, err := d.Driver.Open(index, o)
	return lackingDevice{dev}, err
}

type lackingDevice struct{ device.Device }

func (d lackingDevice) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	if op.Kind() == (device.AttentionStep{}).Kind() {
		return nil, device.ErrUnsupported
	}
	return d.Device.Compile(op, in, out)
}

func TestGenerateOnADeviceWithoutTheCacheReadsTheWholeText(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	p.config = clitest.WriteConfig(t, smallText)
	finish(t, p.command(dir, "train.epochs=1", "data.vocabulary=300"), 0).check(t, exit.Done, "")
	args := []string{"generate", filepath.Join(dir, "run"), "--prompt", "a", "--tokens", "12", "--tokenizer", "bytes"}
	want := execute(args)
	for i, d := range devices.Drivers {
		if d.Kind() == "reference" {
			t.Cleanup(func() { devices.Drivers[i].Driver = d.Driver })
			devices.Drivers[i].Driver = lackingDriver{d.Driver}
		}
	}
	o := execute(args)
	if o.code != exit.Done || o.stdout != want.stdout || strings.Contains(want.stderr, "whole text") ||
		strings.Count(o.stderr, "each token costs a pass over the whole text") != 1 {
		t.Errorf("got exit code %d, %q and %q, want the text %q", o.code, o.stdout, o.stderr, want.stdout)
	}
}
