package tokens

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTokenFilesAreDividedByTheirNames(t *testing.T) {
	for _, c := range []struct{ name, files, path, want string }{ // want: train | eval | origin of eval | unused
		{"nanoGPT", "train.bin val.bin meta.pkl", "", "train.bin | val.bin | part validation, val.bin | "},
		{"llm.c", "fineweb_train_000001.bin fineweb_train_000002.bin fineweb_val_000000.bin", "", "fineweb_train_000001.bin fineweb_train_000002.bin | fineweb_val_000000.bin | part validation, fineweb_val_000000.bin | "},
		{"words", "Training.bin x-validation-0.bin x-validation-1.bin", "", "Training.bin | x-validation-0.bin x-validation-1.bin | part validation, x-validation-0.bin to x-validation-1.bin (2 shards) | "},
		{"test", "train.bin test.bin", "", "train.bin | test.bin | part test, test.bin | "},
		{"three", "train.bin dev.bin test.bin", "", "train.bin | dev.bin | part validation, dev.bin | test.bin"},
		{"only evaluation", "val.bin", "", " | val.bin | part validation, val.bin | "},
		{"parts of words", "constrained.bin interval.bin", "", "!no files whose names contain train or val"},
		{"a file without a part", "train.bin extra.bin", "", `!"extra.bin" names no part`},
		{"CIFAR-10", "data_batch_1.bin test_batch.bin", "", `!"data_batch_1.bin" names no part`},
		{"two parts", "train.bin trainval.bin train_val.bin", "", `!"train_val.bin" has words of two parts`},
		{"a pattern of one part", "val-0.bin val-1.bin", "*.bin", "val-0.bin val-1.bin |  |  | "},
		{"a pattern of two parts", "train-0.bin val-0.bin", "*.bin",
			"train-0.bin | val-0.bin | part validation, val-0.bin | "},
		{"a file", "train_val.bin", "train_val.bin", "train_val.bin |  |  | "},
	} {
		dir := t.TempDir()
		for _, name := range strings.Fields(c.files) {
			must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
		}
		f, err := Find(filepath.Join(dir, c.path), true)
		show := func(list []string) string { return strings.ReplaceAll(strings.Join(list, " "), dir+"/", "") }
		got := strings.Join([]string{show(f.Train), show(f.Eval), f.EvalFrom, f.Unused}, " | ")
		wrong, fails := strings.CutPrefix(c.want, "!")
		if fails && (err == nil || !strings.Contains(err.Error(), wrong)) || !fails && (err != nil || got != c.want) {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestLinksToTokenFiles(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "in"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "blob"), nil, 0o644))
	must(t, os.Symlink("../blob", filepath.Join(dir, "in", "train.bin")))
	if f, err := Find(filepath.Join(dir, "in"), true); err != nil || len(f.Train) != 1 {
		t.Errorf("got %v, %v", f, err)
	}
	if _, err := Find(filepath.Join(dir, "in"), false); err == nil ||
		!strings.Contains(err.Error(), "data.follow_links") {
		t.Errorf("got %v", err)
	}
}
