package webdataset

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data/datatest"
)

func TestShardsAreDividedByTheirNames(t *testing.T) {
	for _, c := range []struct {
		name, files string
		path, val   string // paths relative to the folder of the files
		want        string // train | eval | origin of eval | unused; or an error
		all         string // the same with Options.All; "": not tested
	}{
		{"no parts", "a.tar b.tar.gz", "", "", "a.tar b.tar.gz |  |  | ", "a.tar b.tar.gz |  | all samples | "},
		{"train and val", "train-0.tar train-1.tar val-0.tar", "", "",
			"train-0.tar train-1.tar | val-0.tar | part validation, val-0.tar | ",
			"train-0.tar train-1.tar | val-0.tar | part validation, val-0.tar | "},
		{"words anywhere", "imagenet1k-train-0000.tar imagenet1k-validation-00.tar", "", "", "imagenet1k-train-0000.tar | imagenet1k-validation-00.tar | part validation, imagenet1k-validation-00.tar | ",
			""},
		{"validation and test", "TRAIN.tar x-test.tar x-valid.tar", "", "",
			"TRAIN.tar | x-valid.tar | part validation, x-valid.tar | x-test.tar", ""},
		{"test without validation", "train.tar Testing-00.tar Testing-01.tar", "", "",
			"train.tar | Testing-00.tar Testing-01.tar | part test, Testing-00.tar to Testing-01.tar (2 shards) | ",
			""},
		{"folders", "Training/0.tar valid/0.tar test/0.tar @eaDir/0.tar", "", "",
			"Training/0.tar | valid/0.tar | part validation, valid/0.tar | test/0.tar", ""},
		{"the rest trains", "00.tar 01.tar dev.tar", "", "", "00.tar 01.tar | dev.tar | part validation, dev.tar | ",
			""},
		{"only evaluation", "val-0.tar val-1.tar", "", "", "!no shard names the training part",
			"val-0.tar val-1.tar |  | part validation, val-0.tar to val-1.tar (2 shards) | "},
		{"a shard without a part", "train.tar extra.tar", "", "", `!"extra.tar" names no part`, ""},
		{"two parts in a name", "train.tar train-val.tar", "", "", `!"train-val.tar" has words of two parts`, ""},
		{"two folders of one part", "train/0.tar val/0.tar dev/0.tar", "", "",
			`!"dev" and "val" both name part validation`, ""},
		{"a folder and a shard", "train/0.tar 1.tar", "", "", `!"1.tar" names no part`, ""},
		{"one shard of two parts, named", "train-val.tar", "train-val.tar", "", "train-val.tar |  |  | ", ""},
		{"a pattern of one part", "val-0.tar val-1.tar", "val-{0..1}.tar", "", "val-0.tar val-1.tar |  |  | ", ""},
		{"a pattern of two parts", "train-0.tar val-0.tar", "{train,val}-0.tar", "",
			"train-0.tar | val-0.tar | part validation, val-0.tar | ", ""},
		{"a list of folders", "train/0.tar val/0.tar", "{train,val}/0.tar", "",
			"train/0.tar | val/0.tar | part validation, val/0.tar | ", ""},
		{"val_path", "train-0.tar val-0.tar other-0.tar", "train-0.tar", "val-0.tar",
			"train-0.tar | val-0.tar | all samples of DIR/val-0.tar | ", ""},
		{"val_path instead of a part", "a/train-0.tar a/val-0.tar b/val-0.tar", "a", "b",
			"a/train-0.tar | b/val-0.tar | all samples of DIR/b | val-0.tar", ""},
		{"val_path with parts", "a/train-0.tar b/train-0.tar b/val-0.tar", "a", "b",
			"!data.val_path: the shards have parts", ""},
	} {
		dir := datatest.Plant(t, strings.Fields(c.files)...)
		show := func(list []string) string {
			return strings.ReplaceAll(strings.Join(list, " "), dir+"/", "")
		}
		o := Options{Path: filepath.Join(dir, c.path)}
		if c.val != "" {
			o.ValPath = filepath.Join(dir, c.val)
		}
		for all, want := range map[bool]string{false: c.want, true: c.all} {
			if want == "" {
				continue
			}
			o.All = all
			s, err := o.find(t.Context())
			wrong, fails := strings.CutPrefix(want, "!")
			got := strings.Join([]string{show(s.train), show(s.eval), strings.ReplaceAll(s.evalFrom, dir, "DIR"),
				strings.ReplaceAll(s.unused, dir, "DIR")}, " | ")
			if fails && (err == nil || !strings.Contains(err.Error(), wrong)) || !fails && (err != nil || got != want) {
				t.Errorf("%s, all = %v: got %q, %v, want %q", c.name, all, got, err, want)
			}
		}
	}
}

func TestLinksToShards(t *testing.T) {
	for _, c := range []struct{ name, files, want, kept string }{
		{"a link to a shard", "blobs/x in/a.tar->../blobs/x", "in/a.tar",
			"!the link \"a.tar\" leads out of the folder"},
		{"a link to a part", "blobs/0.tar in/val.tar in/train->../blobs", "in/train/0.tar in/val.tar",
			"!data.follow_links"},
		{"within", "in/a.tar in/b.tar->a.tar", "in/a.tar in/b.tar", "in/a.tar in/b.tar"},
		{"broken", "in/a.tar in/b.tar->none", "!\"b.tar\" is broken", "!\"b.tar\" is broken"},
	} {
		dir := datatest.Plant(t, strings.Fields(c.files)...)
		for follow, want := range map[bool]string{true: c.want, false: c.kept} {
			got, err := Expand(t.Context(), filepath.Join(dir, "in"), follow)
			text := strings.ReplaceAll(strings.Join(got, " "), dir+"/", "")
			wrong, fails := strings.CutPrefix(want, "!")
			if fails && (err == nil || !strings.Contains(err.Error(), wrong)) ||
				!fails && (err != nil || text != want) {
				t.Errorf("%s, follow = %v: got %q, %v, want %q", c.name, follow, text, err, want)
			}
		}
	}
}

// Training must not use the shards of the validation part. If a folder has no parts, an evaluation may use all samples.
func TestTheValidationPartDoesNotTrain(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "set-train-0.tar", tarOf(t, samples(0, 6)))
	write(t, dir, "set-validation-0.tar", tarOf(t, samples(6, 4)))
	s, err := quiet(t, Options{Path: dir, ValFraction: 0.5})
	if err != nil || s.Train.Len() != 6 || s.Eval.Len() != 4 || !s.OwnEval {
		t.Fatalf("got %v", err)
	}
	dir = t.TempDir()
	write(t, dir, "a.tar", tarOf(t, samples(0, 10)))
	s, err = quiet(t, Options{Path: dir, ValFraction: 0.5, All: true})
	if err != nil || s.Eval.Len() != 10 || !s.OwnEval {
		t.Errorf("all of a folder: got %v", err)
	}
	if s, err = quiet(t, Options{Path: dir, ValFraction: 0.5}); err != nil || s.OwnEval ||
		s.Train.Len()+s.Eval.Len() != 10 {
		t.Errorf("a fraction of a folder: got %v", err)
	}
}
