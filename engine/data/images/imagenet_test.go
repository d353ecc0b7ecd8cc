package images

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// official writes small versions of ImageNet's archives. They contain three classes of four images, and three
// validation images.
func official(t *testing.T) (dir string, colours map[string][3]byte) {
	t.Helper()
	dir = t.TempDir()
	colours = map[string][3]byte{}
	picture := func(name string) string {
		c := colorOf(name)
		colours[name] = [3]byte{c.R, c.G, c.B}
		return pngOf(t, plain(3, 2, c))
	}
	outer := tree{}
	for _, class := range []string{"n01440764", "n01443537", "n02119789"} {
		inner := tree{}
		for _, k := range []string{"1", "2", "3", "4"} {
			name := class + "_" + k + ".JPEG" // ImageNet contains some PNG files with this extension
			inner[name] = picture(name)
		}
		b, err := os.ReadFile(inner.tar(t))
		if err != nil {
			t.Fatal(err)
		}
		outer[class+".tar"] = string(b)
	}
	rename(t, outer.tar(t), filepath.Join(dir, "ILSVRC2012_img_train.tar"))
	val := tree{}
	for _, k := range []string{"1", "2", "3"} {
		name := "ILSVRC2012_val_" + k + ".JPEG"
		val[name] = picture(name)
	}
	rename(t, val.tar(t), filepath.Join(dir, "ILSVRC2012_img_val.tar"))
	return dir, colours
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const solution = "ImageId,PredictionString\nILSVRC2012_val_2,n01443537 1 2 3 4 n01443537 5 6 7 8 \nILSVRC2012_val_1,n02119789 1 2 3 4\nILSVRC2012_val_3,n01440764 0 0 1 1\n"

func TestOfficialArchivesOfImageNet(t *testing.T) {
	for name, list := range map[string][2]string{"Kaggle": {"LOC_val_solution.csv", solution},
		"Caffe": {"val.txt", "ILSVRC2012_val_1.JPEG 2\nILSVRC2012_val_2.JPEG 1\nILSVRC2012_val_3.JPEG 0\n"}} {
		dir, colours := official(t)
		writeText(t, filepath.Join(dir, list[0]), list[1])
		writeText(t, filepath.Join(dir, "LOC_synset_mapping.txt"),
			"n01440764 tench, Tinca tinca\nn01443537 goldfish\nn02119789 kit fox\n")
		s, log, err := open(t, Options{Path: dir, ValFraction: 0.5})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := strings.Join(s.Train.Classes(), "|"); s.Train.Len() != 12 || s.Eval.Len() != 3 ||
			got != "n01440764 tench, Tinca tinca|n01443537 goldfish|n02119789 kit fox" {
			t.Errorf("%s: %d and %d samples of %s", name, s.Train.Len(), s.Eval.Len(), got)
		}
		if strings.Contains(log.String(), "WARN") && !strings.Contains(log.String(), "decoded in Go") {
			t.Errorf("%s: warned: %s", name, log)
		}
		// Samples are sorted by class, then by name. The last training image is n02119789_4. The first validation image
		// is val_3.
		for want, at := range map[string]struct {
			ds    data.Dataset
			i     int
			label int
		}{"n01440764_2.JPEG": {s.Train, 1, 0}, "n02119789_4.JPEG": {s.Train, 11, 2}, "ILSVRC2012_val_3.JPEG": {
			s.Eval, 0, 0}, "ILSVRC2012_val_2.JPEG": {s.Eval, 1, 1}, "ILSVRC2012_val_1.JPEG": {s.Eval, 2, 2}} {
			img, err := read(at.ds, at.i, nil)
			if err != nil || [3]byte(img.Pix[:3]) != colours[want] || at.ds.Label(at.i) != at.label {
				t.Errorf("%s: %s: got colour %v, want %v; label %d, want %d; %v", name, want, img.Pix[:3],
					colours[want], at.ds.Label(at.i), at.label, err)
			}
		}
	}
}

func TestTheTrainTarAloneIsCut(t *testing.T) {
	dir, _ := official(t)
	s, _, err := open(t, Options{Path: filepath.Join(dir, "ILSVRC2012_img_train.tar"), ValFraction: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	if s.Train.Len() != 9 || s.Eval.Len() != 3 || s.Train.Classes()[1] != "n01443537" {
		t.Errorf("%d and %d samples of %q, want 9 and 3 of three folders", s.Train.Len(), s.Eval.Len(),
			s.Train.Classes())
	}
}

func TestArchivesOfImageNetAreFoundByTheRuleForNames(t *testing.T) {
	dir, _ := official(t)
	rename(t, filepath.Join(dir, "ILSVRC2012_img_train.tar"), filepath.Join(dir, "imagenet-Training.tar"))
	rename(t, filepath.Join(dir, "ILSVRC2012_img_val.tar"), filepath.Join(dir, "imagenet-validation.tar"))
	writeText(t, filepath.Join(dir, "LOC_val_solution.csv"), solution)
	s, _, err := open(t, Options{Path: dir})
	if err != nil || s.Train.Len() != 12 || s.Eval.Len() != 3 {
		t.Fatalf("got %v", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "imagenet-validation.tar"))
	if err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(dir, "val.tar"), string(text))
	if _, _, err := open(t, Options{Path: dir}); err == nil ||
		!strings.Contains(err.Error(), `"imagenet-validation.tar" and "val.tar" both name part validation`) {
		t.Errorf("two archives of a part: got %v", err)
	}
}

// train.tar contains the class folders that are next to it. It must not count as an archive of ImageNet.
func TestATarNextToItsFoldersIsIgnored(t *testing.T) {
	tr := named(t, "train/a/1.png", "val/a/1.png")
	dir := tr.folder(t)
	rename(t, tr.tar(t), filepath.Join(dir, "train.tar"))
	if s, _, err := open(t, Options{Path: dir}); err != nil || s.Train.Len() != 1 || s.Eval.Len() != 1 {
		t.Errorf("got %v", err)
	}
}

func TestAListNextToValidationImagesIsFound(t *testing.T) {
	dir := named(t, "Train/n01/a.png", "Train/n02/b.png", "Valid/x.png", "Valid/y.png").folder(t)
	writeText(t, filepath.Join(dir, "Valid", "val.txt"), "x.png n02\ny.png 0\n")
	s, _, err := open(t, Options{Path: dir})
	if err != nil || s.Train.Len() != 2 || s.Eval.Len() != 2 || s.EvalFrom != "part validation, Valid/" {
		t.Errorf("got %q, %v", s.EvalFrom, err)
	}
}

func TestKagglesFolderIsRead(t *testing.T) {
	tr := named(t, "ILSVRC/Data/CLS-LOC/train/n01440764/a.JPEG", "ILSVRC/Data/CLS-LOC/train/n01443537/b.JPEG",
		"ILSVRC/Data/CLS-LOC/val/ILSVRC2012_val_2.JPEG",
		"ILSVRC/Data/CLS-LOC/val/ILSVRC2012_val_3.JPEG")
	dir := tr.folder(t)
	writeText(t, filepath.Join(dir, "LOC_val_solution.csv"), solution)
	s, _, err := open(t, Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	if s.Train.Len() != 2 || s.Eval.Len() != 2 || s.Eval.Label(0) != 0 || s.Eval.Label(1) != 1 {
		t.Errorf("%d and %d samples", s.Train.Len(), s.Eval.Len())
	}
}

func TestListsOfImageNetAreChecked(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"no list":          {"", "", "one of the files LOC_val_solution.csv"},
		"an image missing": {"val.txt", "ILSVRC2012_val_1.JPEG 0\n", "has no entry for"},
		"an unknown class": {"val.txt", "ILSVRC2012_val_1.JPEG 3\nILSVRC2012_val_2.JPEG 0\nILSVRC2012_val_3.JPEG 0\n",
			`class "3"`},
		"no class":          {"val.txt", "ILSVRC2012_val_1.JPEG\n", "line 1"},
		"control character": {"val.txt", "ILSVRC2012_val_1.JPEG \x1b[2J\n", "not plain text"},
	} {
		dir, _ := official(t)
		if c.file != "" {
			writeText(t, filepath.Join(dir, c.file), c.text)
		}
		if _, _, err := open(t, Options{Path: dir}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	dir, _ := official(t)
	names := filepath.Join(dir, "names")
	writeText(t, names, "n01440764 tench\n")
	if _, _, err := open(t, Options{Path: filepath.Join(dir, "ILSVRC2012_img_train.tar"),
		ClassNames: names}); err == nil || !strings.Contains(err.Error(), "n01443537") {
		t.Errorf("a list of names that lacks a class: got %v", err)
	}
}

func TestAClassTarThatIsCutIsDamage(t *testing.T) {
	dir, _ := official(t)
	path := filepath.Join(dir, "ILSVRC2012_img_train.tar")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(t, Options{Path: path}); err == nil {
		t.Error("cut to half: no error")
	}
}

func TestAListThatIsTooLongIsAnError(t *testing.T) {
	for text, want := range map[string]bool{"a 1\nb 2\n": true, "a 1\nb 2\nc": false, "a 1\nb 2\nc 3\nd 4\n": false} {
		n := 0
		err := eachLineOf(strings.NewReader(text), "list", 8, func(string) error { n++; return nil })
		if want && (err != nil || n != 2) ||
			!want && (err == nil || !strings.Contains(err.Error(), "list: want a list of at most 8 bytes")) {
			t.Errorf("%q: %d lines, %v", text, n, err)
		}
	}
}

func TestListsMayHaveTabs(t *testing.T) {
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, "val.txt"), "val/a.JPEG\tn02\nb.JPEG \t 7\nc.JPEG,n01 1 2 3 4\n")
	labels, err := readValLabels(filepath.Join(dir, "val.txt"))
	if err != nil || labels["a"] != "n02" || labels["b"] != "7" || labels["c"] != "n01" || len(labels) != 3 {
		t.Errorf("got %q, %v", labels, err)
	}
	writeText(t, filepath.Join(dir, "names"), "n01\ttench\n")
	if names, err := ReadClassNames(filepath.Join(dir, "names")); err != nil || names[0].Folder != "n01" {
		t.Errorf("got %q, %v", names, err)
	}
}
