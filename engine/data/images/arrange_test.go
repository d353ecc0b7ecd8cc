package images

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

func TestArrangementsAreTheSameFromFolderTarAndTarGz(t *testing.T) {
	for _, c := range []struct {
		name        string
		files       []string
		classes     []string
		train, eval []string
		logged      string
	}{
		{"class folders", []string{"b/2.png", "b/1.png", "a/1.JPG", "a/x/deep.jpeg"}, []string{"a", "b"},
			[]string{"a/1.JPG", "a/x/deep.jpeg", "b/1.png", "b/2.png"}, nil, ""},
		{"one folder around", []string{"set-master/a/1.png", "set-master/b/1.png"}, []string{"a", "b"},
			[]string{"set-master/a/1.png", "set-master/b/1.png"}, nil, ""},
		{"train and val", []string{"train/b/1.png", "train/a/1.png", "val/b/9.png"}, []string{"a", "b"},
			[]string{"train/a/1.png", "train/b/1.png"}, []string{"val/b/9.png"}, ""},
		{"train and test around", []string{"set/train/b/1.png", "set/train/a/1.png", "set/test/a/9.png"},
			[]string{"a", "b"},
			[]string{"set/train/a/1.png", "set/train/b/1.png"}, []string{"set/test/a/9.png"}, ""},
		{"val goes before test", []string{"train/a/1.png", "test/a/2.png", "val/a/3.png"}, []string{"a"},
			[]string{"train/a/1.png"}, []string{"val/a/3.png"}, ""},
		{"only train", []string{"train/a/1.png", "train/b/1.png"}, []string{"a", "b"},
			[]string{"train/a/1.png", "train/b/1.png"}, nil, ""},
		{"a class that is called train", []string{"train/1.png", "bus/1.png", "car/1.png"},
			[]string{"bus", "car", "train"},
			[]string{"bus/1.png", "car/1.png", "train/1.png"}, nil, ""},
		{"hidden files", []string{"a/1.png", "a/._1.png", ".git/x/1.png", "__MACOSX/a/1.png", "b/1.png", ".DS_Store",
			"c/.hidden/1.png", "c/1.png"},
			[]string{"a", "b", "c"}, []string{"a/1.png", "b/1.png", "c/1.png"}, nil, ""},
		{"other files are counted", []string{"a/1.png", "b/1.png", "b/notes.txt", "README.md"}, []string{"a", "b"},
			[]string{"a/1.png", "b/1.png"}, nil, "2 files without the ending of an image"},
		{"loose images are counted", []string{"a/1.png", "b/1.png", "logo.png"}, []string{"a", "b"},
			[]string{"a/1.png", "b/1.png"}, nil, "1 images outside class folders"},
		{"images outside of the parts are counted", []string{"train/a/1.png", "val/a/1.png", "extra/a/1.png"},
			[]string{"a"},
			[]string{"train/a/1.png"}, []string{"val/a/1.png"}, "1 images outside the parts (train/, val/)"},
		{"words of any case", []string{"Training/a/1.png", "Testing/a/2.png", "Training/b/1.png"}, []string{"a", "b"},
			[]string{"Training/a/1.png", "Training/b/1.png"}, []string{"Testing/a/2.png"}, ""},
		{"valid goes before test", []string{"train/a/1.png", "test/a/2.png", "valid/a/3.png"}, []string{"a"},
			[]string{"train/a/1.png"}, []string{"valid/a/3.png"}, ""},
		{"words anywhere", []string{"flowers_train/a/1.png", "flowers-DEV/a/2.png"}, []string{"a"},
			[]string{"flowers_train/a/1.png"}, []string{"flowers-DEV/a/2.png"}, ""},
		{"a digit ends a word", []string{"train2017/a/1.png", "val2017/a/2.png"}, []string{"a"},
			[]string{"train2017/a/1.png"}, []string{"val2017/a/2.png"}, ""},
		{"classes with words of parts", []string{"bullet train/1.png", "valid/1.png", "invalid/1.png"},
			[]string{"bullet train", "invalid", "valid"},
			[]string{"bullet train/1.png", "invalid/1.png", "valid/1.png"}, nil, ""},
		{"folders of storage systems", []string{"a/1.png", "a/@eaDir/1.png/thumb.png", "b/1.png", "lost+found/1.png",
			"b/.ipynb_checkpoints/1.png", "#recycle/c/1.png"}, []string{"a", "b"},
			[]string{"a/1.png", "b/1.png"}, nil, ""},
	} {
		for kind, make := range map[string]func(tree, testing.TB) string{
			"folder": tree.folder, "tar": tree.tar, "tar.gz": tree.tarGz} {
			t.Run(c.name+" in a "+kind, func(t *testing.T) {
				s, log, err := open(t, Options{Path: make(named(t, c.files...), t)})
				if err != nil {
					t.Fatal(err)
				}
				if got := s.Train.Classes(); !slices.Equal(got, c.classes) {
					t.Fatalf("classes %q, want %q", got, c.classes)
				}
				if got, want := list(t, s.Train), wanted(c.classes, c.train...); !slices.Equal(got, want) {
					t.Errorf("train: got %q, want %q", got, want)
				}
				if got, want := list(t, s.Eval), wanted(c.classes, c.eval...); !slices.Equal(got, want) {
					t.Errorf("eval: got %q, want %q", got, want)
				}
				if c.logged == "" && strings.Contains(log.String(), "skipped") ||
					!strings.Contains(log.String(), c.logged) {
					t.Errorf("logged %q, want %q", log, c.logged)
				}
			})
		}
	}
}

func TestWrongArrangementsAreFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		want  string
	}{
		{"nothing", []string{"a/"}, "no image files (.jpg, .jpeg, .png, .ppm"},
		{"AVIF", []string{"a/1.png", "a/2.avif", "b/3.AVIF"},
			`class folder "b" has no other images: "b/3.AVIF": the program does not read AVIF: convert the images with avifdec IN.avif`},
		{"GIF", []string{"a/1.png", "b/2.gif"}, `class folder "b" has no other images: "b/2.gif": class folders use no .gif files`},
		{"a class for evaluation", []string{"train/a/1.png", "train/b/2.png", "val/a/3.png", "val/b/4.heic"},
			`class folder "val/b" has no other images: "val/b/4.heic": the program does not read HEIC`},
		{"no class folders", []string{"1.png", "2.png"}, "no class folders with images"},
		{"no train", []string{"val/a/1.png"}, "contains val/, but no folder with classes that names the training part"},
		{"empty class", []string{"a/1.png", "b/", "c/1.png"}, `class folder "b" has no image`},
		{"empty class in train", []string{"train/a/1.png", "train/b/", "val/a/1.png"},
			`class folder "train/b" has no image`},
		{"class only in val", []string{"train/a/1.png", "val/b/1.png"},
			`class folder "val/b" is not in the training part`},
		{"two folders of one part", []string{"train/a/1.png", "val/a/1.png", "validation/a/1.png"},
			`"val" and "validation" both name part validation`},
		{"two parts in one name", []string{"train/a/1.png", "val_test/a/1.png"}, `"val_test" has words of two parts`},
		{"parts without classes", []string{"train/1.png", "test/1.png"},
			`"test" names a part, but has no class folders`},
		{"parts without classes next to a folder", []string{"train/1.png", "test/1.png", "samples/1.png"},
			"names a part, but has no class folders"},
		{"a part or a class", []string{"bullet train/fast/1.png", "car/red/1.png"},
			`the folder "bullet train" may be a part or a class`},
		{"flat val", []string{"train/a/1.png", "val/1.png", "val/2.png"},
			"val/ has 2 images, but neither class folders nor a list of classes"},
		{"flat test around", []string{"set/train/a/1.png", "set/test/1.png"},
			"set/test/ has 1 images, but neither class folders nor a list of classes"},
		{"flat val next to a test of classes", []string{"train/a/1.png", "val/1.png", "test/a/1.png"},
			"val/ has 1 images, but neither class folders nor a list of classes"},
	} {
		for kind, make := range map[string]func(tree, testing.TB) string{"folder": tree.folder, "tar": tree.tar} {
			_, _, err := open(t, Options{Path: make(named(t, c.files...), t)})
			var fault *data.Fault
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) || fault.Advice != layoutAdvice {
				t.Errorf("%s in a %s: got %v, want a Fault with %q and the layouts", c.name, kind, err, c.want)
			}
		}
	}
}

