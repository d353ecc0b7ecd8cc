package program

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/modelstest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// llama is a model of another module. Its parameters have the names of LlamaForCausalLM.
type llama struct{ NoKeys }

func (llama) BuildLanguage(vocabulary, length int) (models.Language, error) {
	return modelstest.Llama{Vocabulary: vocabulary, Positions: length, Layers: 2, Heads: 4, KVHeads: 2, Channels: 32,
		Inner: 48, Theta: 10000, Eps: 1e-5, Std: 0.2}.Build, nil
}

// loadLlama is a Python script that loads an exported file and prints the tokens that follow a prompt. Each token is
// the most likely one. The arguments are the file, the number of tokens, and the tokens of the prompt.
const loadLlama = `
import sys, torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM
tensors = load_file(sys.argv[1])
config = LlamaConfig(vocab_size=tensors["lm_head.weight"].shape[0], hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                     intermediate_size=48, rms_norm_eps=1e-5, tie_word_embeddings=False)
model = LlamaForCausalLM(config).eval()
missing, constants = model.load_state_dict(tensors, strict=False)
assert not missing and sorted(constants) == ["rotary.cos", "rotary.sin"], (missing, constants)
tokens = [int(t) for t in sys.argv[3:]]
with torch.no_grad():
    for _ in range(int(sys.argv[2])):
        tokens.append(model(torch.tensor([tokens])).logits[0, -1].argmax().item())
print(tokens[len(sys.argv[3:]):])
`

// The export of a model of another module writes no folder for transformers. Its file must contain the names of its
// parameters.
func TestAnOwnModelIsExportedUnderItsNames(t *testing.T) {
	t.Parallel()
	own := []Part{LanguageModel{Name: "llama", Doc: "like Llama", New: func() LanguageOptions { return llama{} }}}
	run := trainRotary(t, own, "llama", "train.epochs=3", "optimizer.lr=0.01")
	dir := t.TempDir()
	file := filepath.Join(dir, "llama.safetensors")
	want := "neither transformers nor timm has a model llama; export it without --format, and load the file by the names of its tensors"
	for _, more := range [][]string{nil, {"--tokenizer", "bytes"}} {
		args := append([]string{"checkpoint", "export", run, "--format", "hf", "--output",
			filepath.Join(dir, "folder")}, more...)
		if code, _, messages := extended(own, args...); code != exit.Usage || !strings.Contains(messages, want) {
			t.Errorf("--format hf %q: got exit code %d: %s", more, code, messages)
		}
	}
	if code, _, messages := extended(own, "checkpoint", "export", run, "--output", file); code != exit.Done {
		t.Fatalf("got exit code %d: %s", code, messages)
	}
	f, err := checkpoint.OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"model.embed_tokens.weight", "model.layers.1.self_attn.k_proj.weight",
		"lm_head.weight", "rotary.cos"} {
		if _, ok := f.Info(name); !ok {
			t.Errorf("the file has no %s", name)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	code, out, messages := extended(own, "generate", run, "--prompt", "cde", "--tokens", "8", "--temperature", "0",
		"--json")
	var generated struct{ Tokens []int32 }
	if err := json.Unmarshal([]byte(out), &generated); err != nil || code != exit.Done || len(generated.Tokens) != 8 ||
		strings.Contains(messages, "whole text") {
		t.Fatalf("generate: got exit code %d, %q, %v and %s", code, out, err, messages)
	}

	python := cmp.Or(os.Getenv("HETERO_TORCH"), "python3")
	if out, err := exec.Command(python, "-c", "import safetensors, torch, transformers").CombinedOutput(); err != nil {
		needtest.Missing(t, "transformers", string(bytes.TrimSpace(out))+err.Error())
	}
	raw, err := exec.Command(python, "-c", loadLlama, file, "8", "99", "100", "101").Output()
	var theirs []int32
	if err != nil || json.Unmarshal(raw, &theirs) != nil || !slices.Equal(theirs, generated.Tokens) {
		t.Errorf("LlamaForCausalLM continues with %s (%v), want %v", raw, err, generated.Tokens)
	}
}
