package tokenizer

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// exportedGPT2 computes the files of GPT-2's tokenizer once, because they are large.
var exportedGPT2 = sync.OnceValues(func() (map[string][]byte, error) { return Export{Positions: 8}.Files(GPT2()) })

// writeExport writes the files that transformers needs to load a tokenizer. It returns their folder.
func writeExport(t *testing.T, tokenizer Tokenizer, leaveOut ...string) string {
	t.Helper()
	files, err := exportedGPT2()
	if tokenizer.Name() != "gpt2" {
		files, err = Export{Positions: 8}.Files(tokenizer)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range files {
		if slices.Contains(leaveOut, name) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestSumsOfBuiltInTokenizers computes the digests again from the files of the tokenizers, in both forms.
func TestSumsOfBuiltInTokenizers(t *testing.T) {
	for _, tokenizer := range []Tokenizer{GPT2(), Bytes()} {
		want := Identity{Name: tokenizer.Name()}.complete().Sum
		dir := writeExport(t, tokenizer)
		one, err := sumOfDefinition(filepath.Join(dir, definitionName))
		if err != nil || one != want {
			t.Errorf("%s: tokenizer.json: got %s, %v; want %s", tokenizer.Name(), one, err, want)
		}
		two, err := sumOfPairs(dir)
		if err != nil || two != want {
			t.Errorf("%s: vocab.json and merges.txt: got %s, %v; want %s", tokenizer.Name(), two, err, want)
		}
	}
}

// TestTokenizersOfFoldersAreIdentified changes exported files and identifies the tokenizer.
func TestTokenizersOfFoldersAreIdentified(t *testing.T) {
	edit := func(name, from, to string) func(string) error {
		return func(dir string) error {
			path := filepath.Join(dir, name)
			text, err := os.ReadFile(path)
			if err == nil && !strings.Contains(string(text), from) {
				err = errors.New("no " + from + " in " + name)
			}
			return errors.Join(err, os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o600))
		}
	}
	edits := func(list ...func(string) error) func(string) error {
		return func(dir string) (err error) {
			for _, edit := range list {
				err = errors.Join(err, edit(dir))
			}
			return err
		}
	}
	model := func(text string) func(string) error { return modelOf(text, "[]") }
	// Unlike an exported file, the published tokenizer.json of GPT-2 has no type in its model, and no use_regex.
	older := edits(edit(definitionName, `"type":"BPE",`, ""), edit(definitionName, `"use_regex":true`, `"trim":true`),
		edit(definitionName, `"normalizer":null,`, ""))
	for _, c := range []struct {
		name   string
		from   Tokenizer
		remove string // file that is missing in the folder
		change func(dir string) error
		want   string // name of the tokenizer
	}{
		{"all files", GPT2(), "", nil, "gpt2"},
		{"two files", GPT2(), definitionName, nil, "gpt2"},
		{"two merges exchanged", GPT2(), definitionName, edit(mergesName, "Ġ t\nĠ a\n", "Ġ a\nĠ t\n"), Other},
		{"one file", Bytes(), mergesName, nil, "bytes"},
		{"another special token", Bytes(), "", edit(definitionName, `"added_tokens":[`,
			`"added_tokens":[{"id":257,"content":"[PAD]","special":true},`), "bytes"},
		{"another word", Bytes(), "", edit(definitionName, `"added_tokens":[`,
			`"added_tokens":[{"id":257,"content":"covid","special":false},`), Other},
		{"two tokens exchanged", Bytes(), "", edit(definitionName, `"Ā":0,"ā":1,`, `"Ā":1,"ā":0,`), Other},
		{"two tokens exchanged in vocab.json", Bytes(), definitionName,
			edit(vocabularyName, `"Ā":0,"ā":1,`, `"Ā":1,"ā":0,`), Other},
		{"a space before the text", Bytes(), "",
			edit(definitionName, `"add_prefix_space":false`, `"add_prefix_space":true`), Other},
		{"another normalizer", Bytes(), "", edit(definitionName, `"normalizer":null`, `"normalizer":{"type":"NFC"}`),
			Other},
		{"another model", Bytes(), "", edit(definitionName, `"type":"BPE"`, `"type":"Unigram"`), Other},
		{"the file of an old version", GPT2(), mergesName, older, "gpt2"},
		{"merges of a new version", GPT2(), mergesName, edit(definitionName, `"merges":["Ġ t",`, `"merges":[["Ġ","t"],`),
			"gpt2"},
		{"an old file with two tokens exchanged", Bytes(), mergesName,
			edits(edit(definitionName, `"type":"BPE",`, ""),
				edit(definitionName, `"Ā":0,"ā":1,`, `"Ā":1,"ā":0,`)), Other},
		{"an old file of WordPiece", Bytes(), "", model(`{"continuing_subword_prefix":"##","vocab":{"a":0}}`), Other},
		{"an old file of Unigram", Bytes(), "", model(`{"unk_id":0,"vocab":[["a",0]]}`), Other},
		{"a model without a kind", Bytes(), "", model(`{"vocab":{"a":0}}`), ""},
		{"no model", Bytes(), "", model(`null`), ""},
	} {
		dir := writeExport(t, c.from, c.remove)
		if c.change != nil {
			if err := c.change(dir); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		got, err := InFolder(dir)
		if err != nil || got.Name != c.want || (got.Sum == "") != (c.want != Other) {
			t.Errorf("%s: got %+v, %v; want %s", c.name, got, err, c.want)
		}
	}
	if got, err := InFolder(t.TempDir()); err != nil || got.Known() {
		t.Errorf("a folder without a tokenizer: got %+v, %v", got, err)
	}
}

// modelOf returns a function that replaces tokenizer.json by a file with another model.
func modelOf(model, added string) func(dir string) error {
	return func(dir string) error {
		return os.WriteFile(filepath.Join(dir, definitionName), []byte(`{"added_tokens":`+added+
			`,"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"model":`+model+`}`), 0o600)
	}
}

func TestDamagedTokenizersAreFaults(t *testing.T) {
	write := func(files ...string) func(dir string) error {
		return func(dir string) (err error) {
			for i := 0; i < len(files); i += 2 {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600))
			}
			return err
		}
	}
	const word = `[{"id":1,"content":"x","special":false}]`
	for _, c := range []struct {
		name, file string
		write      func(dir string) error
	}{
		{"half a file", definitionName, write(definitionName, "{")},
		{"no vocabulary", definitionName, modelOf(`{"type":"BPE","merges":[]}`, word)},
		{"a vocabulary of null", definitionName, modelOf(`{"type":"BPE","merges":[],"vocab":null}`, word)},
		{"no vocabulary in an old file", definitionName, modelOf(`{"merges":[]}`, word)},
		{"vocab.json of null", vocabularyName, write(vocabularyName, "null", mergesName, "a b\n", addedName, `{"x":1}`)},
	} {
		dir := t.TempDir()
		if err := c.write(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := InFolder(dir); !errors.As(err, new(*data.Fault)) || !strings.Contains(err.Error(), c.file) {
			t.Errorf("%s: got %v, want a fault that names %s", c.name, err, c.file)
		}
	}
}

// TestMergesAreThePublishedOnes compares an exported file with merges.txt of the published GPT-2. This file is also
// called vocab.bpe.
func TestMergesAreThePublishedOnes(t *testing.T) {
	files, err := exportedGPT2()
	if err != nil {
		t.Fatal(err)
	}
	const want = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
	if got := fmt.Sprintf("%x", sha256.Sum256(files[mergesName])); got != want {
		t.Errorf("got SHA-256 %s, want %s", got, want)
	}
}

func TestIdentitiesAreCompared(t *testing.T) {
	for _, c := range []struct {
		a, b Identity
		want Relation
	}{
		{Identity{}, Identity{}, Unproved},
		{Identity{}, Identity{Name: "gpt2"}, Unproved},
		{Identity{Name: "gpt2"}, Identity{Name: "gpt2"}, Equal},
		{Identity{Name: "gpt2"}, Identity{Name: "bytes"}, Different},
		{Identity{Name: "gpt2"}, Identity{Name: Other, Sum: "01"}, Different},
		// an identity without a name is a WordPiece vocabulary whose case is unknown
		{Identity{Name: "gpt2"}, Identity{Sum: "01"}, Different},
		{Identity{Name: "gpt2", Sum: "01"}, Identity{Name: "gpt2"}, Equal},
		{IdentityOf(Unknown, [32]byte{}), Identity{Name: "gpt2"}, Unproved},
		{Identity{Name: "llama3"}, Identity{Name: "llama3"}, Equal},
		{Identity{Name: Other, Sum: "01"}, Identity{Name: Other, Sum: "02"}, Different},
		{Identity{Name: "wordpiece", Sum: "01"}, Identity{Sum: "01"}, Equal},
		{Identity{Name: "wordpiece", Sum: "01"}, Identity{Name: "wordpiece-cased", Sum: "01"}, Different},
		{Identity{Name: "wordpiece", Sum: "01"}, Identity{Name: "wordpiece", Sum: "02"}, Different},
		{Identity{Name: "wordpiece", Sum: "01"}, Identity{Name: "wordpiece"}, Unproved},
	} {
		if got, back := c.a.Compare(c.b), c.b.Compare(c.a); got != c.want || back != c.want {
			t.Errorf("%+v and %+v: got %d and %d, want %d", c.a, c.b, got, back, c.want)
		}
	}
}