func TestTheOriginOfTheEvaluationPart(t *testing.T) {
	for _, c := range []struct{ files, from, unused string }{
		{"a/1.png a/2.png b/1.png", "", ""},
		{"train/a/1.png val/a/1.png", "part validation, val/", ""},
		{"set/Training/a/1.png set/Testing/a/1.png", "part test, set/Testing/", ""},
		{"train/a/1.png valid/a/1.png test/a/1.png", "part validation, valid/", "test/"},
	} {
		s, _, err := open(t, Options{Path: named(t, strings.Fields(c.files)...).folder(t), ValFraction: 0.5})
		if err != nil {
			t.Fatal(err)
		}
		if s.EvalFrom != c.from || s.Unused != c.unused || s.OwnEval != (c.from != "") {
			t.Errorf("%s: got %q, %q, %v, want %q, %q", c.files, s.EvalFrom, s.Unused, s.OwnEval, c.from, c.unused)
		}
	}
}

// If the folder has no parts, an evaluation with All must use all samples.
func TestAFolderForEvaluationOnly(t *testing.T) {
	for _, c := range []struct{ files, eval, from string }{
		{"a/1.png a/2.png b/1.png", "a/1.png a/2.png b/1.png", "all samples"},
		{"set/a/1.png set/b/2.png", "set/a/1.png set/b/2.png", "all samples"},
		{"train/a/1.png train/b/1.png val/b/2.png test/a/3.png", "val/b/2.png", "part validation, val/"},
		{"train/a/1.png train/b/1.png test/a/3.png", "test/a/3.png", "part test, test/"},
		{"train/a/1.png train/b/1.png", "train/a/1.png train/b/1.png", "part train, train/"},
		{"test/a/1.png test/b/1.png", "test/a/1.png test/b/1.png", "part test, test/"},
		{"test/1.png", "", `"test" names a part, but has no class folders`},
	} {
		s, _, err := open(t, Options{Path: named(t, strings.Fields(c.files)...).folder(t), ValFraction: 0.5, All: true})
		if c.eval == "" {
			if err == nil || !strings.Contains(err.Error(), c.from) {
				t.Errorf("%s: got %v, want %q", c.files, err, c.from)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, want := list(t, s.Eval), wanted([]string{"a", "b"}, strings.Fields(c.eval)...); !slices.Equal(got,
			want) || s.EvalFrom != c.from {
			t.Errorf("%s: got %q from %q, want %q from %q", c.files, got, s.EvalFrom, want, c.from)
		}
	}
}

func TestValPathHasTheEvaluationPart(t *testing.T) {
	for _, c := range []struct{ path, val, train, eval, want string }{
		{"a/1.png b/1.png", "a/7.png", "a/1.png b/1.png", "a/7.png", ""},
		{"train/a/1.png train/b/1.png val/a/2.png", "set/b/7.png", "train/a/1.png train/b/1.png", "set/b/7.png", ""},
		{"a/1.png b/1.png", "val/a/7.png", "", "", "data.val_path: the folder has parts, val/"},
		{"a/1.png b/1.png", "c/7.png", "", "", `class folder "c" is not in the training part`},
		{"a/1.png b/1.png", "7.png", "", "", "neither class folders nor a list of classes"},
	} {
		for kind, make := range map[string]func(tree, testing.TB) string{"folder": tree.folder, "tar": tree.tar} {
			s, _, err := open(t, Options{Path: make(named(t, strings.Fields(c.path)...), t),
				ValPath: make(named(t, strings.Fields(c.val)...), t), ValFraction: 0.5})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s and %s: got %v, want %q", c.path, c.val, err, c.want)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			classes := []string{"a", "b"}
			if got, want := list(t, s.Train), wanted(classes, strings.Fields(c.train)...); !slices.Equal(got, want) {
				t.Errorf("%s, %s: train: got %q, want %q", kind, c.path, got, want)
			}
			if got, want := list(t, s.Eval), wanted(classes, strings.Fields(c.eval)...); !slices.Equal(got, want) ||
				!s.OwnEval {
				t.Errorf("%s, %s: eval: got %q, want %q", kind, c.path, got, want)
			}
		}
	}
}

func TestANameThatAppearsTwiceIsAFault(t *testing.T) {
	var l listing
	for _, name := range []string{"a/1.png", "b/1.png", "a/1.png"} {
		l.addName(name)
	}
	_, err := arrange(l, 0)
	if err == nil || !strings.Contains(err.Error(), `"a/1.png" appears twice`) {
		t.Errorf("got %v", err)
	}
}

func TestHeldOutPartIsBalancedDisjointAndStable(t *testing.T) {
	var l listing
	for c, n := range []int{100, 50, 10, 2, 1} {
		for i := range n {
			l.add(file{name: fmt.Sprintf("class%d/%04d.png", c, i)})
		}
	}
	a, err := arrange(l, 0.2)
	if err != nil {
		t.Fatal(err)
	}
	count := func(s []sample) (n [5]int) {
		for _, v := range s {
			n[v.label]++
		}
		return n
	}
	if got, want := count(a.eval), [5]int{20, 10, 2, 1, 0}; got != want {
		t.Errorf("held out %v, want %v", got, want)
	}
	if got, want := count(a.train), [5]int{80, 40, 8, 1, 1}; got != want {
		t.Errorf("left %v, want %v", got, want)
	}
	seen := map[int32]bool{}
	for _, s := range append(slices.Clone(a.train), a.eval...) {
		if seen[s.file] {
			t.Fatalf("file %d is in both parts", s.file)
		}
		seen[s.file] = true
	}
	// Neither the order of the files nor a further enclosing folder may change which files are held out.
	var wrapped listing
	for i := l.len() - 1; i >= 0; i-- {
		wrapped.add(file{name: "around/" + l.name(int32(i))})
	}
	b, err := arrange(wrapped, 0.2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range a.eval {
		if x, y := l.name(a.eval[i].file), wrapped.name(b.eval[i].file); "around/"+x != y {
			t.Fatalf("sample %d: %s, and %s with a folder around", i, x, y)
		}
	}
	// The held-out files must be spread over the files of the class. They must not be only the first or the last ones.
	early := 0
	for _, s := range a.eval[:20] {
		if s.file < 50 {
			early++
		}
	}
	if early < 3 || early > 17 {
		t.Errorf("%d of 20 held-out files lie in the first half", early)
	}
}

func TestFractionOutOfRangeIsAnErrorOfTheOptions(t *testing.T) {
	for _, f := range []float64{-0.1, 0.95} {
		_, _, err := open(t, Options{Path: t.TempDir(), ValFraction: f})
		var fault *data.Fault
		if err == nil || errors.As(err, &fault) {
			t.Errorf("%g: got %v", f, err)
		}
	}
}

// Files of formats that this program does not read must not stop a run. torchvision's ImageFolder also ignores them.
func TestFilesOfOtherFormatsInClassFolders(t *testing.T) {
	names := []string{"a/1.webp", "a/2.avif", "b/3.webp", "b/4.gif", "b/5.PGM", "metadata.csv", "a/6.heic", "notes.jxl"}
	tr := named(t, names...)
	for _, path := range []string{tr.folder(t), tr.tar(t)} {
		s, log, err := open(t, Options{Path: path})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		want := wanted([]string{"a", "b"}, "a/1.webp", "b/3.webp", "b/5.PGM")
		if got := list(t, s.Train); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
		for _, want := range []string{"4 images were skipped, such as", "1 files without the ending of an image"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s: logged %q, want %q", path, log.String(), want)
			}
		}
	}
	folder := tr.folder(t)
	found, note, err := List(context.Background(), folder, true)
	if err != nil || len(found) != 4 || !strings.Contains(note, "3 images were skipped") {
		t.Errorf("predict: got %v, %q, %v, want 4 images, also the GIF", found, note, err)
	}
	if _, _, err := List(context.Background(), named(t, "1.avif").folder(t), true); err == nil ||
		!strings.Contains(err.Error(), "does not read AVIF") {
		t.Errorf("only AVIF: got %v", err)
	}
}
