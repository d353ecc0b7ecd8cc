package bench

import (
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
)

func TestModelsOfTextHaveTheirOwnFlags(t *testing.T) {
	for _, c := range []struct {
		model, given string
		shape        string
		want         string // part of the expected error; "" for none
	}{
		{"gpt2", "seq-len", "96 tokens", ""},
		{"gpt2", "image-size", "", "--image-size: model gpt2 does not use this flag"},
		{"gpt2", "classes", "", "--classes: model gpt2 does not use this flag"},
		{"resnet50", "image-size", "32x32", ""},
		{"resnet50", "vocabulary", "", "--vocabulary: model resnet50 does not use this flag"},
		{"resnet50", "dropout", "", "--dropout: model resnet50 does not use this flag"},
		{"resnet51", "", "", "model.name"},
	} {
		f := &modelFlags{deviceFlags: deviceFlags{env: session.Environment{Catalog: parts.BuiltinCatalog}},
			model: c.model, image: 32, classes: 10, length: 96, vocabulary: 500,
			batch: 4, optimizer: "auto", precision: "f32", accumulate: 1, changed: func(flag string) bool {
				return flag == c.given
			}}
		cfg, err := f.settings()
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || exit.Code(err) != exit.Usage {
				t.Errorf("%s with --%s: got %v, want %q", c.model, c.given, err, c.want)
			}
			continue
		}
		if err != nil || f.shape() != c.shape {
			t.Errorf("%s: got %v, %q, want %q", c.model, err, f.shape(), c.shape)
			continue
		}
		set, err := f.samples(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := set.Counts(); n != 8 || (set.Tokens != nil) != (cfg.Data.Samples == config.Tokens) ||
			set.Tokens != nil && (set.Tokens.Length != 96 || set.Tokens.Vocabulary != 500) {
			t.Errorf("%s: %d samples, %+v", c.model, n, set.Tokens)
		}
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestEachModelHasTheOptimizerOfItsPeer(t *testing.T) {
	for _, c := range []struct{ model, flag, text, want string }{
		{"gpt2", "auto", "adamw, betas 0.9 and 0.999, weight decay 0.1", ""},
		{"bert_base", "auto", "adamw, betas 0.9 and 0.999, weight decay 0.1", ""},
		{"gpt2", "sgd", "sgd, momentum 0.9, weight decay 0.0001", ""},
		{"resnet50", "auto", "sgd, momentum 0.9, weight decay 0.0001", ""},
		{"resnet50", "adamw", "adamw, betas 0.9 and 0.999, weight decay 0.1", ""},
		{"resnet50", "adam", "", `--optimizer: got "adam", want auto, sgd or adamw`},
	} {
		f := &modelFlags{deviceFlags: deviceFlags{env: session.Environment{Catalog: parts.BuiltinCatalog}},
			model: c.model, image: 32, classes: 10,
			batch: 4, optimizer: c.flag, precision: "f32", accumulate: 1}
		cfg, err := f.settings()
		if c.want != "" {
			if err == nil || err.Error() != c.want || exit.Code(err) != exit.Usage {
				t.Errorf("%s with %s: got %v, want %q", c.model, c.flag, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s with %s: %v", c.model, c.flag, err)
			continue
		}
		if cfg.Train.ClipNorm != 0 {
			t.Errorf("%s with %s: clips the gradient, which the peer does not", c.model, c.flag)
		}
		if got := updateText(&cfg.Optimizer); got != c.text {
			t.Errorf("%s with %s: got %q, want %q", c.model, c.flag, got, c.text)
		}
	}
}
