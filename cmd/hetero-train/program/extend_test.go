package program

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/policies"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/run"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
)

type tinyModel struct{ Width int }

func (o *tinyModel) Keys() []config.Key {
	return []config.Key{config.Int(&o.Width, "width", 3).Shapes().AtLeast(1).Doc("Channels.")}
}

func (o *tinyModel) Build() models.Classifier {
	return func(net *nn.Net, x *graph.Value, classes int) *graph.Value {
		x = net.Conv2D("conv", x, nn.Conv{Out: o.Width, Kernel: 3, Padding: 1})
		return net.Logits("head", net.GlobalAvgPool("pool", x), classes)
	}
}

type squares struct{ Side int }

func (o *squares) Keys() []config.Key {
	return []config.Key{config.Int(&o.Side, "side", 8).AtLeast(1).Doc("Pixels.")}
}

func (o *squares) Open(_ context.Context, cfg *config.Config, _ *slog.Logger) (data.Splits, error) {
	return data.Synthetic(data.SyntheticOptions{Seed: cfg.Experiment.Seed, Train: 64, Eval: 16, Classes: 4,
		Size: o.Side})
}

type halves struct{ First float64 }

func (o *halves) Keys() []config.Key {
	return []config.Key{config.Float(&o.First, "first", 0.5).Above(0).Below(1).Doc("Fraction of rank 0.")}
}

func (o *halves) New(b balancer.Options) (balancer.Policy, error) {
	if b.Ranks != 2 {
		return nil, exit.Usagef("got %d ranks, want 2", b.Ranks)
	}
	b.Scores = []float64{o.First, 1 - o.First}
	return policies.New("proportional", b)
}

var mine = []parts.Part{
	parts.Model{Name: "tiny", Doc: "one convolution", New: func() parts.ModelOptions { return new(tinyModel) }},
	parts.DataSet{Name: "squares", Doc: "computed squares", New: func() parts.DataSetOptions { return new(squares) },
		Traits: config.DataTraits{Computed: true, ImageSize: 8}},
	parts.Policy{Name: "halves", Doc: "a fixed fraction for rank 0", New: func() parts.PolicyOptions {
		return new(halves)
	}},
}

// extended runs a command line of a program with additional components.
func extended(parts []parts.Part, args ...string) (code int, stdout, stderr string) {
	var out, messages bytes.Buffer
	env := session.Environment{Name: "mytrain", Stdout: &out, Stderr: &messages, Train: run.Train}
	code = runWith(context.Background(), parts, args, env)
	return code, out.String(), messages.String()
}

func TestAddedPartsAreKnownEverywhere(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"train", "--help"}, []string{"bert_large, tiny", "text, squares", "hybrid, halves",
			"  mytrain train -c configs/resnet50.toml"}},
		{[]string{"--help"}, []string{"mytrain trains deep-learning models"}},
		{[]string{"config", "docs"}, []string{"- `tiny`: one convolution", "Keys of [model] only for `tiny`",
			"| `side` |", "Keys of [balance] only for `halves`", "`8` for `squares`"}},
		{[]string{"config", "schema"}, []string{`"halves"`, `"width"`, `"first"`}},
		{[]string{"__complete", "train", "--model", ""}, []string{"tiny"}},
		{[]string{"__complete", "train", "--set", "balance.f"}, []string{"balance.first="}},
		{[]string{"completion", "bash"},
			[]string{"__start_mytrain", "complete -o default -F __mytrain_behind_equals mytrain"}},
		{[]string{"config", "show", "--set", "model.name=tiny", "--set", "balance.policy=halves", "--set",
			"balance.first=0.25"}, []string{"width = 3", "first = 0.25"}},
		{[]string{"balance", "simulate", "--help"}, []string{"hybrid|halves"}},
	} {
		code, out, messages := extended(mine, c.args...)
		if code != exit.Done {
			t.Errorf("%q: got exit code %d: %s", c.args, code, messages)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q: want %q in:\n%s", c.args, want, out)
			}
		}
	}
	for set, want := range map[string]string{
		"model.name=tini":      `nearest: "tiny"`,
		"data.dataset=square":  `nearest: "squares"`,
		"balance.policy=halfs": `nearest: "halves"`,
		"model.width=2":        "simple_cnn has no such key; the key belongs to tiny",
		"data.fallback=cifar9": `"squares"`,
	} {
		if code, _, messages := extended(mine, "config", "show", "--set", set); code != exit.Usage ||
			!strings.Contains(messages, want) {
			t.Errorf("--set %s: got exit code %d and %q, want %d and %q", set, code, messages, exit.Usage, want)
		}
	}
}

func TestAddedPartsThatClashAreRefused(t *testing.T) {
	model := func(name string, o func() parts.ModelOptions) parts.Part {
		return parts.Model{Name: name, Doc: "a clash", New: o}
	}
	for _, c := range []struct {
		part parts.Part
		want string
	}{
		{model("resnet50", func() parts.ModelOptions { return new(tinyModel) }),
			`model "resnet50": this name is used twice`},
		{model("my net", func() parts.ModelOptions { return new(tinyModel) }),
			`model "my net": invalid name, want letters`},
		{model("", func() parts.ModelOptions { return new(tinyModel) }), `model "": invalid name`},
		{model("nothing", nil), `model "nothing": New is nil`},
		{model("odd", func() parts.ModelOptions { return &clashing{} }),
			`model "odd": its key model.freeze exists already`},
		{parts.DataSet{Name: "cifar10", Doc: "", New: func() parts.DataSetOptions { return new(squares) },
			Traits: config.DataTraits{}}, `data set "cifar10": this name is used twice`},
		{parts.Policy{Name: "hybrid", Doc: "", New: func() parts.PolicyOptions { return new(halves) }},
			`policy "hybrid": this name is used twice`},
	} {
		code, _, messages := extended([]parts.Part{c.part}, "version")
		if code != exit.Unexpected || !strings.Contains(messages, c.want) {
			t.Errorf("got exit code %d and %q, want %d and %q", code, messages, exit.Unexpected, c.want)
		}
	}
}

type clashing struct{ tinyModel }

func (o *clashing) Keys() []config.Key { return []config.Key{config.Int(&o.Width, "freeze", 1)} }

func TestAddedPartsTrain(t *testing.T) {
	args := []string{"--set", "device.kind=reference", "--set", "model.name=tiny", "--set", "data.dataset=squares",
		"--set", "data.batch_size=8", "--set", "train.steps=3",
		"--set", "experiment.output_dir=" + t.TempDir()}
	code, out, messages := extended(mine, args...)
	if code != exit.Done {
		t.Fatalf("got exit code %d: %s\n%s", code, messages, out)
	}
}
