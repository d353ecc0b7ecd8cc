package program

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/golden"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// exportedGPT2 trains a small GPT-2 for some steps and exports it for transformers.
func exportedGPT2(t *testing.T) (run, folder string) {
	t.Helper()
	p, dir := buildProgram(t), t.TempDir()
	p.config = clitest.WriteConfig(t, smallText)
	finish(t, p.command(dir, "train.epochs=1"), 0).check(t, exit.Done, "")
	run, folder = filepath.Join(dir, "run"), filepath.Join(dir, "hf")
	if o := execute([]string{"checkpoint", "export", run, "--format", "hf", "--output", folder}); o.code != exit.Done {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	return run, folder
}

func TestGPT2GoesToTransformersAndBackUnchanged(t *testing.T) {
	t.Parallel()
	run, folder := exportedGPT2(t)
	theirs := contents(t, filepath.Join(folder, "model.safetensors"))
	own := contents(t, filepath.Join(run, "checkpoints", checkpoint.StepName(32), "model.safetensors"))
	const name = "transformer.h.0.attn.c_attn.weight"
	if got := theirs[name].Shape; !got.Equal(tensor.Shape{16, 48}) || len(theirs) != len(own) {
		t.Errorf("%s: got shape %v, want (inputs, outputs); %d tensors, want %d", name, got, len(theirs), len(own))
	}
	for o := range 48 {
		for i := range 16 {
			if a, b := theirs[name].Data[4*(i*48+o):][:4], own[name].Data[4*(o*16+i):][:4]; !bytes.Equal(a, b) {
				t.Fatalf("element (%d, %d): got % x, want % x", i, o, a, b)
			}
		}
	}
	var settings map[string]any
	if err := json.Unmarshal(clitest.ReadFile(t, filepath.Join(folder, "config.json")), &settings); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"model_type": "gpt2", "n_layer": 1.0, "n_head": 2.0, "n_embd": 16.0,
		"vocab_size": 16.0, "n_positions": 12.0, "activation_function": "gelu_new"} {
		if settings[key] != want {
			t.Errorf("config.json: %s is %v, want %v", key, settings[key], want)
		}
	}

	// GPT2Model stores weights in this form: names without a prefix, with buffers and a copy of the tied table.
	var bare []checkpoint.Tensor
	for _, w := range theirs {
		if w.Name = strings.TrimPrefix(w.Name, "transformer."); w.Name == "wte.weight" {
			bare = append(bare, checkpoint.Tensor{Name: "lm_head.weight", DType: w.DType, Shape: w.Shape, Data: w.Data})
		}
		bare = append(bare, w)
	}
	bare = append(bare, checkpoint.Tensor{Name: "h.0.attn.bias", DType: tensor.U8, Shape: tensor.Shape{1, 1, 2, 2},
		Data: make([]byte, 4)}, values("h.0.attn.masked_bias", []int{1}, -1e4))
	second := t.TempDir()
	if err := os.Rename(writeWeights(t, bare...), filepath.Join(second, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(second, "config.json"),
		clitest.ReadFile(t, filepath.Join(folder, "config.json")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{folder, second} {
		dir := t.TempDir()
		file, imported, again := filepath.Join(dir, "in.safetensors"), filepath.Join(dir, "imported"),
			filepath.Join(dir, "again")
		for _, to := range []string{file, imported} {
			if o := execute([]string{"checkpoint", "import", from, "--format", "hf", "--output",
				to}); o.code != exit.Done || !strings.Contains(o.stdout, "4 weights transposed") {
				t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
			}
		}
		for name, got := range contents(t, file) {
			if !bytes.Equal(got.Data, own[name].Data) || !got.Shape.Equal(own[name].Shape) {
				t.Errorf("%s: the imported values differ", name)
			}
		}
		// An evaluation may use another data set than the import did.
		vocab, shards := writeText(t, dir, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n"),
			filepath.Join(dir, "shards")
		in := writeText(t, dir, "in.txt", strings.Repeat("a b b ", 50))
		for _, args := range [][]string{
			{"data", "tokenize", in, "-o", shards, "--tokenizer", "wordpiece", "--vocab", vocab, "--val-fraction",
				"0.5"},
			{"eval", imported, "--device", "reference", "--set", "data.dataset=text", "--set", "data.path=" + shards,
				"--set", "data.sequence_length=12"},
		} {
			if o := execute(args); o.code != exit.Done || args[0] == "eval" &&
				!strings.Contains(o.stdout, "part validation") {
				t.Errorf("%q: exit %d: %s%s", args, o.code, o.stdout, o.stderr)
			}
		}
		if o := execute([]string{"checkpoint", "export", imported, "--format", "hf", "--output",
			again}); o.code != exit.Done {
			t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
		}
		back := contents(t, filepath.Join(again, "model.safetensors"))
		for name, want := range theirs {
			if !bytes.Equal(back[name].Data, want.Data) || !back[name].Shape.Equal(want.Shape) {
				t.Errorf("%s: the values differ after import and export", name)
			}
		}
	}
}

// The test changes the settings of a folder that the program exported, and imports it. The export of the imported
// weights must have the same settings.
func TestOtherSizesOfTransformersAreImported(t *testing.T) {
	t.Parallel()
	_, folder := exportedGPT2(t)
	settings := filepath.Join(folder, "config.json")
	text := string(clitest.ReadFile(t, settings))
	for from, to := range map[string]string{
		"gelu_new": "relu", `"layer_norm_epsilon": 0.00001`: `"layer_norm_epsilon": 0.125`} {
		if !strings.Contains(text, from) {
			t.Fatalf("no %s in %s", from, text)
		}
		text = strings.Replace(text, from, to, 1)
	}
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	imported, again := filepath.Join(dir, "imported"), filepath.Join(dir, "again")
	for _, args := range [][]string{{"import", folder, "--output", imported},
		{"export", imported, "--format", "hf", "--output", again}} {
		if o := execute(append([]string{"checkpoint"}, args...)); o.code != exit.Done {
			t.Fatalf("%q: exit %d: %s%s", args, o.code, o.stdout, o.stderr)
		}
	}
	back := string(clitest.ReadFile(t, filepath.Join(again, "config.json")))
	for _, want := range []string{`"activation_function": "relu"`, `"layer_norm_epsilon": 0.125`} {
		if !strings.Contains(back, want) {
			t.Errorf("no %s in %s", want, back)
		}
	}
}

// The test divides the weights of a folder into two files with an index, and imports them.
func TestWeightsInSeveralFilesAreImported(t *testing.T) {
	t.Parallel()
	_, folder := exportedGPT2(t)
	whole := filepath.Join(folder, "model.safetensors")
	index := map[string]map[string]string{"weight_map": {}}
	var halves [2][]checkpoint.Tensor
	all := contents(t, whole)
	for i, name := range slices.Sorted(maps.Keys(all)) {
		halves[i%2] = append(halves[i%2], all[name])
		index["weight_map"][name] = fmt.Sprintf("model-%05d-of-00002.safetensors", i%2+1)
	}
	for i, half := range halves {
		if err := os.Rename(writeWeights(t, half...),
			filepath.Join(folder, fmt.Sprintf("model-%05d-of-00002.safetensors", i+1))); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := json.Marshal(index)
	if err := errors.Join(err, os.WriteFile(whole+".index.json", listed, 0o600)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	one, several := filepath.Join(dir, "one.safetensors"), filepath.Join(dir, "several.safetensors")
	for _, output := range []string{one, several} {
		if o := execute([]string{"checkpoint", "import", folder, "--output", output}); o.code != exit.Done {
			t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
		}
		_ = os.Remove(whole) // without the whole file, the second import must read the index
	}
	want := contents(t, one)
	for name, got := range contents(t, several) {
		if !bytes.Equal(got.Data, want[name].Data) {
			t.Errorf("%s: the values differ", name)
		}
	}
	if o := execute([]string{"checkpoint", "inspect", whole + ".index.json"}); o.code != exit.Done ||
		!strings.Contains(o.stdout, "transformer.wte.weight") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
}

func TestTrainingStartsFromAFolderOfTransformers(t *testing.T) {
	t.Parallel()
	run, folder := exportedGPT2(t)
	p, dir := buildProgram(t), t.TempDir()
	p.config = clitest.WriteConfig(t, smallText)
	var losses []float64
	for name, from := range map[string]string{"own": run, "theirs": folder} {
		finish(t, p.command(filepath.Join(dir, name), "train.epochs=1", "model.init_from="+from), 0).check(t, exit.Done,
			"")
		losses = append(losses, resultOf(t, filepath.Join(dir, name, "run")).loss(t))
	}
	if losses[0] != losses[1] {
		t.Errorf("got losses %v, want equal ones: the weights are the same", losses)
	}
	finish(t, p.command(filepath.Join(dir, "heads"), "model.heads=4", "model.init_from="+folder), 0).check(t,
		exit.Usage, "1 setting differs:\n  model.heads (n_head): file 2, model 4\n  set the keys")
}

func TestImportFromTransformersRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	_, folder := exportedGPT2(t)
	weights, settings := filepath.Join(folder, "model.safetensors"), filepath.Join(folder, "config.json")
	good, text := clitest.ReadFile(t, weights), string(clitest.ReadFile(t, settings))
	for _, c := range []struct {
		name   string
		change func() error
		args   []string
		code   int
		says   string
	}{
		{"another size", nil, []string{"--set", "model.layers=2", "--set", "model.name=gpt2"}, exit.Usage,
			"model.layers (n_layer): file 1, model 2"},
		{"settings of another size", func() error {
			return os.WriteFile(settings, []byte(strings.Replace(text, `"n_embd": 16`, `"n_embd": 32`, 1)), 0o600)
		}, nil, exit.Usage, "transformer.h.0.attn.c_attn.weight: file F32 (16, 48), model F32 (32, 96)"},
		{"another activation", func() error {
			return os.WriteFile(settings, []byte(strings.Replace(text, "gelu_new", "silu", 1)), 0o600)
		}, nil,
			exit.Usage, `model.activation (activation_function): file "silu", model "gelu_new"`},
		{"an activation that a key contradicts", func() error {
			return os.WriteFile(settings, []byte(strings.Replace(text, "gelu_new", "relu", 1)), 0o600)
		}, []string{"--set", "model.activation=gelu"}, exit.Usage,
			`model.activation (activation_function): file "relu", model "gelu"`},
		{"another model", func() error { return os.WriteFile(settings, []byte(`{"model_type": "llama"}`), 0o600) }, nil,
			exit.Usage, "model_type: file llama, model gpt2 or bert"},
		{"no JSON", func() error { return os.WriteFile(settings, []byte(`{"model_type": 3`), 0o600) }, nil, exit.Data,
			"want the config.json of a transformers model"},
		{"no positions", func() error {
			return os.WriteFile(settings, []byte(strings.Replace(text, `"n_positions": 12`, `"n_positions": -1`, 1)),
				0o600)
		}, nil, exit.Data, "n_positions: got -1, want 1 to"},
		{"header that lies", func() error {
			return os.WriteFile(weights, bytes.Replace(good, []byte("[16,48]"), []byte("[16,49]"), 1), 0o600)
		}, nil, exit.Data, "corrupt"},
		{"no weights", func() error { return os.Remove(weights) }, nil, exit.Usage, "no model.safetensors"},
		{
			"an empty index",
			func() error { return errors.Join(os.Remove(weights), os.WriteFile(weights+".index.json", nil, 0o600)) },
			nil, exit.Data, "want an index of safetensors files"},
		{"no settings", func() error { return os.Remove(settings) }, nil, exit.Usage,
			"want a .safetensors file or a folder of transformers"},
		{"another format", nil, []string{"--format", "onnx"}, exit.Usage, `--format: got "onnx", want auto or hf`},
	} {
		if c.change != nil {
			if err := c.change(); err != nil {
				t.Fatal(err)
			}
		}
		o := execute(
			append([]string{"checkpoint", "import", folder, "--output", filepath.Join(t.TempDir(), "out.safetensors")},
				c.args...))
		if o.code != c.code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%s: exit %d: %s%s; want %d and %q", c.name, o.code, o.stdout, o.stderr, c.code, c.says)
		}
		_ = os.Remove(weights + ".index.json")
		if err := errors.Join(os.WriteFile(weights, good, 0o600),
			os.WriteFile(settings, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if o := execute([]string{"checkpoint", "export", saveCheckpoint(t, values("fc.weight", []int{2}, 1, 2)), "--format",
		"hf", "--output", filepath.Join(t.TempDir(), "x")}); o.code != exit.Usage {
		t.Errorf("a model that transformers lacks: exit %d: %s", o.code, o.stderr)
	}
}

// syntheticData matches the data set of smallText and smallMasked.
var syntheticData = regexp.MustCompile(`(?s)dataset = "synthetic_text".*num_samples = 256`)

// exportedTexts returns the files of an exported folder as text, without the weights. It truncates long lines and lists
// of tokens.
func exportedTexts(t *testing.T, folder string) string {
	t.Helper()
	names, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, entry := range names {
		text := clitest.ReadFile(t, filepath.Join(folder, entry.Name()))
		if entry.Name() == "model.safetensors" {
			continue
		}
		fmt.Fprintf(&b, "%s: %d bytes, %d lines, SHA-256 %x\n", entry.Name(), len(text),
			bytes.Count(text, []byte("\n")), sha256.Sum256(text))
		if strings.HasSuffix(entry.Name(), ".json") {
			short, _, cut := strings.Cut(string(text[:min(len(text), 4000)]), `"vocab":`)
			b.WriteString(short)
			if cut || len(text) > 4000 {
				b.WriteString("…")
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// The test trains on text files, with each tokenizer. The exported folder must contain this tokenizer.
func TestAnExportHasTheTokenizerOfTheTraining(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	vocab := wordVocabulary(t, dir)
	in := writeText(t, dir, "in.txt", strings.Repeat("It was the best of times, it was the worst of times.\n\n", 60))
	for _, c := range []struct {
		name   string
		config string
		args   []string
		files  []string
		class  string
		again  []string // flags for exporting the imported folder again; it names no tokenizer
	}{
		{"bytes", smallText, []string{"--tokenizer", "bytes", "--separator", ""},
			[]string{"merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.json"}, "PreTrainedTokenizerFast",
			[]string{"--tokenizer", "bytes"}},
		{"words", smallMasked, []string{"--tokenizer", "wordpiece", "--vocab", vocab, "--separator", ""}, []string{
			"tokenizer.json", "tokenizer_config.json", "vocab.txt"}, "BertTokenizer", []string{"--vocab", vocab}},
		{"gpt2", smallText, []string{"--tokenizer", "gpt2", "--separator", ""}, []string{"merges.txt", "tokenizer.json",
			"tokenizer_config.json", "vocab.json"}, "GPT2Tokenizer", []string{"--tokenizer", "gpt2"}},
	} {
		shards, folder := filepath.Join(dir, c.name), filepath.Join(dir, c.name+".hf")
		if o := execute(append([]string{"data", "tokenize", in, "-o", shards, "--val-fraction", "0.2"},
			c.args...)); o.code != exit.Done {
			t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
		}
		p.config = clitest.WriteConfig(t, syntheticData.ReplaceAllString(c.config,
			fmt.Sprintf("dataset = \"text\"\npath = %q\nsequence_length = 18", shards)))
		finish(t, p.command(dir, "train.epochs=1", "experiment.name="+c.name+"_run"), 0).check(t, exit.Done, "")
		run := filepath.Join(dir, c.name+"_run")
		if o := execute([]string{"checkpoint", "export", run, "--format", "hf", "--output",
			folder}); o.code != exit.Done || strings.Contains(o.stderr, "tokenizer") {
			t.Fatalf("%s: exit %d: %s%s", c.name, o.code, o.stdout, o.stderr)
		}
		for _, name := range c.files {
			if len(clitest.ReadFile(t, filepath.Join(folder, name))) == 0 {
				t.Errorf("%s: %s is empty", c.name, name)
			}
		}
		if text := string(clitest.ReadFile(t, filepath.Join(folder, "tokenizer_config.json"))); !strings.Contains(text,
			c.class) || !strings.Contains(text, `"model_max_length":18`) {
			t.Errorf("%s: got %s", c.name, text)
		}
		golden.Check(t, filepath.Join("testdata", "hf_"+c.name+".txt"), exportedTexts(t, folder))
		imported, again := folder+"_imported", folder+"_again"
		for _, args := range [][]string{{"checkpoint", "import", folder, "--format", "hf", "--output", imported},
			append([]string{"checkpoint", "export", imported, "--format", "hf", "--output", again}, c.again...)} {
			if o := execute(args); o.code != exit.Done {
				t.Fatalf("%s: %q: exit %d: %s%s", c.name, args, o.code, o.stdout, o.stderr)
			}
		}
		for _, name := range append(slices.Clone(c.files), "config.json") {
			if !bytes.Equal(clitest.ReadFile(t, filepath.Join(again, name)),
				clitest.ReadFile(t, filepath.Join(folder, name))) {
				t.Errorf("%s: %s differs after import and export", c.name, name)
			}
		}
		back := contents(t, filepath.Join(again, "model.safetensors"))
		for name, want := range contents(t, filepath.Join(folder, "model.safetensors")) {
			if !bytes.Equal(back[name].Data, want.Data) {
				t.Errorf("%s: %s differs after import and export", c.name, name)
			}
		}
		if err := os.RemoveAll(shards); err != nil { // removes the vocabulary, too
			t.Fatal(err)
		}
		o := execute([]string{"checkpoint", "export", run, "--format", "hf", "--output", folder + "2"})
		if missing := c.name == "words"; o.code != exit.Done ||
			strings.Contains(o.stderr, "the folder gets no tokenizer") != missing ||
			parts.Exists(filepath.Join(folder+"2", "tokenizer.json")) == missing {
			t.Errorf("%s: exit %d: %s%s", c.name, o.code, o.stdout, o.stderr)
		}
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--format", "hf", "--vocab", vocab + ".none"}, "no such file"},
		{[]string{"--format", "hf", "--tokenizer", "gpt2"}, "want wordpiece or wordpiece-cased"},
		{[]string{"--vocab", vocab}, "have an effect with --format hf only"},
	} {
		args := append([]string{"checkpoint", "export", filepath.Join(dir, "words_run"), "--output",
			filepath.Join(dir, "x.safetensors")}, c.args...)
		if o := execute(args); o.code == exit.Done || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%q: exit %d: %s%s", c.args, o.code, o.stdout, o.stderr)
		}
	}
	if o := execute([]string{"checkpoint", "export", filepath.Join(dir, "words_run"), "--format", "hf", "--output",
		filepath.Join(dir, "given"), "--vocab", vocab}); o.code != exit.Done ||
		!parts.Exists(filepath.Join(dir, "given", "vocab.txt")) {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
}

// The library transformers must load exported folders without additional options. The outputs and tokens of the library
// must equal those of the program. The test also compares imports.
func TestTransformersLoadsExports(t *testing.T) {
	needtest.NotShort(t, "trains several models, and starts PyTorch")
	python := cmp.Or(os.Getenv("HETERO_TORCH"), "python3")
	if out, err := exec.Command(python, "-c", "import numpy, safetensors, torch, transformers").
		CombinedOutput(); err != nil {
		needtest.Missing(t, "transformers", string(bytes.TrimSpace(out))+err.Error())
	}
	out, err := exec.Command(python, "../../../scripts/check_hf.py", "--program", buildProgram(t).path).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("ok     greedy text of bytes")) ||
		!bytes.Contains(out, []byte("ok     greedy text of gpt2")) {
		t.Errorf("%v\n%s", err, out)
	}
}
