package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// tables is the folder of the small data sets that scripts/huggingface_goldens.py wrote.
const tables = "../../../engine/data/huggingface/testdata/"

// set returns a flag --set for each setting.
func set(settings ...string) (args []string) {
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	return args
}

// The test trains each kind of model on each form of its data.
func TestDataSetsOfHuggingFaceTrain(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	vocab := filepath.Join(dir, "vocab.txt")
	words := "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ngood\nbad\nfilm\nwas\nvery\nlong\nand\nshort\nnice\n“\nu\n”\n"
	if err := os.WriteFile(vocab, []byte(words), 0o644); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "list")
	for _, class := range []string{"a", "b"} {
		for k := range 4 {
			path := filepath.Join(list, class, string(rune('0'+k))+".png")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, greyPNG(t, uint8(50*k)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	lines := "file_name,label\na/0.png,x\na/1.png,y\na/2.png,x\na/3.png,y\nb/0.png,x\nb/1.png,y\n"
	if err := os.WriteFile(filepath.Join(list, "metadata.csv"), []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	common := append([]string{"train", "--dataset", "huggingface", "--output-dir", dir}, set("device.kind=reference",
		"data.batch_size=2", "train.steps=2", "data.cache_dir="+filepath.Join(dir, "cache"))...)
	pictures := append([]string{"--model", "simple_cnn"}, set("model.channels=[2]", "data.image_size=8")...)
	small := set("model.layers=1", "model.embedding_size=8", "model.heads=2", "data.sequence_length=8")
	texts := append(append([]string{"--model", "bert_base"}, small...), set("data.vocab_file="+vocab)...)
	lists := append(append([]string{"--model", "gpt2"}, small...), set("data.vocabulary=50")...)
	for name, c := range map[string]struct {
		path string
		args []string
		says string
	}{
		"images of save_to_disk":     {tables + "images_disk", pictures, "evaluation on split test"},
		"images of a cache":          {tables + "cache", pictures, "evaluation on split test"},
		"images of Parquet files":    {tables + "images_parquet", pictures, "evaluation on split data/test"},
		"images of one file":         {tables + "images_snappy.parquet", pictures, "done: 2 steps"},
		"a list of images":           {list, pictures, "done: 2 steps"},
		"labelled texts":             {tables + "texts_parquet", texts, "2 classes: positive, negative"},
		"labelled texts of one part": {tables + "texts_disk", texts, "2 classes: positive, negative"},
		"token lists":                {tables + "tokens_disk", lists, "evaluation on split validation"},
		"token lists of Parquet":     {tables + "tokens.parquet", lists, "done: 2 steps"},
	} {
		args := append(append(append([]string{}, common...), c.args...), "--set", "data.path="+c.path,
			"--experiment-name", strings.ReplaceAll(name, " ", "_"))
		out, err := exec.Command(p.path, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: %v, want %q: %s", name, err, c.says, out)
		}
	}
}

// A run with several labels per image must train, evaluate, predict and resume. It must refuse to mix single and
// several labels.
func TestImagesWithSeveralLabels(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	run := filepath.Join(dir, "flowers")
	image := filepath.Join(dir, "1.png")
	if err := os.WriteFile(image, greyPNG(t, 50), 0o644); err != nil {
		t.Fatal(err)
	}
	train := append([]string{"train", "--model", "simple_cnn", "--dataset", "huggingface", "--output-dir", dir,
		"--experiment-name", "flowers"}, set("device.kind=reference", "data.batch_size=2", "data.image_size=8",
		"model.channels=[2]", "data.val_fraction=0.3", "data.path="+tables+"several_disk")...)
	again := set("data.path=" + tables + "several.parquet")
	other := append([]string{"train", "--model", "simple_cnn", "--dataset", "huggingface", "--output-dir", dir,
		"--experiment-name", "other"}, set("device.kind=reference", "data.batch_size=2", "data.image_size=8",
		"model.channels=[2]", "data.val_fraction=0.3")...)
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{slices.Concat(train, set("train.steps=2")), 0,
			[]string{"3 classes", "label accuracy", "micro F1", "macro F1"}},
		{slices.Concat(train, []string{"--resume", "auto"}, set("train.steps=3")), 0, []string{"done: 3 steps"}},
		{[]string{"eval", run, "--by-class", "--split", "train"}, 0, []string{"micro F1", "label accuracy", "mAP", "rose", "tulip"}},
		{append([]string{"eval", run, "--json"}, again...), 0, []string{`"multi_label":true`, `"samples":6`}},
		{append([]string{"eval", run}, set("data.path="+tables+"images_parquet")...), exit.Usage,
			[]string{"was trained with several labels per image, but the data set has one class per image"}},
		{[]string{"predict", run, image}, 0, []string{"rose", "daisy", "tulip"}},
		// The outputs of the classifier in this file have another meaning.
		{slices.Concat(other, set("train.steps=1", "data.path="+tables+"images_parquet", "model.init_from="+run)), 0,
			[]string{"were trained with several labels per image, and the data set has one class per image"}},
		{slices.Concat(train, set("train.steps=2", `train.class_weights=["balanced"]`)), exit.Usage,
			[]string{"have several labels each, and their loss has no weights of classes"}},
		{slices.Concat(train, set("train.steps=2", "data.max_classes=2")), exit.Usage, []string{"data.max_classes: the images"}},
		{[]string{"data", "inspect", tables + "several_disk"}, 0, []string{"3 classes, any number of them per sample",
			"2 to 3 per class"}},
	} {
		cmd := exec.Command(p.path, c.args...)
		out, _ := cmd.CombinedOutput() // the exit code is checked instead of the error
		text := strings.ReplaceAll(string(out), `": `, `":`)
		if strings.Contains(text, `"top5"`) {
			t.Errorf("%v: the top 5 have no meaning here: %s", c.args, out)
		}
		for _, want := range c.want {
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(text, want) {
				t.Errorf("%v: exit %d, want %d and %q: %s", c.args, code, c.code, want, out)
			}
		}
	}
}

// The test passes files to data sets of another format, and files that need a conversion. The error must name the
// format.
func TestFormatsAreRefusedByName(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	for name, contents := range map[string]string{"a.json": `[{"text": "x"}]`, "a.csv": "text,label\nx,1\n",
		"a.jsonl": `{"text": "x", "label": ["a", "b"]}` + "\n", "a.md": "# text\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(contents), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	own := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct{ model, dataset, path, want string }{
		{"gpt2", "text", tables + "texts_parquet", "hetero-train data tokenize " + tables + "texts_parquet --tokenizer gpt2"},
		{"gpt2", "text", tables + "tokens.parquet", `data.dataset = "huggingface" reads lists of tokens`},
		{"gpt2", "text", own("a.json"), "the file has a JSON array, not token files: python3 -c"},
		{"gpt2", "text", own("a.csv"), "the file has CSV, not token files: python3 -c"},
		{"gpt2", "text", own("a.jsonl"), "hetero-train data tokenize " + own("a.jsonl")},
		{"gpt2", "text", own("a.md"), "the file has text, but data set text reads token files"},
		{"gpt2", "huggingface", tables + "texts_disk", "hetero-train data tokenize " + tables + "texts_disk --field text"},
		{"bert_base", "labelled_text", tables + "texts_disk/data-00000-of-00001.arrow", `set data.dataset = "huggingface"`},
		{"bert_base", "labelled_text", tables + "texts_parquet", `which data.dataset = "huggingface" reads`},
		{"bert_base", "labelled_text", own("a.jsonl"), `"label" is a list`},
		{"bert_base", "huggingface", tables + "tokens_disk", `there is no column "text"; the columns are ["input_ids"]`},
		{"simple_cnn", "images", tables + "images_snappy.parquet", `set data.dataset = "huggingface"`},
		{"simple_cnn", "webdataset", tables + "images_parquet", `which data.dataset = "huggingface" reads`},
		{"simple_cnn", "images", own("a.csv"), `data.dataset = "huggingface" reads lists of images`},
		{"simple_cnn", "huggingface", tables + "texts_disk", "data.image_column: no column has images"},
	} {
		args := append([]string{"train", "--model", c.model, "--dataset", c.dataset, "--output-dir", dir},
			set("device.kind=reference", "data.batch_size=2", "train.steps=2", "data.path="+c.path,
				"data.cache_dir="+filepath.Join(dir, "cache"))...)
		if c.model == "bert_base" {
			words := own("vocab.txt")
			if err := os.WriteFile(words, []byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--set", "data.vocab_file="+words)
		}
		cmd := exec.Command(p.path, args...)
		out, _ := cmd.CombinedOutput() // the exit code is checked instead of the error
		if code := cmd.ProcessState.ExitCode(); code != exit.Data || !strings.Contains(string(out), c.want) {
			t.Errorf("%s on %s of %s: exit %d, want %d and %q: %s", c.model, c.path, c.dataset, code, exit.Data, c.want,
				out)
		}
	}
}
