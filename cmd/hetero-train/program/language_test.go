package program

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/run"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// smallText is the configuration of a small GPT-2 on text with an entropy of 1 nat per token. An epoch has 32 steps of
// several ms.
const smallText = `
[experiment]
name = "run"
[device]
kind = "reference"
[model]
name = "gpt2"
layers = 1
heads = 2
embedding_size = 16
dropout = 0.1
[data]
dataset = "synthetic_text"
vocabulary = 16
sequence_length = 12
num_samples = 256
batch_size = 8
[train]
epochs = 3
log_interval = 32
[optimizer]
name = "adamw"
lr = 0.01
[checkpoint]
interval_steps = 10
interval_seconds = 0.0
keep = 3
`

func TestGPT2LearnsSyntheticTextUpToItsEntropy(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	p.config = clitest.WriteConfig(t, smallText)
	out := finish(t, p.command(dir, "model.dropout=0.0"), 0)
	out.check(t, exit.Done, "")
	for _, want := range []string{"256 training, 256 evaluation samples of 12 tokens, vocabulary 16",
		"entropy 1.0000 nats", "| perplexity ", "| accuracy ", "tok/s"} {
		if !strings.Contains(out.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, out.stdout)
		}
	}
	got := resultOf(t, filepath.Join(dir, "run"))
	// The loss of a step can be below the entropy: with few samples it varies, and the model can learn the noise of the
	// samples.
	if loss := got.loss(t); got.Steps != 96 || !(loss > 0.7 && loss < 1.35) {
		t.Errorf("final loss %v after %d steps, want one close to 1 nat", loss, got.Steps)
	}
}

func TestAnySplitOfTextTrainsAsOneRank(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	p.config = clitest.WriteConfig(t, smallText)
	finish(t, p.command(filepath.Join(dir, "one"), "train.epochs=1"), 0).check(t, exit.Done, "")
	want := resultOf(t, filepath.Join(dir, "one", "run"))
	for _, set := range [][]string{{"balance.fixed_shares=[5, 3]"},
		{"balance.fixed_shares=[3, 1]", "train.grad_accumulation=2"}} {
		if strings.Contains(set[len(set)-1], "accumulation") {
			set[0] = "balance.fixed_shares=[6, 2]"
		}
		output := filepath.Join(dir, strings.Join(set, ""))
		finish(t, p.command(output, append(set, "parallel.ranks=2", "train.epochs=1")...), 0).check(t, exit.Done, "")
		// The tolerance allows for sums of f32 in another order.
		if got := resultOf(t, filepath.Join(output, "run")); math.Abs(got.loss(t)-want.loss(t)) > 1e-4*want.loss(t) {
			t.Errorf("%v: final loss %.7g, one rank has %.7g", set, got.loss(t), want.loss(t))
		}
	}
}

func TestTextRunsResumeBitEqual(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{"next token": smallText, "masked tokens": smallMasked} {
		p, dir := buildProgram(t), t.TempDir()
		p.config = clitest.WriteConfig(t, settings)
		weights := func(output string) []byte {
			return clitest.ReadFile(t, filepath.Join(output, "run", "checkpoints", checkpoint.StepName(96),
				"model.safetensors"))
		}
		whole, pieces := filepath.Join(dir, "whole"), filepath.Join(dir, "pieces")
		finish(t, p.command(whole), 0).check(t, exit.Done, "")
		// If the run ends before the signal arrives, the resumed run starts at its end.
		if stopped := finish(t, p.command(pieces), syscall.SIGTERM); stopped.code != exit.Done {
			stopped.check(t, exit.Terminated, "")
		}
		finish(t, p.command(pieces), 0).check(t, exit.Done, "")
		if !bytes.Equal(weights(whole), weights(pieces)) {
			t.Errorf("%s: the resumed run has other weights than the one that never stopped", name)
		}
	}
}

func TestTextAndImagesDoNotMix(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"train", "--set", "model.name=gpt2"},
			`model "gpt2" reads tokens, but data set "synthetic_image" has images`},
		{[]string{"train", "--set", "data.dataset=text", "--set", "data.path=x"},
			`model "simple_cnn" reads images, but data set "text" has tokens`},
		{[]string{"data", "verify", "--set", "model.name=gpt2", "--set", "data.dataset=synthetic_text"},
			"this command supports data sets of images only"},
	} {
		if o := execute(c.args); o.code != exit.Usage || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%v: exit %d: %s%s, want %q", c.args, o.code, o.stdout, o.stderr, c.want)
		}
	}
}

