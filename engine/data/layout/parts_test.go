package layout

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestPartOf(t *testing.T) {
	for name, want := range map[string]Part{
		"train": Train, "Training": Train, "TRAIN-000000.tar": Train, "fineweb_train_000001.bin": Train,
		"train2017": Train, "x.train.tar.gz": Train,
		"val": Validation, "valid": Validation, "Validation": Validation, "dev.tsv": Validation, "val2017": Validation,
		"imagenet1k-validation-00.tar": Validation, "my_data.valid-003.tar": Validation,
		"ILSVRC2012_img_val.tar": Validation,
		"test":                   Test, "Testing": Test, "eval-00.tar": Test, "test_batch": Test,
		"train-training": Train,
		"":               None, "trainer": None, "trainval": None, "interval.bin": None, "constrained.bin": None,
		"contest": None,
		"invalid": None, "device": None, "évaltest": None,
	} {
		if got, err := PartOf(name); got != want || err != nil {
			t.Errorf("%q: got %v, %v, want %v", name, got, err, want)
		}
	}
	for _, name := range []string{"train-val.tar", "train_test_split", "dev/test", "Training Validation"} {
		if got, err := PartOf(name); !errors.Is(err, ErrNames) ||
			!strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%q: got %v, %v, want an error with the name", name, got, err)
		}
	}
}

func TestExact(t *testing.T) {
	for name, want := range map[string]bool{"test": true, "Val2017": true, "_train": true, "bullet train": false,
		"x_test": false, "cat": false, "": false, "train.tar": false} {
		if got := Exact(name); got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
}

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		name, files string // separated by spaces
		want        string // train | evaluation | unused; or an error
	}{
		{"no parts", "a.tar b.tar", "a.tar b.tar |  | "},
		{"three parts", "x-test-0.tar x-train-0.tar x-train-1.tar x-val-0.tar",
			"x-train-0.tar x-train-1.tar | x-val-0.tar | x-test-0.tar"},
		{"validation is any word", "train-0.tar imagenet1k-validation-00.tar",
			"train-0.tar | imagenet1k-validation-00.tar | "},
		{"without validation, test evaluates", "Training.bin TESTING.bin", "Training.bin | TESTING.bin | "},
		{"only train", "train-0.tar", "train-0.tar |  | "},
		{"the rest trains", "a.tar b.tar dev.tar", "a.tar b.tar | dev.tar | "},
		{"only evaluation", "val-0.tar", " | val-0.tar | "},
		{"folders", "train/test-1.txt valid/a.txt", "train/test-1.txt | valid/a.txt | "},
		{"a file without a part", "train.tar extra.tar", `"extra.tar" names no part, but "train.tar" names part train`},
		{"two parts in one name", "train.tar train-val.tar",
			`"train-val.tar" has words of two parts, "train" (train) and "val" (validation)`},
	} {
		files := strings.Fields(c.files)
		d, err := Divide(files)
		if err != nil {
			if !errors.Is(err, ErrNames) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
			continue
		}
		named := func(index []int) string {
			var s []string
			for _, i := range index {
				s = append(s, files[i])
			}
			return strings.Join(s, " ")
		}
		if got := strings.Join([]string{named(d.Train), named(d.Eval), named(d.Unused)}, " | "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if (d.Part == None) != (len(d.Eval) == 0) || d.Named == (c.name == "no parts") {
			t.Errorf("%s: got part %v, named %v", c.name, d.Part, d.Named)
		}
	}
}

func TestFolders(t *testing.T) {
	got, err := Folders([]string{"set/Training", "set/Testing", "set/extra"})
	if err != nil || len(got) != 2 || got[Train] != "set/Training" || got[Test] != "set/Testing" {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = Folders([]string{"val", "validation"})
	if !errors.Is(err, ErrNames) || !strings.Contains(err.Error(), `"val" and "validation" both name part validation`) {
		t.Errorf("got %v", err)
	}
}

func TestSystemNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a/@eaDir/x.jpg": true, ".git": true, "cat/.ipynb_checkpoints/1.jpg": true, "__MACOSX/a": true,
		"lost+found": true, "$RECYCLE.BIN": true, "a//b": true, "._1.jpg": true,
		"~snapshot/a.jpg": true, "@tmp/a.jpg": true,
		"cat": false, "a/b.c": false, "found": false, "__init__": false,
	} {
		if got := System(name); got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
}
