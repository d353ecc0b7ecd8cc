package program

import (
	"bytes"
	"encoding/json"
	"image/color"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/inference"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// painted returns a folder with one folder of images per class. folders maps the name of each class's folder to the
// colour of its images.
func painted(t *testing.T, folders map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for folder, name := range folders {
		for i := range uint8(20) {
			c := color.RGBA{R: i, G: i, B: i, A: 255}
			switch name {
			case "red":
				c.R += 200
			case "green":
				c.G += 200
			case "blue":
				c.B += 200
			}
			writePNG(t, filepath.Join(dir, folder, string(rune('a'+i))+".png"), c)
		}
	}
	return dir
}

// renameClasses copies a file of weights, and changes the names of its classes.
func renameClasses(t *testing.T, from, to string, names []string) {
	t.Helper()
	var b bytes.Buffer
	if err := checkpoint.Write(&b, slices.Collect(maps.Values(contents(t, from))),
		map[string]string{weights.ClassesKey: weights.EncodeClasses(names)}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// accuracy returns the top-1 accuracy that eval prints for all images of a folder, and its messages on standard error.
func accuracy(t *testing.T, model, pictures string, more ...string) (top1 float64, messages string) {
	t.Helper()
	o := execute(append([]string{"eval", model, "--json", "--split", "train", "--device", "reference", "--set",
		"data.dataset=images", "--set", "data.path=" + pictures}, more...))
	var e inference.Evaluation
	if err := json.Unmarshal([]byte(o.stdout), &e); o.code != exit.Done || err != nil {
		t.Fatalf("eval %s: exit code %d: %s%s", model, o.code, o.stdout, o.stderr)
	}
	return e.Top1, o.stderr
}

func TestClassifiersCorrespondByName(t *testing.T) {
	t.Parallel()
	images := []string{"data.dataset=images", "data.num_samples=0", "model.num_classes=3", "optimizer.lr=0.02"}
	with := func(pictures string, more ...string) []string {
		return append(append(images, "data.path="+pictures), more...)
	}
	dir, _ := trainSmall(t, with(painted(t, map[string]string{"blue": "blue", "green": "green", "red": "red"}),
		"train.steps=120")...)

	// This data set has only some of the classes. Their numbers differ from those in the model.
	some := painted(t, map[string]string{"red": "red", "green": "green"})
	top1, messages := accuracy(t, dir, some)
	if top1 < 0.9 || !strings.Contains(messages, "2 of the 3 classes") {
		t.Errorf("some of the classes: accuracy %v, want at least 0.9, and a message:\n%s", top1, messages)
	}
	foreign := painted(t, map[string]string{"red": "red", "yellow": "red"})
	if o := execute([]string{"eval", dir, "--set", "data.path=" + foreign}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, `has no class "yellow"`) {
		t.Errorf("an unknown class: exit code %d: %s", o.code, o.stderr)
	}
	more := painted(t, map[string]string{"blue": "blue", "green": "green", "red": "red", "yellow": "red"})
	if o := execute([]string{"eval", dir, "--set", "data.path=" + more}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, `has no class "yellow"`) {
		t.Errorf("more classes than the model: exit code %d: %s", o.code, o.stderr)
	}

	// Exported and imported weights must contain the names of the classes.
	file, imported := filepath.Join(t.TempDir(), "out.safetensors"), filepath.Join(t.TempDir(), "imported")
	for _, args := range [][]string{{"checkpoint", "export", dir, "--output", file}, {"checkpoint", "import", file,
		"--output", imported, "--set", "model.channels=[3, 4]", "--set", "data.image_size=8"}} {
		if o := execute(args); o.code != exit.Done {
			t.Fatalf("%q: exit code %d: %s", args, o.code, o.stderr)
		}
	}
	if got, _ := accuracy(t, imported, some); got != top1 {
		t.Errorf("after export and import: accuracy %v, want %v", got, top1)
	}
	names := filepath.Join(t.TempDir(), "names.txt")
	if err := os.WriteFile(names, []byte("green\nred\nblue\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, messages := accuracy(t, imported, some, "--class-names", names); got > 0.1 ||
		!strings.Contains(messages, "replaces the names") {
		t.Errorf("with other names of the classes: accuracy %v, want at most 0.1 and a message:\n%s", got, messages)
	}

	// A run starts from a classifier whose classes have another order. The test exchanges the names of the classes in
	// the file, so each output belongs to images of another colour.
	exchanged := filepath.Join(t.TempDir(), "exchanged.safetensors")
	renameClasses(t, file, exchanged, []string{"green", "red", "blue"})
	ordered := painted(t, map[string]string{"green": "blue", "red": "green", "blue": "red"})
	if o := execute([]string{"checkpoint", "import", exchanged, "--output", imported + "2", "--set",
		"model.channels=[3, 4]", "--set", "data.image_size=8"}); o.code != exit.Done {
		t.Fatal(o.stderr)
	}
	for _, from := range []string{
		exchanged, imported + "2", filepath.Join(imported+"2", "step-00000000", "model.safetensors")} {
		again, _ := trainSmall(t, with(ordered, "model.init_from="+from, "model.init_head=keep", "train.steps=1",
			"optimizer.lr=1e-9")...)
		if got, _ := accuracy(t, again, ordered); got < 0.9 {
			t.Errorf("started from %s: accuracy %v, want at least 0.9", from, got)
		}
	}

	// If the weights were trained on classes with other names, the run must replace the classifier. With init_head =
	// keep, it must refuse the weights.
	p := buildProgram(t)
	p.config = clitest.WriteConfig(t, smallRun)
	other := with(painted(t, map[string]string{"one": "red", "two": "blue", "three": "green"}), "train.steps=1",
		"model.init_from="+dir)
	finish(t, p.command(t.TempDir(), other...), 0).check(t, exit.Done, `the file has no class \"one\"`)
	finish(t, p.command(t.TempDir(), append(other, "model.init_head=keep")...), 0).check(t, exit.Usage,
		`names of the classes: file "blue" "green" "red", model "one" "three" "two"`)
}

// The numbers of the classes of texts must come from the model, and not from the order of the labels.
func TestLabelsOfTextsHaveTheNumbersOfTheModel(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	vocab := wordVocabulary(t, dir)
	p.config = clitest.WriteConfig(t, smallClassifier(reviews(t, dir, "texts.tsv", 144, []string{"good", "bad"}),
		vocab))
	finish(t, p.command(dir, "train.epochs=10", "model.dropout=0.0"), 0).check(t, exit.Done, "")
	folder := filepath.Join(dir, "hf")
	if o := execute([]string{"checkpoint", "export", filepath.Join(dir, "run"), "--format", "hf", "--output",
		folder}); o.code != exit.Done {
		t.Fatal(o.stderr)
	}
	settings := string(clitest.ReadFile(t, filepath.Join(folder, "config.json"))) // class 0 is bad, class 1 is good
	texts := map[string]string{
		"names": writeText(t, dir, "names.tsv", "text\tlabel\nbest\tgood\nworst\tbad\nit was the best\tgood\n")}
	texts["numbers"] = writeText(t, dir, "numbers.tsv", "text\tlabel\nbest\t1\nworst\t0\nit was the best\t1\n")
	texts["other case"] = writeText(t, dir, "case.tsv", "text\tlabel\nbest\tGOOD\nworst\tBad\nit was the best\tgood\n")
	for name, c := range map[string]struct {
		change [2]string
		text   string
		want   float64
		says   string
	}{
		"the order of the training": {[2]string{}, "names", 1, ""},
		"names exchanged": {[2]string{`"0": "bad",` + "\n    \"1\": \"good\"", `"0": "good", "1": "bad"`},
			"names", 0, ""},
		"names in another case": {[2]string{}, "other case", 1, ""},
		"numbers as labels":     {[2]string{}, "numbers", 1, ""},
		"numbers for names": {
			[2]string{`"0": "bad",` + "\n    \"1\": \"good\"", `"0": "LABEL_0", "1": "LABEL_1"`}, "names", 1,
			"by number only"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(settings, c.change[0], c.change[1], 1)
			if c.change[0] != "" && changed == settings {
				t.Fatalf("config.json has no %q:\n%s", c.change[0], settings)
			}
			if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			imported := filepath.Join(t.TempDir(), "imported")
			if o := execute([]string{"checkpoint", "import", folder, "--output", imported}); o.code != exit.Done {
				t.Fatal(o.stderr)
			}
			o := execute([]string{"eval", imported, "--json", "--device", "reference", "--set",
				"data.dataset=labelled_text", "--set", "data.path=" + texts[c.text], "--set",
				"data.val_path=" + texts[c.text],
				"--set", "data.vocab_file=" + vocab, "--set", "data.sequence_length=16"})
			var e inference.Evaluation
			if err := json.Unmarshal([]byte(o.stdout), &e); o.code != exit.Done || err != nil || e.Top1 != c.want ||
				!strings.Contains(o.stderr, c.says) {
				t.Errorf("exit code %d, accuracy %v, want %v and %q:\n%s", o.code, e.Top1, c.want, c.says, o.stderr)
			}
		})
	}
}

// The token numbers of a model have a meaning only in the vocabulary of the model.
func TestAnotherVocabularyIsRefused(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	vocab := wordVocabulary(t, dir)
	lines := strings.Split(string(clitest.ReadFile(t, vocab)), "\n")
	lines[6], lines[7] = lines[7], lines[6]
	other := writeText(t, dir, "other.txt", strings.Join(lines, "\n"))
	p.config = clitest.WriteConfig(t, smallClassifier(reviews(t, dir, "texts.tsv", 144, []string{"good", "bad"}),
		vocab))
	finish(t, p.command(dir, "train.epochs=1"), 0).check(t, exit.Done, "")
	run, folder, imported, file := filepath.Join(dir, "run"), filepath.Join(dir, "hf"), filepath.Join(dir, "imported"),
		filepath.Join(dir, "out.safetensors")
	if o := execute([]string{"checkpoint", "export", run, "--format", "hf", "--output", folder}); o.code != exit.Done {
		t.Fatal(o.stderr)
	}
	if err := os.WriteFile(filepath.Join(folder, "vocab.txt"), clitest.ReadFile(t, vocab), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"checkpoint", "import", folder, "--output", imported},
		{"checkpoint", "export", run, "--output", file}} {
		if o := execute(args); o.code != exit.Done {
			t.Fatal(o.stderr)
		}
	}
	if o := execute([]string{"checkpoint", "inspect", run}); o.code != exit.Done ||
		!strings.Contains(o.stdout, `"bad" "good"`) || !strings.Contains(o.stdout, "tokenizer wordpiece (vocabulary ") {
		t.Errorf("exit %d: %s%s, want the classes and the tokenizer", o.code, o.stdout, o.stderr)
	}
	const says = "the vocabulary differs from that of the training"
	line := writeText(t, dir, "line.txt", "best\n")
	texts := []string{"--device", "reference", "--set", "data.dataset=labelled_text", "--set",
		"data.path=" + filepath.Join(dir, "texts.tsv"), "--set", "data.sequence_length=16", "--set"}
	for _, from := range []string{run, imported} {
		for used, code := range map[string]int{vocab: exit.Done, other: exit.Usage} {
			for _, args := range [][]string{append(append([]string{"eval", from}, texts...), "data.vocab_file="+used),
				{"predict", from, line, "--vocab", used, "--device", "reference"}} {
				if o := execute(args); o.code != code || strings.Contains(o.stderr, says) != (code == exit.Usage) {
					t.Errorf("%q: exit code %d, want %d: %s", args, o.code, code, o.stderr)
				}
			}
		}
	}
	for i, from := range []string{run, folder, imported, file} {
		finish(t, p.command(filepath.Join(dir, strconv.Itoa(i)), "train.steps=1", "data.vocab_file="+other,
			"model.init_from="+from), 0).check(t, exit.Usage, says)
	}
}
