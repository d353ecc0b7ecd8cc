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
)

// reviews writes a file of texts, and returns its path. A small model can learn to distinguish the classes of these
// texts. The texts have unequal lengths.
func reviews(t *testing.T, dir, name string, n int, classes []string) string {
	var b strings.Builder
	if strings.HasSuffix(name, ".tsv") {
		b.WriteString("id\ttext\tlabel\n")
	}
	words := []string{"best", "worst", "times"}
	for i := range n {
		class := i * 7 % 5 % len(classes)
		text := strings.TrimSpace(strings.Repeat("it was the ", i%3) + words[class] + strings.Repeat(" of the", i%4))
		if strings.HasSuffix(name, ".tsv") {
			fmt.Fprintf(&b, "%d\t%s\t%s\n", i, text, classes[class])
		} else {
			fmt.Fprintf(&b, "{\"text\": %q, \"label\": %q}\n", text, classes[class])
		}
	}
	return writeText(t, dir, name, b.String())
}

// smallClassifier returns the settings of a BERT on labelled texts, with 16 steps per epoch.
func smallClassifier(path, vocab string) string {
	return strings.NewReplacer("dataset = \"synthetic_text\"\nvocabulary = 20\nentropy = 0.3\nmin_sequence_length = 5\nsequence_length = 12\nnum_samples = 256",
		fmt.Sprintf("dataset = \"labelled_text\"\npath = %q\nvocab_file = %q\nsequence_length = 16", path, vocab)).
		Replace(smallMasked)
}

func TestBERTLearnsToClassifyTexts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		classes []string
	}{{"two.tsv", []string{"good", "bad"}}, {"three.jsonl", []string{"good", "bad", "neither"}}} {
		p, dir := buildProgram(t), t.TempDir()
		vocab := wordVocabulary(t, dir)
		p.config = clitest.WriteConfig(t, smallClassifier(reviews(t, dir, c.name, 144, c.classes), vocab))
		out := finish(t, p.command(dir, "train.epochs=10", "data.sequence_length=24", "model.dropout=0.0",
			"train.early_stop_metric=f1", "train.early_stop_patience=20"), 0)
		out.check(t, exit.Done, "")
		for _, want := range []string{" classes: ", "| accuracy ", "| F1 ", "tok/s",
			"the longest text needs fewer tokens than data.sequence_length"} {
			if !strings.Contains(out.stdout+out.stderr, want) {
				t.Errorf("%q is missing in\n%s%s", want, out.stdout, out.stderr)
			}
		}
		run := filepath.Join(dir, "run")
		var e inference.Evaluation
		if o := execute([]string{"eval", run, "--json"}); o.code != 0 || json.Unmarshal([]byte(o.stdout), &e) != nil ||
			e.F1 == nil || e.Perplexity != nil {
			t.Fatalf("%s: exit %d: %s%s", c.name, o.code, o.stdout, o.stderr)
		}
		if e.Top1 < 0.9 || *e.F1 < 0.9 || e.Classes != len(c.classes) || e.Targets != e.Samples ||
			!strings.Contains(out.stdout, fmt.Sprintf("F1 %.2f |", *e.F1)) {
			t.Errorf("%s: %+v\n%s", c.name, e, out.stdout)
		}
		if o := execute([]string{"checkpoint", "inspect", run}); o.code != 0 ||
			!strings.Contains(o.stdout, fmt.Sprintf("bert_base, %d classes\n", len(c.classes))) {
			t.Errorf("%s: exit %d: %s%s", c.name, o.code, o.stdout, o.stderr)
		}
		texts := writeText(t, dir, "texts.txt", "it was the best\n\nworst of the\nthe \xff best\n")
		if o := execute([]string{"predict", run, texts, "--top", "1"}); o.code != exit.Data ||
			!strings.Contains(o.stdout, texts+":1: good ") || !strings.Contains(o.stdout, texts+":3: bad ") ||
			!strings.Contains(o.stderr, texts+":4: the line is not UTF-8") {
			t.Errorf("%s: exit %d: %s%s", c.name, o.code, o.stdout, o.stderr)
		}
		long := writeText(t, dir, "long.txt", "best\n"+strings.Repeat("x", 16<<20+1)+"\nworst\n")
		if o := execute([]string{"predict", run, long}); o.code != exit.Data ||
			!strings.Contains(o.stderr, long+":2: the line has more than 16777216 bytes") {
			t.Errorf("%s: exit %d: %s%s", c.name, o.code, o.stdout, o.stderr)
		}
		for name, text := range map[string]string{"a.jsonl": `{"text": "good"}`, "b.txt": `{"text": "good"}`,
			"c.CSV": "good", "d.json": `["good"]`} {
			if o := execute([]string{
				"predict", run, writeText(t, t.TempDir(), name, text+"\n")}); o.code != exit.Data || o.stdout != "" ||
				!strings.Contains(o.stderr, "want a text on each line without other syntax") {
				t.Errorf("%s: got exit code %d: %s%s", name, o.code, o.stdout, o.stderr)
			}
		}
		if o := execute([]string{"predict", run, dir}); o.code != exit.Usage ||
			!strings.Contains(o.stderr, "want a regular file") {
			t.Errorf("%s: a folder: exit %d: %s%s", c.name, o.code, o.stdout, o.stderr)
		}
		exported, imported := filepath.Join(dir, "hf"), filepath.Join(dir, "imported")
		for _, args := range [][]string{{"checkpoint", "export", run, "--format", "hf", "--output", exported},
			{"checkpoint", "import", exported, "--output", imported}} {
			if o := execute(args); o.code != 0 {
				t.Fatalf("%v: exit %d: %s%s", args, o.code, o.stdout, o.stderr)
			}
		}
		var settings map[string]any
		if err := json.Unmarshal(clitest.ReadFile(t, filepath.Join(exported, "config.json")), &settings); err != nil {
			t.Fatal(err)
		}
		if names := settings["id2label"].(map[string]any); names["0"] != e0(c.classes) ||
			fmt.Sprint(settings["architectures"]) != "[BertForSequenceClassification]" {
			t.Errorf("%s: config.json: %v", c.name, settings)
		}
		// The imported weights must give the same predictions.
		var ours, theirs inference.TextPrediction
		line := writeText(t, dir, "line.txt", "the worst\n")
		for from, to := range map[string]*inference.TextPrediction{run: &ours, imported: &theirs} {
			if o := execute([]string{"predict", from, line, "--vocab", vocab, "--json", "--device",
				"reference"}); o.code != 0 || json.Unmarshal([]byte(o.stdout), to) != nil {
				t.Fatalf("%s: exit %d: %s%s", c.name, o.code, o.stdout, o.stderr)
			}
		}
		if len(ours.Top) != len(c.classes) || len(theirs.Top) != len(c.classes) ||
			ours.Top[0].Probability != theirs.Top[0].Probability {
			t.Errorf("%s: got %+v from the imported weights, want %+v", c.name, theirs, ours)
		}
	}
}

