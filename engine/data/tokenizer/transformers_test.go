package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// The first and last lines must be those of the published merges.txt.
func TestMergesOfGPT2(t *testing.T) {
	files, err := Export{Positions: 1024}.Files(GPT2())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(files["merges.txt"]), "\n"), "\n")
	if want := []string{"#version: 0.2", "Ġ t", "Ġ a", "h e", "i n", "r e"}; !slices.Equal(lines[:6], want) {
		t.Errorf("got %q, want %q", lines[:6], want)
	}
	if got, want := lines[len(lines)-2:], []string{"Ġinform ants", "Ġg azed"}; !slices.Equal(got, want) ||
		len(lines) != 50001 {
		t.Errorf("got %d lines that end with %q, want 50,001 and %q", len(lines), got, want)
	}
	vocabulary := map[string]int{}
	if err := json.Unmarshal(files["vocab.json"], &vocabulary); err != nil || len(vocabulary) != 50257 ||
		vocabulary["!"] != 0 || vocabulary["Ġthe"] != 262 || vocabulary["<|endoftext|>"] != 50256 {
		t.Errorf("got %d tokens, %v", len(vocabulary), err)
	}
	again := GPT2().(*gpt2)
	for i, m := range again.merges() { // merge i must give token 256 + i
		if want := again.bytes[256+i]; m[0]+m[1] != want {
			t.Fatalf("merge %d gives %q, want %q", i, m[0]+m[1], want)
		}
	}
}

func TestFilesOfATokenizerAreComplete(t *testing.T) {
	words, err := ParseWordPiece([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nThe\n##s\n\"\n"), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tokenizer Tokenizer
		export    Export
		files     []string
		size      int
		settings  map[string]any
	}{
		{words, Export{Positions: 9, Framed: true}, []string{"tokenizer.json", "tokenizer_config.json", "vocab.txt"}, 8,
			map[string]any{"do_lower_case": false, "model_max_length": 9.0, "tokenizer_class": "BertTokenizer",
				"mask_token": "[MASK]"}},
		{words.WithCase(false), Export{Positions: 9}, []string{"tokenizer.json", "tokenizer_config.json", "vocab.txt"},
			8, map[string]any{"do_lower_case": true}},
		{Bytes(), Export{Positions: 7}, []string{"merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.json"},
			257,
			map[string]any{"model_max_length": 7.0, "eos_token": "<|endoftext|>"}},
	} {
		files, err := c.export.Files(c.tokenizer)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for name := range files {
			names = append(names, name)
		}
		slices.Sort(names)
		if !slices.Equal(names, c.files) {
			t.Errorf("%s: got %q, want %q", c.tokenizer.Name(), names, c.files)
		}
		var d struct {
			PostProcessor any `json:"post_processor"`
			Model         struct{ Vocab map[string]int }
		}
		settings := map[string]any{}
		if err := json.Unmarshal(files["tokenizer.json"], &d); err != nil || len(d.Model.Vocab) != c.size ||
			(d.PostProcessor != nil) != c.export.Framed {
			t.Errorf("%s: got %d tokens, %v, error %v", c.tokenizer.Name(), len(d.Model.Vocab), d.PostProcessor, err)
		}
		if err := json.Unmarshal(files["tokenizer_config.json"], &settings); err != nil {
			t.Fatal(err)
		}
		for key, want := range c.settings {
			if settings[key] != want {
				t.Errorf("%s: %s is %v, want %v", c.tokenizer.Name(), key, settings[key], want)
			}
		}
	}
	// ParseWordPiece must read the exported vocabulary. The exported settings determine the case.
	files, _ := Export{Framed: true}.Files(words)
	again, err := ParseWordPiece(files["vocab.txt"], true)
	if err != nil || !slices.Equal(again.words, words.words) {
		t.Errorf("got %q, error %v", again.words, err)
	}
}
