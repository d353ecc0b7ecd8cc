package parts

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// Users edit config.json, so the class names in it must have priority over those in the metadata of the weights next to
// it.
func TestNamesOfClassesComeFromConfigJSONFirst(t *testing.T) {
	const bert = `{"model_type": "bert", "architectures": ["BertForSequenceClassification"], "id2label": `
	for _, c := range []struct {
		name, file, config string
		metadata, want     []string
	}{
		{"config.json alone", "model.safetensors", bert + `{"0": "a", "1": "b"}}`, nil, []string{"a", "b"}},
		{"both, in another order", "model.safetensors", bert + `{"0": "b", "1": "a"}}`, []string{"a", "b"},
			[]string{"b", "a"}},
		{"config.json without names", "model.safetensors", bert + `{"0": "LABEL_0", "1": "LABEL_1"}}`,
			[]string{"a", "b"}, []string{"a", "b"}},
		{"a file of another name", "other.safetensors", bert + `{"0": "b", "1": "a"}}`, []string{"a", "b"},
			[]string{"a", "b"}},
		{"the config.json of another program", "model.safetensors", `{"model_type": "llama"}`, []string{"a", "b"},
			[]string{"a", "b"}},
		{"no names", "model.safetensors", "", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			metadata, dir := map[string]string{}, t.TempDir()
			Trained{Classes: c.metadata}.AddTo(metadata)
			var b bytes.Buffer
			if err := checkpoint.Write(&b,
				[]checkpoint.Tensor{{Name: "classifier.bias", DType: tensor.F32, Shape: tensor.Shape{2},
					Data: make([]byte, 8)}}, metadata); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, c.file)
			if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.config != "" {
				if err := os.WriteFile(filepath.Join(dir, weights.SettingsFile), []byte(c.config), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f, err := checkpoint.OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if got, err := Described(f); err != nil || !slices.Equal(got.Classes, c.want) {
				t.Errorf("got %q, error %v, want %q", got.Classes, err, c.want)
			}
		})
	}
}

// Earlier versions stored this name in runs on lists of tokens. No tokenizer has this name.
func TestTheStoredNameOfAnUnknownTokenizerIsNone(t *testing.T) {
	state := checkpoint.State{Extra: map[string]json.RawMessage{DataKey: json.RawMessage(`{"tokenizer": "unknown"}`)}}
	got, known, err := TrainedOn("run", &state)
	if err != nil || !known || got.Encoding().Known() {
		t.Fatalf("got %+v, %v, %v; want an unknown tokenizer", got, known, err)
	}
	warning, err := got.CheckSplits(&TokenSplits{Tokenizer: "gpt2"}, "run")
	if err != nil || warning == "" {
		t.Errorf("with tokens of gpt2: got %q, %v; want a warning", warning, err)
	}
	if warning, err = got.CheckSplits(&TokenSplits{}, "run"); err != nil || warning != "" {
		t.Errorf("with lists of tokens: got %q, %v; want no warning", warning, err)
	}
}