// e0 returns the class that comes first in the program's order.
func e0(classes []string) string {
	first := classes[0]
	for _, c := range classes {
		first = min(first, c)
	}
	return first
}

func TestAnySplitOfLabelledTextsTrainsAsOneRank(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	p.config = clitest.WriteConfig(t,
		smallClassifier(reviews(t, dir, "three.tsv", 144, []string{"good", "bad", "neither"}), wordVocabulary(t, dir)))
	finish(t, p.command(filepath.Join(dir, "one"), "train.epochs=2", "checkpoint.best_metric=macro_f1"), 0).check(t,
		exit.Done, "")
	want := resultOf(t, filepath.Join(dir, "one", "run"))
	events, err := os.ReadFile(filepath.Join(dir, "one", "run", "logs", "events.jsonl"))
	if err != nil || !strings.Contains(string(events), `"macro_f1":0.`) {
		t.Errorf("the evaluations lack the metric that the user has chosen: %v\n%s", err, events)
	}
	for ranks, shares := range map[string]string{"2": "[7, 1]", "3": "[2, 5, 1]"} {
		output := filepath.Join(dir, ranks)
		finish(t, p.command(output, "balance.fixed_shares="+shares, "parallel.ranks="+ranks, "train.epochs=2"),
			0).check(t, exit.Done, "")
		if got := resultOf(t, filepath.Join(output, "run")); math.Abs(got.loss(t)-want.loss(t)) > 1e-4*want.loss(t) {
			// The tolerance allows for another order of f32 sums.
			t.Errorf("%s ranks: final loss %.7g, one rank has %.7g", ranks, got.loss(t), want.loss(t))
		}
	}
}

