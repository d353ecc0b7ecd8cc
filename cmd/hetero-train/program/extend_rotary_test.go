package program

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// rotary is a language model with rotary position embedding, and with one head of k and v for all heads of q. If ahead
// is true, each position also reads the next position. If resting is true, the model ignores the positions of tokens
// that follow cached tokens.
type rotary struct {
	NoKeys
	ahead, resting bool
}

const (
	rotaryHeads, rotaryHalf = 2, 4 // number of heads; pairs of channels in each head
	rotaryChannels          = 2 * rotaryHeads * rotaryHalf
)

// angles returns cosines and sines of shape (positions, 1, 2, rotaryHalf). The sines include the sign of each half.
func angles(positions int) (cosines, sines []float64) {
	for at := range positions {
		for _, sign := range []float64{-1, 1} {
			for i := range rotaryHalf {
				angle := float64(at) / math.Pow(100, float64(i)/rotaryHalf)
				cosines, sines = append(cosines, math.Cos(angle)), append(sines, sign*math.Sin(angle))
			}
		}
	}
	return cosines, sines
}

func (o rotary) BuildLanguage(vocabulary, length int) (models.Language, error) {
	return func(net *nn.Net, in models.Tokens) models.Prediction {
		const c = rotaryChannels
		g, table := net.Graph, net.Table("table", vocabulary, c, 0.5)
		cosines, sines := angles(length)
		if o.resting {
			in.Positions = nil
		}
		n, t := in.Tokens.Shape[0], in.Tokens.Shape[1]
		cos := in.At(net, "cos", net.Constant("rotary.cos", cosines, length, 1, 2, rotaryHalf))
		sin := in.At(net, "sin", net.Constant("rotary.sin", sines, length, 1, 2, rotaryHalf))
		turned := func(name string, x *graph.Value, heads int) *graph.Value {
			x = g.Reshape(name, net.Projection(name, x, heads*c/rotaryHeads, 0.2), n, t, heads, 2, rotaryHalf)
			swapped := g.Concat(name, 3, g.Slice(name, x, 3, 1, 1), g.Slice(name, x, 3, 0, 1))
			x = g.Binary(name, graph.Add, g.Binary(name, graph.Mul, x, cos), g.Binary(name, graph.Mul, swapped, sin))
			return g.Reshape(name, x, n, t, heads*c/rotaryHeads)
		}
		x := g.Embedding("embedding", in.Tokens, graph.Tables{Weight: table}, net.Compute) // (N, T, C)
		a := net.Attention("attention", nn.Attention{Heads: rotaryHeads, KVHeads: 1, Causal: !o.ahead},
			turned("q", x, rotaryHeads), turned("k", x, 1), net.Projection("v", x, c/rotaryHeads, 0.2))
		h, _ := net.LayerNorm("norm", net.Projection("out", a, c, 0.2), x, 1e-5)
		return models.Prediction{Rows: net.Rows(h), Weight: table}
	}, nil
}

// trainRotary trains models of this module on repetitions of the text abcdefgh. It returns the folder of the run.
func trainRotary(t *testing.T, own []Part, name string, set ...string) string {
	t.Helper()
	dir := t.TempDir()
	shards := tokenFiles(t, dir, strings.Repeat("abcdefgh", 400))
	text := strings.NewReplacer("synthetic_text\"\nvocabulary = 16", "text\"\npath = \""+shards+"\"",
		"num_samples = 256\n", "",
		"gpt2\"\nlayers = 1\nheads = 2\nembedding_size = 16\ndropout = 0.1", name+"\"").Replace(smallText)
	args := []string{"-c", clitest.WriteConfig(t, text), "--set", "experiment.output_dir=" + dir}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	if code, out, messages := extended(own, args...); code != exit.Done {
		t.Fatalf("got exit code %d: %s\n%s", code, messages, out)
	}
	return filepath.Join(dir, "run")
}

func rotaryParts(o rotary) []Part {
	return []Part{LanguageModel{Name: "rotary", Doc: "rotary position embedding", New: func() LanguageOptions {
		return o
	}}}
}

// Weight decay and averages of weights must not change constants of a model, and a saved model must contain these
// constants.
func TestConstantsOfAnOwnModelStayAsTheyAre(t *testing.T) {
	run := trainRotary(t, rotaryParts(rotary{}), "rotary", "train.epochs=2", "optimizer.weight_decay=0.5",
		"ema.decay=0.9")
	saved, err := filepath.Glob(filepath.Join(run, "checkpoints", "*", "model.safetensors"))
	if err != nil || len(saved) == 0 {
		t.Fatalf("got %v, %v", saved, err)
	}
	cosines, sines := angles(12)
	for _, path := range saved {
		f, err := checkpoint.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][]float64{"rotary.cos": cosines, "rotary.sin": sines} {
			raw := make([]byte, 4*len(want))
			if err := f.ReadInto(name, raw); err != nil {
				t.Fatal(err)
			}
			for i, v := range reference.Decode(tensor.F32, raw) {
				if v != float64(float32(want[i])) {
					t.Fatalf("%s: %s[%d] is %v, want %v", path, name, i, v, want[i])
				}
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if code, out, messages := extended(rotaryParts(rotary{}), "eval", run, "--ema"); code != exit.Done ||
		!strings.Contains(out, "perplexity") {
		t.Errorf("got exit code %d: %s\n%s", code, messages, out)
	}
}

// A model of another module must continue texts, even beyond its number of positions. Without a key-value cache, the
// program must report that generation is slower.
func TestGenerateContinuesWithAnOwnModel(t *testing.T) {
	t.Parallel()
	run := trainRotary(t, rotaryParts(rotary{}), "rotary", "train.epochs=12", "optimizer.lr=0.03")
	for warnings, model := range []rotary{{}, {resting: true}} {
		code, out, messages := extended(rotaryParts(model), "generate", run, "--prompt", "cde", "--tokens", "30",
			"--temperature", "0")
		if code != exit.Done || out != "cdefghabcdefghabcdefghabcdefghabc\n" ||
			strings.Count(messages, "a pass over the whole text") != warnings {
			t.Errorf("%+v: got exit code %d, %q and %q", model, code, out, messages)
		}
	}
	lines := writeText(t, t.TempDir(), "lines.txt", "cde\nefghab\n")
	if code, out, messages := extended(rotaryParts(rotary{}), "predict", run, lines, "--top", "1"); code != exit.Done ||
		!strings.Contains(out, `:1: "f"`) || !strings.Contains(out, `:2: "c"`) {
		t.Errorf("predict: got exit code %d, %q and %q", code, out, messages)
	}
	if code, _, messages := extended(rotaryParts(rotary{ahead: true}), "generate", run, "--prompt",
		"cde"); code != exit.Usage ||
		!strings.Contains(messages,
			"model rotary: generate: the model is not causal: other tokens after a text of 2 tokens change a score by") {
		t.Errorf("a model that reads ahead: got exit code %d: %s", code, messages)
	}
	if code, _, messages := extended(rotaryParts(rotary{}), "generate", run, "--prompt",
		"abcdefghabcdefgh"); code != exit.Usage ||
		!strings.Contains(messages, "want at most the 12 positions of the model") {
		t.Errorf("a long prompt: got exit code %d: %s", code, messages)
	}
}