func TestPlanOfTextNamesItsSamples(t *testing.T) {
	o := execute([]string{"plan", "--set", "device.kind=reference", "--set", "model.name=gpt2", "--set",
		"data.dataset=synthetic_text", "--set", "model.layers=1",
		"--set", "model.heads=2", "--set", "model.embedding_size=16", "--set", "data.batch_size=8"})
	if o.code != 0 || !strings.Contains(o.stdout, "samples of 64 tokens") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
}

// bestOfTimes is a text that a small model learns within a short run.
var bestOfTimes = strings.Repeat("It was the best of times, it was the worst of times.\n", 60)

// tokenFiles writes a text as token files in a folder of dir.
func tokenFiles(t *testing.T, dir, text string) (shards string) {
	t.Helper()
	shards = filepath.Join(dir, "shards")
	in := writeText(t, dir, "a.txt", text)
	if o := execute([]string{"data", "tokenize", in, "-o", shards, "--tokenizer", "bytes", "--val-fraction",
		"0.2"}); o.code != 0 {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	return shards
}

// trainOnTokens writes a text as token files in a folder of dir. It configures p to train a small GPT-2 on them.
func (p *program) trainOnTokens(t *testing.T, dir, text string) (shards string) {
	t.Helper()
	shards = tokenFiles(t, dir, text)
	p.config = clitest.WriteConfig(t, strings.NewReplacer("synthetic_text\"\nvocabulary = 16",
		"text\"\npath = \""+shards+"\"", "num_samples = 256\n", "").Replace(smallText))
	return shards
}

func TestGPT2TrainsOnTokenFiles(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	shards := p.trainOnTokens(t, dir, bestOfTimes)
	out := finish(t, p.command(dir, "train.epochs=2"), 0)
	out.check(t, exit.Done, "")
	if got := resultOf(t, filepath.Join(dir, "run")); got.loss(t) > 4 ||
		!strings.Contains(out.stdout, "tokenizer bytes") || !strings.Contains(out.stdout, "| perplexity ") {
		t.Errorf("final loss %v, want less than the 5.5 of a model that knows nothing\n%s", got.loss(t), out.stdout)
	}
	damage(t, filepath.Join(shards, "train-000000.bin"))
	finish(t, p.command(dir, "train.epochs=3", "data.path="+filepath.Join(dir, "none")), 0).check(t, exit.Data, "none")
}

// smallMasked is the configuration of a small BERT on texts of unequal lengths, with dropout.
var smallMasked = strings.NewReplacer("gpt2", "bert_base", "vocabulary = 16\nsequence_length = 12",
	"vocabulary = 20\nentropy = 0.3\nmin_sequence_length = 5\nsequence_length = 12").Replace(smallText)

func TestBERTLearnsMaskedTokens(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	p.config = clitest.WriteConfig(t, smallMasked)
	out := finish(t, p.command(dir, "model.dropout=0.0", "train.epochs=20"), 0)
	out.check(t, exit.Done, "")
	for _, want := range []string{"256 training, 256 evaluation samples of 12 tokens, vocabulary 20", "entropy 0.3",
		"| perplexity ", "| masked accuracy ", "tok/s"} {
		if !strings.Contains(out.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, out.stdout)
		}
	}
	// An untrained model has a loss of ln 16 = 2.8.
	if got := resultOf(t, filepath.Join(dir, "run")); !(got.loss(t) < 2.2) {
		t.Errorf("final loss %v after %d steps", got.loss(t), got.Steps)
	}
}

func TestAnySplitOfPaddedTextTrainsAsOneRank(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	p.config = clitest.WriteConfig(t, smallMasked)
	for _, kind := range []string{"reference", "cpu"} {
		finish(t, p.command(filepath.Join(dir, kind, "one"), "train.epochs=1", "train.precision=f32",
			"device.kind="+kind), 0).check(t, exit.Done, "")
		want := resultOf(t, filepath.Join(dir, kind, "one", "run"))
		for ranks, set := range map[string][]string{"2": {"balance.fixed_shares=[5, 3]"},
			"3": {"balance.fixed_shares=[5, 1, 2]"}} {
			output := filepath.Join(dir, kind, ranks)
			finish(t, p.command(output, append(set, "parallel.ranks="+ranks, "train.epochs=1", "train.precision=f32",
				"device.kind="+kind)...), 0).check(t, exit.Done, "")
			// The tolerance allows for sums of f32 in another order.
			if got := resultOf(t, filepath.Join(output, "run")); math.Abs(got.loss(t)-want.loss(t)) > 1e-4*want.loss(
				t) {
				t.Errorf("%s, %s ranks, %v: final loss %.7g, one rank has %.7g", kind, ranks, set, got.loss(t),
					want.loss(t))
			}
		}
	}
}