func TestAnySplitOfTextsGroupedByLengthTrainsAsOneRank(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	p.config = clitest.WriteConfig(t,
		smallClassifier(reviews(t, dir, "three.tsv", 144, []string{"good", "bad", "neither"}), wordVocabulary(t, dir)))
	set := func(more ...string) []string {
		return append(more, "train.epochs=2", "data.sequence_length=24", "data.group_by_length=true")
	}
	out := finish(t, p.command(filepath.Join(dir, "one"), set()...), 0)
	out.check(t, exit.Done, "")
	if !strings.Contains(out.stdout, " samples/s") || strings.Contains(out.stdout, " tok/s") {
		t.Errorf("the throughput is not in samples:\n%s", out.stdout)
	}
	want := resultOf(t, filepath.Join(dir, "one", "run"))
	for ranks, shares := range map[string]string{"2": "[7, 1]", "3": "[2, 5, 1]"} {
		output := filepath.Join(dir, ranks)
		finish(t, p.command(output, set("balance.fixed_shares="+shares, "parallel.ranks="+ranks)...), 0).check(t,
			exit.Done, "")
		if got := resultOf(t, filepath.Join(output, "run")); math.Abs(got.loss(t)-want.loss(t)) > 1e-4*want.loss(t) {
			// The tolerance allows for another order of f32 sums.
			t.Errorf("%s ranks: final loss %.7g, one rank has %.7g", ranks, got.loss(t), want.loss(t))
		}
	}
	finish(t, p.command(filepath.Join(dir, "equal"), "train.epochs=1", "data.sequence_length=8",
		"data.group_by_length=true"), 0).
		check(t, exit.Done, "data.group_by_length")
}

func TestFaultsOfLabelledTexts(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	vocab := wordVocabulary(t, dir)
	good := reviews(t, dir, "good.tsv", 40, []string{"good", "bad"})
	p.config = clitest.WriteConfig(t, smallClassifier(good, vocab))
	for _, c := range []struct {
		set  []string
		code int
		want string
	}{
		{[]string{"data.path=" + writeText(t, dir, "columns.tsv", "text\tlabel\na\n")}, exit.Data,
			"line 2: got 1 columns, want 2"},
		{[]string{"data.path=" + writeText(t, dir, "utf8.tsv", "text\tlabel\n\xff\ta\n")}, exit.Data,
			"line 2: byte 0 is not UTF-8"},
		{[]string{"data.path=" + writeText(t, dir, "empty.tsv", "")}, exit.Data, "empty.tsv"},
		{[]string{"data.path=" + writeText(t, dir, "one.tsv", "text\tlabel\na\tb\n")}, exit.Data,
			"want at least two classes"},
		{[]string{"data.path=" + writeText(t, dir, "bad.jsonl", "{\"text\": 1\n")}, exit.Data, "want a JSON object"},
		{[]string{"data.path=" + filepath.Join(dir, "none.tsv")}, exit.Data, "none.tsv"},
		{[]string{"data.label_column=class"}, exit.Data, `no column "class"; the columns are ["id" "text" "label"]`},
		{[]string{"data.val_path=" + writeText(t, dir, "new.tsv", "text\tlabel\na\tugly\n")}, exit.Data,
			`line 2: got label "ugly", want one of`},
		{[]string{"data.vocab_file=" + writeText(t, dir, "twice.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n")},
			exit.Data, `lines 6 and 7 are both "a"`},
		{[]string{"data.vocab_file="}, exit.Usage, "labelled texts need a WordPiece vocabulary"},
		{[]string{"data.sequence_length=4"}, exit.Usage, "4 positions, want 5"},
		{[]string{"model.positions=8"}, exit.Usage, "model.positions: got 8, want at least the 16 positions"},
		{[]string{"model.num_classes=1"}, exit.Usage, "has 2 classes"},
		{[]string{"train.early_stop_patience=1", "train.early_stop_metric=perplexity"}, exit.Usage,
			`have no perplexity (got "perplexity", want top1, f1, loss, macro_f1)`},
		{[]string{"model.name=gpt2"}, exit.Usage, "model gpt2 predicts tokens, but data set labelled_text has classes"},
	} {
		finish(t, p.command(filepath.Join(dir, "bad"), c.set...), 0).check(t, c.code, c.want)
	}
}

