package program

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
)

// foreignTokens writes token files of another tokenizer, which has as many tokens as tokenizer bytes.
func foreignTokens(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	w, err := tokens.Create(path, tokens.Header{Tokenizer: "theirs", Vocabulary: 257, EndOfText: 256})
	if err != nil {
		t.Fatal(err)
	}
	list := make([]int32, 600)
	for i := range list {
		list[i] = int32(i % 200)
	}
	if err := w.Append(list); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Token numbers have a meaning only with their tokenizer. All tokenizers of this test have 257 tokens, so only their
// names differ.
func TestAnotherTokenizerIsRefused(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	shards := p.trainOnTokens(t, dir, bestOfTimes)
	theirs := foreignTokens(t, dir, "theirs.bin")
	finish(t, p.command(dir, "train.steps=4"), 0).check(t, exit.Done, "")
	run, folder := filepath.Join(dir, "run"), filepath.Join(dir, "hf")
	const says = "equal tokens mean different texts"

	// The two parts of a data set have different tokenizers.
	other := filepath.Join(dir, "other")
	finish(t, p.command(other, "train.steps=1", "data.val_path="+theirs), 0).check(t, exit.Usage, says)
	mixed := t.TempDir()
	foreignTokens(t, mixed, "val-000000.bin")
	if err := os.WriteFile(filepath.Join(mixed, "train-000000.bin"),
		clitest.ReadFile(t, filepath.Join(shards, "train-000000.bin")), 0o600); err != nil {
		t.Fatal(err)
	}
	finish(t, p.command(other, "train.steps=1", "data.path="+mixed), 0).check(t, exit.Data,
		"convert both parts with the same tokenizer")

	// The data have another tokenizer than the trained model.
	finish(t, p.command(other, "train.steps=1", "model.init_from="+run, "data.path="+theirs), 0).check(t, exit.Usage,
		says)
	resumed := p.command(dir, "train.steps=8", "data.path="+theirs)
	resumed.Args = append(resumed.Args, "--allow", "data.path")
	finish(t, resumed, 0).check(t, exit.Usage, says)
	for _, args := range [][]string{
		{"eval", run, "--set", "data.path=" + theirs},
		{"eval", run, "--set", "data.val_path=" + theirs},
		{"generate", run, "--prompt", "It", "--tokenizer", "gpt2"},
	} {
		if o := execute(args); o.code != exit.Usage || !strings.Contains(o.stderr, says) {
			t.Errorf("%q: exit %d: %s%s", args, o.code, o.stdout, o.stderr)
		}
	}
	export := []string{"checkpoint", "export", run, "--format", "hf", "--output"}
	if o := execute(append(export, folder+"2", "--tokenizer", "gpt2")); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "the weights were trained with tokenizer bytes") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}

	// The checkpoint states the tokenizer. A language model has no classes.
	if o := execute([]string{"checkpoint", "inspect", run}); o.code != exit.Done ||
		!strings.Contains(o.stdout, "tokenizer bytes") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute([]string{"eval", run, "--by-class"}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "--by-class: ") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}

	// The program does not contain the tokenizer of this folder for transformers.
	if o := execute(append(export, folder)); o.code != exit.Done {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	definition := filepath.Join(folder, "tokenizer.json")
	text := clitest.ReadFile(t, definition)
	from, to := []byte(`"Ā":0,"ā":1,`), []byte(`"Ā":1,"ā":0,`)
	if !bytes.Contains(text, from) {
		t.Fatalf("no %s in %s", from, definition)
	}
	if err := os.WriteFile(definition, bytes.Replace(text, from, to, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	imported, file := filepath.Join(dir, "imported"), filepath.Join(dir, "imported.safetensors")
	line := writeText(t, dir, "line.txt", "It was\n")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"checkpoint", "import", folder, "--output", imported}, exit.Done, ""},
		{[]string{"checkpoint", "import", folder, "--output", file}, exit.Done, ""},
		{[]string{"generate", imported, "--prompt", "It"}, exit.Usage, "was trained with a tokenizer of another program"},
		{[]string{"generate", imported, "--tokenizer", "bytes"}, exit.Usage, "a tokenizer of another program"},
		{[]string{"predict", imported, line}, exit.Usage, "was trained with a tokenizer of another program"},
		{[]string{"eval", imported, "--device", "reference", "--set", "data.dataset=text", "--set",
			"data.path=" + shards, "--set", "data.sequence_length=12"}, exit.Usage, says},
		{[]string{"checkpoint", "export", imported, "--format", "hf", "--output", filepath.Join(dir, "again")},
			exit.Done, "copy its files"},
		{[]string{"checkpoint", "export", imported, "--format", "hf", "--output", filepath.Join(dir, "again2"),
			"--tokenizer", "bytes"}, exit.Usage, "leave --tokenizer out"},
	} {
		if o := execute(c.args); o.code != c.code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%q: exit %d: %s%s; want %d and %q", c.args, o.code, o.stdout, o.stderr, c.code, c.says)
		}
	}
	for _, from := range []string{folder, imported, file} {
		finish(t, p.command(other, "train.steps=1", "model.init_from="+from), 0).check(t, exit.Usage, says)
	}
}

// If the program does not know a tokenizer, a warning must state that it cannot compare the tokenizers.
func TestAnUnknownTokenizerIsStated(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	p.trainOnTokens(t, dir, bestOfTimes)
	var bare []byte
	for i := range 600 {
		bare = binary.LittleEndian.AppendUint16(bare, uint16(i%200))
	}
	file := writeText(t, dir, "bare.bin", string(bare))
	const says = "nothing proves that the tokens of"
	for _, c := range []struct {
		name string
		set  []string
		want int // number of warnings
	}{
		{"known", []string{"train.steps=1"}, 0},
		{"held", []string{"train.steps=1", "data.val_path=" + file}, 1},
		// The tokenizers of both parts are unknown.
		{"bare", []string{"train.steps=1", "data.path=" + file, "data.vocabulary=257"}, 0},
		{"from", []string{"train.steps=1", "model.init_from=" + filepath.Join(dir, "bare")}, 1},
	} {
		e := finish(t, p.command(dir, append(c.set, "experiment.name="+c.name)...), 0)
		e.check(t, exit.Done, "")
		if n := strings.Count(e.stderr, says); n != c.want {
			t.Errorf("%s: got %d warnings, want %d\n%s", c.name, n, c.want, e.stderr)
		}
	}
	const guessed = "nothing proves that this is the tokenizer of the training"
	for name, want := range map[string]int{"known": 0, "bare": 1} {
		o := execute([]string{"generate", filepath.Join(dir, name), "--prompt", "It", "--tokens", "1"})
		if n := strings.Count(o.stderr, guessed); o.code != exit.Done || n != want {
			t.Errorf("%s: exit %d, %d warnings, want %d: %s", name, o.code, n, want, o.stderr)
		}
	}
}
