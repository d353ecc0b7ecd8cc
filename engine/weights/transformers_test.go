package weights

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// masked returns some tensors of a masked BERT language model with 5 tokens and 2 channels.
func masked() []checkpoint.Info {
	return []checkpoint.Info{info("bert.embeddings.word_embeddings.weight", 5, 2),
		info("bert.embeddings.LayerNorm.weight", 2), info("bert.embeddings.LayerNorm.bias", 2),
		info("cls.predictions.bias", 5)}
}

// classifier returns some tensors of a BERT classifier.
func classifier() []checkpoint.Info {
	return append(masked()[:3], info("bert.pooler.dense.weight", 2, 2), info("classifier.weight", 3, 2),
		info("classifier.bias", 3))
}

func number(name string, first byte, shape ...int) checkpoint.Tensor {
	t := zeros(name, tensor.F32, shape...)
	t.Data[0] = first
	return t
}

func TestBERTComesFromTransformers(t *testing.T) {
	table := number("bert.embeddings.word_embeddings.weight", 7, 5, 2)
	decoder, bias := number("cls.predictions.decoder.weight", 7, 5, 2), number("cls.predictions.bias", 0, 5)
	norm := []checkpoint.Tensor{zeros("bert.embeddings.LayerNorm.weight", tensor.F32, 2),
		zeros("bert.embeddings.LayerNorm.bias", tensor.F32, 2)}
	old := []checkpoint.Tensor{zeros("bert.embeddings.LayerNorm.gamma", tensor.F32, 2),
		zeros("bert.embeddings.LayerNorm.beta", tensor.F32, 2)}
	bare := []checkpoint.Tensor{number("embeddings.word_embeddings.weight", 7, 5, 2),
		zeros("embeddings.LayerNorm.weight", tensor.F32, 2), zeros("embeddings.LayerNorm.bias", tensor.F32, 2)}
	ids := checkpoint.Tensor{Name: "bert.embeddings.position_ids", DType: tensor.I64, Shape: tensor.Shape{1, 1},
		Data: make([]byte, 8)}
	next := zeros("cls.seq_relationship.weight", tensor.F32, 2, 2)
	with := func(lists ...[]checkpoint.Tensor) []checkpoint.Tensor { return slices.Concat(lists...) }
	one := func(t ...checkpoint.Tensor) []checkpoint.Tensor { return t }
	for _, c := range []struct {
		name  string
		file  []checkpoint.Tensor
		model []checkpoint.Info
		fresh []string
		notes string
		fails string
	}{
		{name: "masked", file: with(one(table, bias), norm), model: masked()},
		{name: "copies", file: with(one(table, bias, decoder, number("cls.predictions.decoder.bias", 0, 5)), norm),
			model: masked()},
		{name: "copies only", file: with(one(number("cls.predictions.decoder.bias", 0, 5), table), norm),
			model: masked()},
		{
			name:  "pre-training",
			file:  with(one(table, bias, ids, next, zeros("bert.pooler.dense.weight", tensor.F32, 2, 2)), old),
			model: masked(),
			notes: "2 tensors renamed from gamma and beta to weight and bias\n1 buffers ignored\n2 tensors of layers that the model lacks ignored: bert.pooler.dense.weight, cls.seq_relationship.weight"},
		{name: "bare", file: with(bare, one(bias)), model: masked(), notes: `prefix "bert." added`},
		{name: "not tied", file: with(one(table, bias, number("cls.predictions.decoder.weight", 8, 5, 2)), norm),
			model: masked(),
			fails: "cls.predictions.decoder.weight: file F32 (5, 2), other values than bert.embeddings.word_embeddings.weight, model F32 (5, 2), tied to"},
		{name: "fine-tuning", file: with(one(table, bias), norm), model: classifier(),
			fresh: []string{"bert.pooler.dense.weight", "classifier.bias", "classifier.weight"}},
		{name: "fine-tuning with the pooler", file: with(bare, one(zeros("pooler.dense.weight", tensor.F32, 2, 2))),
			model: classifier(), fresh: []string{"classifier.bias", "classifier.weight"}},
		{name: "no head for masked tokens", file: with(bare, one(zeros("pooler.dense.weight", tensor.F32, 2, 2))),
			model: masked(), fresh: []string{"cls.predictions.bias"}},
		{name: "answers to questions", file: with(one(table, zeros("qa_outputs.weight", tensor.F32, 2, 2)), norm),
			model: masked(), fresh: []string{"cls.predictions.bias"}, notes: "ignored: qa_outputs.weight"},
		{
			name: "classes of tokens",
			file: with(one(table, zeros("classifier.weight", tensor.F32, 3, 2),
				zeros("classifier.bias", tensor.F32, 3)), norm), model: classifier(),
			fresh: []string{"bert.pooler.dense.weight", "classifier.bias", "classifier.weight"}},
		{name: "another layer", file: with(one(table, bias, zeros("bert.encoder.x.weight", tensor.F32, 1)), norm),
			model: masked(), fails: "bert.encoder.x.weight: only in the file"},
	} {
		o := Options{}
		if slices.Contains(c.fresh, "classifier.weight") {
			o.Head = "classifier"
		}
		fit, err := Match(file(t, c.file...), c.model, o)
		if c.fails != "" || err != nil {
			if c.fails == "" || err == nil || !strings.Contains(err.Error(), c.fails) ||
				!errors.As(err, new(*checkpoint.MismatchError)) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.fails)
			}
			continue
		}
		fresh, _ := fit.Replaced()
		if got := strings.Join(fit.Notes(), "\n"); !slices.Equal(fresh, c.fresh) || !strings.Contains(got, c.notes) {
			t.Errorf("%s: got %v and %q, want %v and %q", c.name, fresh, got, c.fresh, c.notes)
		}
		data := make([]byte, 40)
		if found, err := fit.ReadInto(c.model[0], data); err != nil || !found || data[0] != 7 {
			t.Errorf("%s: the table: %v, %v, %v", c.name, found, err, data[0])
		}
	}
}