func TestModelsOfTextAreEvaluatedAndPredict(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	vocab := wordVocabulary(t, dir)
	in := writeText(t, dir, "a.txt", strings.Repeat("It was the best of times, it was the worst of times.\n\n", 90))
	for name, args := range map[string][]string{"bert": {"--tokenizer", "wordpiece", "--vocab", vocab},
		"gpt": {"--tokenizer", "bytes"}} {
		args = append([]string{"data", "tokenize", in, "-o", filepath.Join(dir, name+".shards"), "--separator", "",
			"--val-fraction", "0.2"}, args...)
		if o := execute(args); o.code != 0 {
			t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
		}
	}
	for name, c := range map[string]struct{ settings, line, want string }{
		"bert": {strings.NewReplacer("synthetic_text\"\nvocabulary = 20\nentropy = 0.3\nmin_sequence_length = 5",
			"text\"\npath = \""+filepath.Join(dir, "bert.shards")+"\"",
			"num_samples = 256\n", "", "sequence_length = 12", "sequence_length = 18").Replace(smallMasked),
			"it was the [MASK] of [MASK]\nnothing\n", "the line has no [MASK]"},
		"gpt": {
			strings.NewReplacer("synthetic_text\"\nvocabulary = 16",
				"text\"\npath = \""+filepath.Join(dir, "gpt.shards")+"\"", "num_samples = 256\n",
				"").Replace(smallText), "It was the best o\n\xfe\n", "not UTF-8"},
	} {
		p.config = clitest.WriteConfig(t, c.settings)
		out := finish(t, p.command(filepath.Join(dir, name), "train.epochs=4"), 0)
		out.check(t, exit.Done, "")
		run := filepath.Join(dir, name, "run")
		var e inference.Evaluation
		if o := execute([]string{"eval", run, "--json"}); o.code != 0 || json.Unmarshal([]byte(o.stdout), &e) != nil ||
			e.Perplexity == nil || e.F1 != nil {
			t.Fatalf("%s: exit %d: %s%s", name, o.code, o.stdout, o.stderr)
		}
		if want := fmt.Sprintf("perplexity %.2f", float64(*e.Perplexity)); !strings.Contains(out.stdout, want) ||
			e.Targets <= 0 {
			t.Errorf("%s: %+v, want the last evaluation of\n%s", name, e, out.stdout)
		}
		if o := execute([]string{"eval", run, "--split", "train"}); o.code != 0 ||
			!strings.Contains(o.stdout, "perplexity ") || !strings.Contains(o.stdout, " targets") {
			t.Errorf("%s: exit %d: %s%s", name, o.code, o.stdout, o.stderr)
		}
		texts := writeText(t, dir, name+".txt", c.line)
		o := execute([]string{"predict", run, texts, "--top", "3", "--json"})
		var first inference.TextPrediction
		if err := json.NewDecoder(strings.NewReader(o.stdout)).Decode(&first); o.code != exit.Data || err != nil ||
			!strings.Contains(o.stdout, c.want) {
			t.Errorf("%s: exit %d, %v: %s%s", name, o.code, err, o.stdout, o.stderr)
		}
		marked := writeText(t, dir, "marked.txt", "\ufeff"+c.line) // a byte order mark must change nothing
		if again := execute([]string{"predict", run, marked, "--top", "3", "--json"}); strings.ReplaceAll(again.stdout,
			marked, texts) != o.stdout {
			t.Errorf("%s: got %s, want %s", name, again.stdout, o.stdout)
		}
		if name == "bert" && (len(first.Masks) != 2 || len(first.Masks[1]) != 3 || first.Top != nil) || name == "gpt" &&
			(len(first.Next) != 3 || first.Masks != nil || first.Top != nil) {
			t.Errorf("%s: got %+v", name, first)
		}
		if name == "bert" {
			if o := execute([]string{"generate", run, "--prompt", "it"}); o.code != exit.Usage ||
				!strings.Contains(o.stderr, "want a language model such as gpt2") {
				t.Errorf("generate: exit %d: %s%s", o.code, o.stdout, o.stderr)
			}
		}
	}
}
