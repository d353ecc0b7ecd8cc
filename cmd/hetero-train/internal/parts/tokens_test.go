package parts

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
)

func load(t *testing.T, settings ...string) (*config.Config, error) {
	t.Helper()
	var set []config.Override
	for _, text := range settings {
		o, err := config.ParseSet(text)
		if err != nil {
			t.Fatal(err)
		}
		set = append(set, o)
	}
	return config.Load("", BuiltinCatalog, set...)
}

func TestModelsRefuseSamplesThatTheyCannotRead(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string // part of the expected error; "" if no error is expected
	}{
		{[]string{"model.name=gpt2"},
			`data.dataset: model "gpt2" reads tokens, but data set "synthetic_image" has images`},
		{[]string{"model.name=resnet50", "data.dataset=synthetic_text"},
			`model "resnet50" reads images, but data set "synthetic_text" has tokens`},
		{[]string{"model.name=gpt2", "data.dataset=cifar10"}, "want a data set of tokens (huggingface, synthetic_text, text, labelled_text), or with model.name a model of images (simple_cnn, resnet18"},
		{[]string{"model.name=gpt2", "data.dataset=synthetic_text"}, ""},
		{[]string{"model.name=gpt2", "data.dataset=text"}, "needs a path"},
		{[]string{"data.dataset=cifar10", "data.fallback=synthetic_text"}, "data.fallback"},
	} {
		_, err := load(t, c.set...)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.set, err, c.want)
		}
	}
}

func TestSizesOfLanguageModelsFollowTheData(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string // part of the expected error; "" if no error is expected
	}{
		{nil, ""},
		{[]string{"model.vocabulary_size=100", "model.positions=70"}, ""},
		{[]string{"model.vocabulary_size=63"}, "model.vocabulary_size: got 63, want at least the 64 tokens"},
		{[]string{"model.positions=63"}, "model.positions: got 63, want at least the 64 positions"},
		{[]string{"model.embedding_size=100", "model.heads=3"}, "model.embedding_size: got 100 channels for 3 heads"},
	} {
		cfg, err := load(t, append([]string{"model.name=gpt2", "data.dataset=synthetic_text"}, c.set...)...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = BuildLanguage(&cfg.Model, 64, 64)
		if (err == nil) != (c.want == "") || err != nil &&
			(!strings.Contains(err.Error(), c.want) || exit.Code(err) != exit.Usage) {
			t.Errorf("%v: got %v, want %q", c.set, err, c.want)
		}
		if _, err := BuildClassifier(&cfg.Model); err == nil || exit.Code(err) != exit.Usage {
			t.Errorf("gpt2 as a classifier: got %v, want a usage error", err)
		}
	}
}

func TestSyntheticTextOpensWithItsEntropy(t *testing.T) {
	cfg, err := load(t, "model.name=gpt2", "data.dataset=synthetic_text", "data.num_samples=30",
		"data.sequence_length=8", "data.vocabulary=10", "data.entropy=2")
	if err != nil {
		t.Fatal(err)
	}
	set, err := OpenData(context.Background(), cfg, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if train, eval := set.Counts(); train != 30 || eval != 30 || !set.HasEval() || set.Classes() != nil ||
		set.Tokens.Length != 8 || !strings.Contains(set.Tokens.Note, "2.0000 nats") {
		t.Errorf("%d and %d samples, %+v", train, eval, set.Tokens)
	}
	if cfg, err = load(t, "model.name=gpt2", "data.dataset=synthetic_text", "data.vocabulary=10",
		"data.entropy=2.4"); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenData(context.Background(), cfg, 0, slog.New(slog.DiscardHandler)); err == nil ||
		exit.Code(err) != exit.Usage {
		t.Errorf("an entropy above %.3f: got %v, want a usage error", math.Log(10), err)
	}
	if cfg, err = load(t, "model.name=gpt2", "data.dataset=text", "data.path=/nowhere"); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenData(context.Background(), cfg, 0, slog.New(slog.DiscardHandler)); err == nil ||
		exit.Code(err) != exit.Data {
		t.Errorf("missing files: got %v, want an error of the data", err)
	}
	if _, err := OpenSplits(context.Background(), cfg, slog.New(slog.DiscardHandler)); err == nil ||
		exit.Code(err) != exit.Usage {
		t.Errorf("text as images: got %v, want a usage error", err)
	}
}
