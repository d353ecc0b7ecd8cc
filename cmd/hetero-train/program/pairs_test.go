package program

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/inference"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

// pairSettings writes token files of several documents. It returns the settings of a small BERT that predicts masked
// tokens and the next sentence, and the path of the vocabulary.
func pairSettings(t *testing.T, dir string) (settings, vocab string) {
	vocab = wordVocabulary(t, dir)
	var text strings.Builder
	for d := range 60 {
		word := []string{"best", "worst", "times"}[d%3]
		for range 2 + d%4 {
			fmt.Fprintf(&text, "it was the %s of the %s. the %s was it!\n", word, word, word)
		}
		text.WriteString("\n")
	}
	in, shards := writeText(t, dir, "a.txt", text.String()), filepath.Join(dir, "shards")
	if o := execute([]string{"data", "tokenize", in, "-o", shards, "--tokenizer", "wordpiece", "--vocab", vocab,
		"--separator", "", "--val-fraction", "0.2"}); o.code != 0 {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	return strings.NewReplacer("synthetic_text\"\nvocabulary = 20\nentropy = 0.3\nmin_sequence_length = 5",
		"text\"\npath = \""+shards+"\"",
		"num_samples = 256\n", "", "sequence_length = 12", "sequence_length = 24", "name = \"bert_base\"",
		"name = \"bert_base\"\nnext_sentence = true").Replace(smallMasked), vocab
}

func TestBERTLearnsTheNextSentence(t *testing.T) {
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	p, dir := buildProgram(t), t.TempDir()
	settings, vocab := pairSettings(t, dir)
	p.config = clitest.WriteConfig(t, settings)
	out := finish(t, p.command(dir, "train.epochs=30", "model.dropout=0.0", "device.kind=cpu"), 0)
	out.check(t, exit.Done, "")
	run := filepath.Join(dir, "run")
	var e inference.Evaluation
	if o := execute([]string{"eval", run, "--json"}); o.code != 0 || json.Unmarshal([]byte(o.stdout), &e) != nil ||
		e.NextSentence == nil {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	// Each document repeats one of three words, so different words show that two texts belong to different documents.
	// Two of three random pairs have different words. The other third of the random pairs has equal words, and looks
	// like continued text.
	if !(*e.NextSentence > 0.6) {
		t.Errorf("next sentence: %v of the pairs are right, guessing gives 0.5", *e.NextSentence)
	}
	for _, want := range []string{fmt.Sprintf("| next sentence %.2f %%", 100**e.NextSentence),
		fmt.Sprintf("perplexity %.2f", float64(*e.Perplexity))} {
		if !strings.Contains(out.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, out.stdout)
		}
	}
	if sum := math.Log(float64(*e.Perplexity)); !(float64(e.Loss) > sum) {
		t.Errorf("loss %v, want that of the masked tokens, %v, and of the pairs", e.Loss, sum)
	}
	if o := execute([]string{"predict", run, writeText(t, dir, "p.txt", "it was the [MASK] of the times\n"),
		"--json"}); o.code != 0 || !strings.Contains(o.stdout, `"masks"`) {
		t.Errorf("predict: exit %d: %s%s", o.code, o.stdout, o.stderr)
	}

	exported, back := filepath.Join(dir, "hf"), filepath.Join(dir, "back.safetensors")
	if o := execute([]string{"checkpoint", "export", run, "--format", "hf", "--output", exported}); o.code != 0 {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if text, err := os.ReadFile(filepath.Join(exported, "config.json")); err != nil ||
		!strings.Contains(string(text), "BertForPreTraining") {
		t.Errorf("got %v, %s", err, text)
	}
	for set, want := range map[string]string{"model.next_sentence=true": "imported tensors: 30",
		"model.next_sentence=false": "4 tensors of layers that the model lacks ignored"} {
		if o := execute([]string{"checkpoint", "import", exported, "--set", set, "--output", back,
			"--force"}); o.code != 0 || !strings.Contains(o.stdout, want) {
			t.Errorf("import with %s: exit %d, want %q: %s%s", set, o.code, want, o.stdout, o.stderr)
		}
	}

	tsv := writeText(t, dir, "a.tsv", "text\tlabel\n"+strings.Repeat("it was the best\tgood\nit was the worst\tbad\n",
		20))
	labelled := finish(t, p.command(filepath.Join(dir, "tuned"), "data.dataset=labelled_text", "data.path="+tsv,
		"data.vocab_file="+vocab, "data.val_fraction=0.2", "train.epochs=1", "model.init_from="+run), 0)
	labelled.check(t, exit.Done, "only the prediction of masked tokens uses it")
	finish(t, p.command(filepath.Join(dir, "bad"), "data.dataset=synthetic_text", "data.path=", "data.vocabulary=20"),
		0).check(t, exit.Usage, "model.next_sentence: the samples are not pairs of texts")
}

func TestAnySplitOfPairsTrainsAsOneRank(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	settings, _ := pairSettings(t, dir)
	p.config = clitest.WriteConfig(t, settings)
	finish(t, p.command(filepath.Join(dir, "one"), "train.epochs=2", "device.kind=cpu"), 0).check(t, exit.Done, "")
	want := resultOf(t, filepath.Join(dir, "one", "run"))
	for ranks, set := range map[string][]string{"2": {"balance.fixed_shares=[5, 3]"},
		"3": {"balance.fixed_shares=[5, 1, 2]"}} {
		output := filepath.Join(dir, ranks)
		finish(t, p.command(output, append(set, "parallel.ranks="+ranks, "train.epochs=2", "device.kind=cpu")...),
			0).check(t, exit.Done, "")
		// The tolerance allows for sums of f32 in another order.
		if got := resultOf(t, filepath.Join(output, "run")); math.Abs(got.loss(t)-want.loss(t)) > 1e-4*want.loss(t) {
			t.Errorf("%s ranks, %v: final loss %.7g, one rank has %.7g", ranks, set, got.loss(t), want.loss(t))
		}
	}
}