func TestSettingsOfBERTAreReadAndCompared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	const text = `{"model_type": "bert", "num_hidden_layers": 2, "hidden_dropout_prob": 0.3, "unknown": [1]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadSettings(path)
	if err != nil {
		t.Fatal(err)
	}
	want := NewBERTSettings()
	want.NumHiddenLayers = 2
	if err := CompareSettings(path, got, want); err != nil {
		t.Errorf("got %v: dropout and unknown settings do not count", err)
	}
	want.NumAttentionHeads, want.NumHiddenLayers = 16, 3
	different := new(checkpoint.MismatchError)
	if err := CompareSettings(path, got, want); !errors.As(err, &different) || len(different.Differences) != 2 ||
		!strings.Contains(err.Error(), "2 settings differ:") ||
		!strings.Contains(err.Error(), "num_attention_heads: file 12, model 16") {
		t.Errorf("got %v, want the two differences", err)
	}
	again, err := parseSettings(EncodeSettings(got))
	if err != nil || CompareSettings(path, again, got) != nil {
		t.Errorf("got %v and %+v, want the settings that were written", err, again)
	}
}

func TestKindsOfConfigJSON(t *testing.T) {
	for _, c := range []struct {
		text, want string // want: kind of the model, or a part of the error
		damaged    bool
	}{
		{text: `{"model_type": "gpt2"}`, want: "gpt2"},
		{text: `{"architectures": ["BertModel"]}`, want: "bert"},
		{text: `{"architectures": ["GPT2DoubleHeadsModel"]}`, want: "gpt2"},
		{text: `{"n_embd": 8, "n_head": 2}`, want: "gpt2"},
		{text: `{"hidden_size": 8, "num_attention_heads": 2, "type_vocab_size": 2}`, want: "bert"},
		{text: `{"model_type": "bert", "architectures": "BertForMaskedLM", "eos_token_id": [1, 2], "hidden_dropout_prob": "none", "problem_type": 7, "id2label": 3}`,
			want: "bert"},
		{text: `{"model_type": "bert", "score": NaN, "task_specific_params": {"x": -Infinity}}`, want: "bert"},
		{text: `{"model_type": "roberta", "architectures": ["RobertaModel"]}`,
			want: "model_type: file roberta, model gpt2 or bert"},
		{text: `{"architectures": ["RobertaModel"], "type_vocab_size": 1, "hidden_size": 8}`,
			want: "architectures: file RobertaModel"},
		{text: `{}`, want: "model_type: file no such field"},
		{text: `{"model_type": "bert", "layer_norm_eps": NaN}`, want: "layer_norm_eps", damaged: true},
		{text: `{"model_type": "gpt2", "n_layer": "two"}`, want: "n_layer", damaged: true},
		{text: `[]`, want: "want the config.json", damaged: true},
	} {
		path := filepath.Join(t.TempDir(), SettingsFile)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := ReadSettings(path)
		switch {
		case err != nil && c.want != "gpt2" && c.want != "bert":
			if !strings.Contains(err.Error(), c.want) || errors.As(err, new(*checkpoint.CorruptError)) != c.damaged {
				t.Errorf("%s: got %v, want %q", c.text, err, c.want)
			}
		case err != nil:
			t.Errorf("%s: %v", c.text, err)
		default:
			_, gpt2 := s.(*GPT2Settings)
			if want := c.want == "gpt2"; gpt2 != want || c.want != "gpt2" && c.want != "bert" {
				t.Errorf("%s: got %T, want %q", c.text, s, c.want)
			}
		}
	}
}

func FuzzSettings(f *testing.F) {
	f.Add(EncodeSettings(NewGPT2Settings()))
	f.Add(EncodeSettings(NewBERTSettings()))
	f.Add([]byte(`{"model_type": "gpt2", "n_layer": 1e99}`))
	f.Add([]byte(`{"model_type": "gpt2", "n_inner": 12, "n_embd": 3}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseSettings(text)
		if err != nil {
			return
		}
		again, err := parseSettings(EncodeSettings(s))
		if err != nil || CompareSettings("", again, s) != nil {
			t.Errorf("%s: %v", text, err)
		}
	})
}