// wordVocabulary writes a WordPiece vocabulary that contains all letters, and returns its path.
func wordVocabulary(t *testing.T, dir string) string {
	words := []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "!", "?"}
	for c := 'a'; c <= 'z'; c++ {
		words = append(words, string(c), "##"+string(c))
	}
	return writeText(t, dir, "vocab.txt",
		strings.Join(append(words, "it", "was", "the", "of", "times", "best", "worst"), "\n")+"\n")
}

func TestBERTTrainsOnTokenFiles(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	shards, vocab := filepath.Join(dir, "shards"), wordVocabulary(t, dir)
	in := writeText(t, dir, "a.txt", strings.Repeat("It was the best of times, it was the worst of times.\n\n", 90))
	if o := execute([]string{"data", "tokenize", in, "-o", shards, "--tokenizer", "wordpiece", "--vocab", vocab,
		"--separator", "", "--val-fraction", "0.2"}); o.code != 0 {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	p.config = clitest.WriteConfig(t,
		strings.NewReplacer("synthetic_text\"\nvocabulary = 20\nentropy = 0.3\nmin_sequence_length = 5",
			"text\"\npath = \""+shards+"\"",
			"num_samples = 256\n", "", "sequence_length = 12", "sequence_length = 18").Replace(smallMasked))
	out := finish(t, p.command(dir, "train.epochs=10"), 0)
	out.check(t, exit.Done, "")
	if got := resultOf(t, filepath.Join(dir, "run")); !(got.loss(t) < 3.5) ||
		!strings.Contains(out.stdout, "tokenizer wordpiece") || !strings.Contains(out.stdout, "| masked accuracy ") {
		t.Errorf("final loss %v, want less than the 4.2 of a model that knows nothing\n%s", got.loss(t), out.stdout)
	}
	gpt := filepath.Join(dir, "gpt2")
	if o := execute([]string{"data", "tokenize", in, "-o", gpt, "--separator", ""}); o.code != 0 {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	other := writeText(t, dir, "other.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
	twice := writeText(t, dir, "twice.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n")
	for _, c := range []struct {
		set  []string
		code int
		want string
	}{
		{[]string{"data.path=" + gpt}, exit.Usage,
			"come from tokenizer gpt2: want files of hetero-train data tokenize --tokenizer wordpiece"},
		{[]string{"data.vocab_file=" + other}, exit.Usage, "(6 tokens) is not the vocabulary of"},
		{[]string{"data.vocab_file=" + twice}, exit.Data, `lines 6 and 7 are both "a"`},
		{[]string{"data.vocab_file=" + filepath.Join(dir, "none.txt")}, exit.Data, "none.txt"},
		{[]string{"data.sequence_length=3"}, exit.Usage, "samples of 3 positions, want 4"},
		{[]string{"model.positions=12"}, exit.Usage, "model.positions: got 12, want at least the 18 positions"},
		{[]string{"data.mask_fraction=0.0"}, exit.Usage, "data.mask_fraction"},
	} {
		finish(t, p.command(filepath.Join(dir, "bad"), c.set...), 0).check(t, c.code, c.want)
	}
}

func TestTooLittleTextIsAFaultOfTheData(t *testing.T) {
	dir := t.TempDir()
	shards := filepath.Join(dir, "shards")
	in := writeText(t, dir, "a.txt", "Short.\n")
	if o := execute([]string{"data", "tokenize", in, "-o", shards, "--tokenizer", "bytes"}); o.code != 0 {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	p := buildProgram(t)
	p.config = clitest.WriteConfig(t, strings.NewReplacer("synthetic_text\"\nvocabulary = 16",
		"text\"\npath = \""+shards+"\"", "num_samples = 256\n", "").Replace(smallText))
	finish(t, p.command(dir, "data.batch_size=1"), 0).check(t, exit.Data,
		"got 8 tokens, want at least one more than the 12 tokens of a sample")
}

func TestSettingsOfMaskedTokensHaveNoEffectOnGPT2(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	p.config = clitest.WriteConfig(t, smallText)
	out := finish(t, p.command(dir, "train.steps=1", "data.mask_fraction=0.2"), 0)
	out.check(t, exit.Done, "")
	if want := `data.mask_fraction = 0.2 (--set data.mask_fraction) has no effect: model.name = "gpt2" predicts the next token`; !strings.Contains(
		out.stdout+out.stderr, want) {
		t.Errorf("%q is missing in %s%s", want, out.stdout, out.stderr)
	}
}

// Each fault of token files must end a run with the exit code of faulty data. The error must name the file and the
// position.
func TestFaultsOfTokenFiles(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	in, vocab := writeText(t, dir, "a.txt", strings.Repeat("It was the best of times, it was the worst of times.\n\n",
		40)), wordVocabulary(t, dir)
	shards := map[string]string{"gpt2": filepath.Join(dir, "bytes"), "bert_base": filepath.Join(dir, "words")}
	for model, args := range map[string][]string{"gpt2": {"--tokenizer", "bytes"},
		"bert_base": {"--tokenizer", "wordpiece", "--vocab", vocab}} {
		if o := execute(append([]string{"data", "tokenize", in, "-o", shards[model], "--separator", ""},
			args...)); o.code != 0 {
			t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
		}
	}
	for model, folder := range shards {
		settings := map[string]string{"gpt2": smallText, "bert_base": smallMasked}[model]
		settings = strings.NewReplacer("synthetic_text\"\nvocabulary = 16", "text\"",
			"synthetic_text\"\nvocabulary = 20\nentropy = 0.3\nmin_sequence_length = 5", "text\"",
			"num_samples = 256\n", "").Replace(settings)
		p.config = clitest.WriteConfig(t, settings)
		good := clitest.ReadFile(t, filepath.Join(folder, "train-000000.bin"))
		for name, c := range map[string]struct {
			shard []byte
			want  string
		}{
			"truncated":     {good[:len(good)-1], "truncated"},
			"header only":   {good[:256], "but 0 bytes follow the header"},
			"half a header": {good[:100], "header"},
			"empty":         {nil, "empty"},
			"damaged header": {append([]byte("HTTOKENS\x01\x00\x00\x00\x02\x00\x00\x00\xff"), good[17:]...),
				"header"},
			"unknown version": {append([]byte("HTTOKENS\x09"), good[9:]...), "header"},
			"token too large": {append(append(append([]byte{}, good[:356]...), 0xff, 0x7f), good[358:]...),
				"token 50 (byte 356 of the file) is 32767, want below"},
			"another file's magic": {append([]byte("NOTOKENS"), good[8:]...), ""},
		} {
			bad := filepath.Join(dir, model+" "+name)
			if err := errors.Join(os.Mkdir(bad, 0o755), os.WriteFile(filepath.Join(bad, "train-000000.bin"), c.shard,
				0o600), os.WriteFile(filepath.Join(bad, "vocab.txt"), clitest.ReadFile(t, vocab), 0o600)); err != nil {
				t.Fatal(err)
			}
			out := finish(t, p.command(filepath.Join(dir, "run"), "train.epochs=1", "train.resume=none",
				"data.path="+bad), 0)
			if out.code != exit.Data || !strings.Contains(out.stderr, "train-000000.bin") ||
				!strings.Contains(out.stderr, c.want) {
				t.Errorf("%s, %s: exit %d: %s", model, name, out.code, out.stderr)
			}
		}
	}
}

// If the user sets only flags, the defaults of all other settings must suit a language model. SGD is the default for
// image models; with SGD, the loss of this run stays above 2 nats.
func TestModelsOfTextLearnWithTheirDefaults(t *testing.T) {
	t.Parallel()
	output := t.TempDir()
	args := []string{"train", "--model", "gpt2", "--dataset", "synthetic_text", "--device", "reference", "--output-dir",
		output, "--experiment-name", "run",
		"--batch-size", "8", "--num-samples", "256", "--epochs", "8"}
	for _, s := range []string{"model.layers=1", "model.heads=2", "model.embedding_size=16", "model.dropout=0.0",
		"data.vocabulary=16", "data.sequence_length=12"} {
		args = append(args, "--set", s)
	}
	train := func(more ...string) (int, string) {
		var out bytes.Buffer
		code := runLine(t.Context(), append(args[:len(args):len(args)], more...),
			session.Environment{Stdout: &out, Stderr: &out, Train: run.Train})
		return code, out.String()
	}
	code, text := train()
	if want := "optimizer adamw, lr 0.003, weight decay 0.1, warm-up 100 steps, clip 1, schedule cosine (defaults of gpt2)"; code !=
		exit.Done || !strings.Contains(text, want) {
		t.Fatalf("got exit code %d and\n%s\nwant %s", code, text, want)
	}
	got := resultOf(t, filepath.Join(output, "run"))
	if loss := got.loss(t); got.Steps != 256 || !(loss > 0.7 && loss < 1.5) {
		t.Errorf("final loss %v after %d steps, want one close to 1 nat", loss, got.Steps)
	}
	// The checkpoint belongs to a run with the defaults of another version. The program must refuse it, and name the
	// keys that differ.
	code, text = train("--resume", "auto", "--optimizer", "sgd")
	for _, key := range []string{"optimizer.name", "optimizer.lr", "optimizer.weight_decay", "optimizer.betas"} {
		if code != exit.Usage || !strings.Contains(text, key) {
			t.Errorf("another optimizer: got exit code %d and\n%s\nwant 2 and %s", code, text, key)
		}
	}
}
