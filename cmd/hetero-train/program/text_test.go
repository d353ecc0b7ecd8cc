package program

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/data"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

func writeText(t *testing.T, dir, name, contents string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(contents), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTextBecomesTokenShards(t *testing.T) {
	dir := t.TempDir()
	in, out := writeText(t, dir, "a.txt", strings.Repeat("Some text to train on.\n", 100)), filepath.Join(dir, "shards")
	tokenize := []string{"data", "tokenize", in, "-o", out, "--val-fraction", "0.25", "--shard-tokens", "200"}
	if o := execute(tokenize); o.code != 0 ||
		!strings.Contains(o.stdout, "702 tokens of 2 documents, tokenizer gpt2 with 50257 tokens") {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute(append(tokenize, "--json")); o.code != 0 || !strings.Contains(o.stdout, `"complete_before":true`) {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute([]string{"data", "inspect", out}); o.code != 0 ||
		!strings.Contains(o.stdout, "begins \"Some text to train on.") ||
		!strings.Contains(o.stdout, "702 tokens in 4 shards") ||
		!strings.Contains(o.stdout, "end-of-text token 50256, 1 document\n") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	var shards []data.TokenShard
	if o := execute([]string{"data", "inspect", out, "--json"}); json.Unmarshal([]byte(o.stdout), &shards) != nil ||
		len(shards) != 4 || shards[3].Part != "val" || shards[0].Tokens != 200 || shards[0].Tokenizer != "gpt2" {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute([]string{"data", "verify", out}); o.code != 0 ||
		!strings.Contains(o.stdout, "702 tokens in 4 shards") || !strings.Contains(o.stdout, "0 bad") ||
		!strings.Contains(o.stdout, ", 1 document\n") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	damage(t, filepath.Join(out, "train-000001.bin"))
	var v data.VerifiedTokens
	if o := execute([]string{"data", "verify", out, "--json"}); o.code != exit.Data ||
		json.Unmarshal([]byte(o.stdout), &v) != nil || v.Bad != 1 || !strings.Contains(v.Shards[1].Error, "SHA-256") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute(append(tokenize, "--separator", "--")); o.code != exit.Usage ||
		!strings.Contains(o.stderr, `separator was null, now "--"`) {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute(append(tokenize, "--field", "text")); o.code != exit.Usage ||
		!strings.Contains(o.stderr, `field: got "text", but no input has JSON lines or a table`) {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
}

// The configuration has keys for token files without a header. The commands must use these keys, and must also check
// all other keys.
func TestInspectAndVerifyUseTheKeysOfTokenFiles(t *testing.T) {
	dir := t.TempDir()
	var wide []byte
	for i := range 3000 {
		wide = binary.LittleEndian.AppendUint32(wide, uint32(i%200))
	}
	file := filepath.Join(dir, "wide.bin")
	if err := os.WriteFile(file, wide, 0o644); err != nil {
		t.Fatal(err)
	}
	settings := writeText(t, dir, "run.toml", "[model]\nname = \"bert_base\"\nnext_sentence = true\n[data]\ndataset = \"text\"\npath = \"elsewhere\"\ntoken_bytes = 4\n")
	for _, command := range []string{"inspect", "verify"} {
		for _, c := range []struct {
			args []string
			code int
			says string
		}{
			{nil, exit.Data, "set data.token_bytes = 4"},
			{[]string{"--set", "data.token_bytes=4"}, exit.Done, "3000 tokens in 1 shard"},
			{[]string{"-c", settings}, exit.Done, "3000 tokens in 1 shard"},
			{[]string{"--set", "data.token_bytes=3"}, exit.Usage, "data.token_bytes: got 3, want 0, 2 or 4"},
			{[]string{"--set", "data.token_byte=4"}, exit.Usage, "data.token_byte"},
		} {
			args := append([]string{"data", command, file}, c.args...)
			if o := execute(args); o.code != c.code || !strings.Contains(o.stdout+o.stderr, c.says) {
				t.Errorf("%q: got exit code %d and\n%s%swant %d and %q", args, o.code, o.stdout, o.stderr, c.code,
					c.says)
			}
		}
	}
}

// damage changes one token of a shard.
func damage(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[300] ^= 1
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTokenizeNamesFaults(t *testing.T) {
	dir := t.TempDir()
	good := writeText(t, dir, "good.txt", "text")
	twice := writeText(t, dir, "twice.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{writeText(t, dir, "bad.txt", "text \xff")}, exit.Data, "byte 5 of the text is not UTF-8: ff"},
		{[]string{writeText(t, dir, "empty.txt", "")}, exit.Data, "the file is empty"},
		{[]string{filepath.Join(dir, "none.txt")}, exit.Data, "no such file"},
		{[]string{writeText(t, dir, "bad.jsonl", "{}\n")}, exit.Data, `no field "text"`},
		{[]string{good, "--tokenizer", "wordpiece", "--vocab", twice}, exit.Data, `lines 6 and 7 are both "a"`},
		{[]string{good, "--tokenizer", "wordpiece"}, exit.Usage, "needs a vocabulary file"},
		{[]string{good, "--tokenizer", "gpt3"}, exit.Usage, "want one of gpt2, bytes"},
		{[]string{good, "--vocab", twice}, exit.Usage, "uses no vocabulary file"},
		{[]string{good, "--val-fraction", "1"}, exit.Usage, "--val-fraction: got 1"},
		{[]string{good, "--shard-tokens", "0"}, exit.Usage, "--shard-tokens: got 0"},
		{[]string{good, "--format", "csv"}, exit.Usage, "--format: got \"csv\""},
		{[]string{good, "--separator", "a\nb"}, exit.Usage, "--separator"},
		{[]string{good, "--workers", "-1"}, exit.Usage, "--workers: got -1"},
		{nil, exit.Usage, "no input"},
	} {
		args := append([]string{"data", "tokenize", "-o", filepath.Join(t.TempDir(), "out")}, c.args...)
		if o := execute(args); o.code != c.code || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%q: exit %d, want %d with %q: %s", c.args, o.code, c.code, c.want, o.stderr)
		}
	}
	if o := execute([]string{"data", "tokenize", good}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "want -o DIR") {
		t.Errorf("exit %d: %s", o.code, o.stderr)
	}
	if o := execute([]string{"data", "tokenize", good, "-o", filepath.Join(good, "out")}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "not a directory") {
		t.Errorf("exit %d: %s", o.code, o.stderr)
	}
}
