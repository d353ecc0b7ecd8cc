package program

import (
	"encoding/json"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/inference"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// twoColours writes images of the classes blue and red. folders maps the name of each data folder to its number of
// images per class.
func twoColours(t *testing.T, folders map[string]int) string {
	t.Helper()
	dir := t.TempDir()
	for folder, n := range folders {
		for i := range n {
			name := fmt.Sprintf("%d.png", i)
			writePNG(t, filepath.Join(dir, folder, "red", name), color.RGBA{R: 210, G: uint8(i), A: 255})
			writePNG(t, filepath.Join(dir, folder, "blue", name), color.RGBA{B: 210, G: uint8(i), A: 255})
		}
	}
	return dir
}

// If the user names a folder, eval evaluates all of its images, or its evaluation part. The output must state which.
func TestEvalOfAFolderEvaluatesAllOfIt(t *testing.T) {
	t.Parallel()
	trained := colours(t)
	dir, printed := trainSmall(t, "data.dataset=images", "data.path="+trained, "data.num_samples=30",
		"data.val_fraction=0.2")
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.CopyFS(moved, os.DirFS(trained)); err != nil {
		t.Fatal(err)
	}
	plain, parted := twoColours(t, map[string]int{"": 25}),
		twoColours(t, map[string]int{"Train": 4, "valid": 3, "test": 2})
	onlyTest, onlyTrain := twoColours(t, map[string]int{"test": 5}), twoColours(t, map[string]int{"train": 6})
	if strings.Contains(printed, "evaluation on") {
		t.Errorf("a part without a name: printed\n%s", printed)
	}
	for _, c := range []struct {
		name string
		args []string
		want string // path, followed by the evaluated part
		n    int
		of   int
	}{
		{"the run", nil, "PATH, held out of training (data.val_fraction = 0.2) (data.num_samples limits the set to 38)",
			8, 0},
		{"a folder", []string{"--set", "data.path=" + plain}, "PATH, all samples", 50, 50},
		{"the same data at another place", []string{"--set", "data.path=" + moved},
			"PATH, held out of training (data.val_fraction = 0.2) (data.num_samples limits the set to 38)", 8, 0},
		{"all of the same data", []string{"--set", "data.path=" + moved, "--split", "all"}, "PATH, all samples", 40,
			40},
		{"all of the run's data", []string{"--split", "all"}, "PATH, all samples", 40, 40},
		{"a part of a folder", []string{"--set", "data.path=" + plain, "--split", "val"},
			"PATH, held out of training (data.val_fraction = 0.2) (data.num_samples limits the set to 40)", 10, 0},
		{"a folder with parts", []string{"--set", "data.path=" + parted}, "PATH, part validation, valid/", 6, 14},
		{"a folder of one part", []string{"--set", "data.path=" + onlyTest}, "PATH, part test, test/", 10, 10},
		{"a folder of the training part", []string{"--set", "data.path=" + onlyTrain}, "PATH, part train, train/", 12,
			12},
		{"data.val_path", []string{"--set", "data.val_path=" + plain, "--set", "data.num_samples=0"},
			"PATH, all samples", 50, 50},
		{"a limit of the user", []string{"--set", "data.path=" + plain, "--set", "data.num_samples=20"},
			"PATH, all samples (data.num_samples limits the set to 20)", 20, 0},
	} {
		o := execute(append([]string{"eval", dir}, c.args...))
		path := trained
		for _, arg := range c.args {
			if key, value, ok := strings.Cut(arg, "="); ok && strings.HasSuffix(key, "path") {
				path = value
			}
		}
		want := fmt.Sprintf("images, %%s: %d of %d images of %s", c.n, c.of, strings.ReplaceAll(c.want, "PATH", path))
		_, want, _ = strings.Cut(want, "%s: ")
		// The total number of images is unknown if the number of samples is limited.
		want = strings.Replace(want, " of 0 images", " images", 1)
		if o.code != exit.Done || !strings.Contains(o.stdout, want) {
			t.Errorf("%s: got exit code %d and\n%s%s\nwant %q", c.name, o.code, o.stdout, o.stderr, want)
		}
		if said := strings.Contains(o.stderr, "the data are those of the training run"); said != (c.name == "the same data at another place") {
			t.Errorf("%s: said that the data are those of the training run: %v", c.name, said)
		}
	}
	o := execute([]string{"eval", dir, "--json", "--set", "data.path=" + parted})
	var e inference.Evaluation
	if err := json.Unmarshal([]byte(o.stdout), &e); err != nil || e.Path != parted ||
		e.Part != "part validation, valid/" || e.Split != "val" || e.Of != 14 || e.Note != "" {
		t.Errorf("got %+v, %v", e, err)
	}
	if o := execute([]string{"eval", dir, "--split", "all", "--set", "data.path=" + parted}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "use --split val (part validation, valid/) or --split train") {
		t.Errorf("all of a folder with parts: got exit code %d and %s", o.code, o.stderr)
	}
	if o := execute([]string{"eval", dir, "--set", "data.path=" + filepath.Join(dir, "none")}); o.code != exit.Data ||
		!strings.Contains(o.stderr, "no such file") {
		t.Errorf("a missing folder: got exit code %d and %s", o.code, o.stderr)
	}
}

// Figures of training samples are indistinguishable from figures of held-out data. The output must therefore state that
// it evaluated training samples.
func TestEvalSaysThatItReadsTrainingSamples(t *testing.T) {
	t.Parallel()
	trained := colours(t)
	dir, _ := trainSmall(t, "data.dataset=images", "data.path="+trained, "data.num_samples=0", "data.val_fraction=0.2")
	changed, only := filepath.Join(t.TempDir(), "changed"), filepath.Join(t.TempDir(), "only")
	for _, to := range []string{changed, only} {
		if err := os.CopyFS(to, os.DirFS(trained)); err != nil {
			t.Fatal(err)
		}
	}
	writePNG(t, filepath.Join(changed, "red", "z.png"), color.RGBA{R: 90, A: 255})
	other := twoColours(t, map[string]int{"": 25})
	const says = "have the content of training samples"
	for _, c := range []struct {
		name string
		args []string
		want string // "": no note
	}{
		{"the run", nil, ""},
		{"other data", []string{"--set", "data.path=" + other}, ""},
		{"the training samples", []string{"--split", "train"}, ""},
		{"a changed copy", []string{"--set", "data.path=" + changed}, "about 32 of the 41 evaluated samples " + says +
			" (32 of 32 compared training samples are among them)"},
		{"all of a copy", []string{"--set", "data.path=" + only, "--split", "all"},
			"about 32 of the 40 evaluated samples " + says},
		{"a copy as the evaluation part", []string{"--set", "data.val_path=" + changed},
			"about 32 of the 41 evaluated samples " + says},
	} {
		o := execute(append([]string{"eval", dir, "--json"}, c.args...))
		var e inference.Evaluation
		if err := json.Unmarshal([]byte(o.stdout), &e); err != nil || o.code != exit.Done ||
			!strings.Contains(e.Note, c.want) || c.want == "" && e.Note != "" {
			t.Errorf("%s: got exit code %d, %v, and the note %q, want %q\n%s", c.name, o.code, err, e.Note, c.want,
				o.stderr)
		}
	}
	if o := execute([]string{"eval", dir, "--set", "data.path=" + changed}); !strings.Contains(o.stdout,
		"\nNOTE about 32 of the 41 evaluated samples ") {
		t.Errorf("got\n%s\nwant the note", o.stdout)
	}
}

func TestTheStartSaysWhichPartEvaluates(t *testing.T) {
	t.Parallel()
	set := twoColours(t, map[string]int{"train": 8, "dev": 3, "TEST": 2})
	_, printed := trainSmall(t, "data.dataset=images", "data.path="+set, "data.num_samples=0")
	if want := "data images: evaluation on part validation, dev/; not used: TEST/"; !strings.Contains(printed, want) ||
		!strings.Contains(printed, "16 training, 6 evaluation") {
		t.Errorf("got\n%s\nwant %q", printed, want)
	}
	for command, wants := range map[string][]string{
		"inspect": {"evaluation on part validation, dev/", "not used: TEST/"},
		"verify":  {"not used and not read: TEST/", "22 samples read"}} {
		o := execute([]string{"data", command, set})
		for _, want := range wants {
			if o.code != exit.Done || !strings.Contains(o.stdout, want) {
				t.Errorf("data %s: got exit code %d and\n%s%s\nwant %q", command, o.code, o.stdout, o.stderr, want)
			}
		}
	}
}

// Command eval must also evaluate the whole of a file of labelled texts, and of a file of tokens.
func TestEvalOfAFileOfTextEvaluatesAllOfIt(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	vocab := wordVocabulary(t, dir)
	in := reviews(t, dir, "in.tsv", 100, []string{"good", "bad"})
	p.config = clitest.WriteConfig(t, smallClassifier(in, vocab))
	finish(t, p.command(dir, "train.epochs=1"), 0).check(t, exit.Done, "")
	run := filepath.Join(dir, "run")
	other := reviews(t, dir, "other.tsv", 60, []string{"good", "bad"})
	parts := filepath.Join(dir, "parts")
	for name, n := range map[string]int{"train.tsv": 50, "dev.tsv": 20, "test.tsv": 10} {
		if err := os.MkdirAll(parts, 0o755); err != nil {
			t.Fatal(err)
		}
		reviews(t, parts, name, n, []string{"good", "bad"})
	}
	for _, c := range []struct{ set, want string }{
		{"data.path=" + other, "60 of 60 samples of " + other + ", all samples"},
		{"data.val_path=" + other, "60 of 60 samples of " + other + ", all samples"},
		{"data.path=" + parts, "20 of 70 samples of " + parts + ", part validation, dev.tsv"},
	} {
		if o := execute([]string{"eval", run, "--set", c.set}); o.code != exit.Done ||
			!strings.Contains(o.stdout, c.want) {
			t.Errorf("%s: got exit code %d and\n%s%s\nwant %q", c.set, o.code, o.stdout, o.stderr, c.want)
		}
	}
	if o := execute([]string{"eval", run, "--set", "data.val_path=" + in}); o.code != exit.Done ||
		!strings.Contains(o.stdout, "evaluated samples have the content of training samples") {
		t.Errorf("the texts of the training: got exit code %d and\n%s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute([]string{"eval", run, "--split", "all", "--set", "data.path=" + parts}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "use --split val (part validation, dev.tsv) or --split train") {
		t.Errorf("all of a folder with parts: got exit code %d and %s", o.code, o.stderr)
	}
	// Training must select the files of a folder by the same rule.
	out := finish(t, p.command(filepath.Join(dir, "second"), "train.epochs=1", "data.path="+parts), 0)
	if want := "data labelled_text: evaluation on part validation, dev.tsv; not used: test.tsv"; !strings.Contains(
		out.stdout, want) || !strings.Contains(out.stdout, "50 training, 20 evaluation") {
		t.Errorf("got\n%s\nwant %q", out.stdout, want)
	}
}

func TestEvalOfTokenFiles(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	shards := p.trainOnTokens(t, dir, bestOfTimes)
	out := finish(t, p.command(dir, "train.epochs=1"), 0)
	out.check(t, exit.Done, "")
	if want := "data text: evaluation on part validation, val-000000.bin"; !strings.Contains(out.stdout, want) {
		t.Errorf("got\n%s\nwant %q", out.stdout, want)
	}
	run, file := filepath.Join(dir, "run"), filepath.Join(shards, "train-000000.bin")
	if o := execute([]string{"eval", run, "--split", "all"}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "use --split val (part validation, val-000000.bin) or --split train") {
		t.Errorf("all of a folder with parts: got exit code %d and %s", o.code, o.stderr)
	}
	for set, want := range map[string]string{
		"data.path=" + file:     "samples of " + file + ", all samples",
		"data.val_path=" + file: "samples of " + file + ", all samples",
		"data.path=" + shards:   "samples of " + shards + ", part validation, val-000000.bin",
	} {
		if o := execute([]string{"eval", run, "--set", set}); o.code != exit.Done || !strings.Contains(o.stdout, want) {
			t.Errorf("%s: got exit code %d and\n%s%s\nwant %q", set, o.code, o.stdout, o.stderr, want)
		}
	}
}
