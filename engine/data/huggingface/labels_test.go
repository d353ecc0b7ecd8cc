package huggingface

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// plant writes files. A file .png becomes an image whose width is the first digit of its name.
func plant(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, contents := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".png") {
			err = png.Encode(out, image.NewGray(image.Rect(0, 0, int(filepath.Base(name)[0]-'0'), 3)))
		} else {
			_, err = out.WriteString(contents)
		}
		if err := errors.Join(err, out.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// opened opens a data set and a reader of its training part.
func opened(t testing.TB, o Options) (data.Splits, data.Reader) {
	t.Helper()
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	r, err := s.Train.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return s, r
}

func describe(t testing.TB, ds data.Dataset) (text string) {
	t.Helper()
	r, err := ds.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range ds.Len() {
		var img data.Image
		if err := r.Read(i, nil, &img); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("%d:%s ", img.Width, ds.Classes()[ds.Label(i)])
	}
	return strings.TrimSpace(text)
}

func TestListsOfImages(t *testing.T) {
	for name, c := range map[string]struct {
		files       map[string]string
		path        string
		change      func(*Options)
		train, eval string
	}{
		"metadata.csv": {files: map[string]string{"1.png": "", "sub/2.png": "",
			"metadata.csv": "file_name,caption,label\n1.png,\"a, b\",dog\nsub/2.png,x,\"wild \"\"cat\"\"\"\n"},
			train: `1:dog 2:wild "cat"`},
		"JSON lines with splits": {files: map[string]string{"train/1.png": "", "train/2.png": "", "test/3.png": "",
			"train/metadata.jsonl": `{"file_name": "1.png", "label": 2}` + "\n\n" + `{"file_name": "2.png", "label": 0}`,
			"test/metadata.jsonl":  `{"file_name": "3.png", "label": 1}` + "\n"}, train: "1:2 2:0", eval: "3:1"},
		"a file with other columns": {files: map[string]string{"pictures/4.png": "", "pictures/5.png": "",
			"list.csv": "\ufeffpath;kind\npictures/4.png;b\npictures/5.png;a\n"}, path: "list.csv",
			change: func(o *Options) { o.Image, o.Label = "path", "kind" }, train: "4:b 5:a"},
		"tabs": {files: map[string]string{"6.png": "", "7.png": "",
			"list.tsv": "file_name\tlabel\n6.png\tx\n7.png\ty\n"}, path: "list.tsv", train: "6:x 7:y"},
	} {
		o := options(t, filepath.Join(plant(t, c.files), c.path))
		if c.change != nil {
			c.change(&o)
		}
		for _, o.FollowLinks = range []bool{true, false} {
			s, err := Open(context.Background(), o)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := describe(t, s.Train); got != c.train {
				t.Errorf("%s: got %s, want %s", name, got, c.train)
			}
			if c.eval != "" && (s.Eval == nil || describe(t, s.Eval) != c.eval) || c.eval == "" && s.Eval != nil {
				t.Errorf("%s: evaluation differs, want %q", name, c.eval)
			}
			s.Close()
		}
	}
}

func TestFaultyListsAreRefused(t *testing.T) {
	for list, want := range map[string]string{
		"metadata.csv:file_name,tag\n1.png,a\n":            `data.label_column: there is no column "label"; the columns are ["file_name" "tag"]`,
		"metadata.csv:file_name,label\n1.png,\n":           `line 2: column "label" is empty`,
		"metadata.csv:file_name,label\n1.png,a\n1.png,a\n": "want at least two classes",
		"metadata.csv:file_name,label\n9.png,a\n1.png,b\n": "the first image of the list",
		"metadata.csv:file_name,label\n1.png,a,c\n":        "wrong number of fields",
		"metadata.csv:":                                        "the file is empty",
		"metadata.csv:file_name,label\n":                       "the list has no images",
		`metadata.jsonl:{"file_name":"1.png","label":[[1]]}`:   "is an object or a list",
		`metadata.jsonl:{"file_name":"1.png"}`:                 `no value of "label"`,
		`metadata.jsonl:[1]`:                                   "want a JSON object",
		"metadata.csv:file_name,label\n../../1.png,a\n":        "leads out of the folder",
		"metadata.csv:file_name,label\n/etc/passwd,a\n":        "leads out of the folder",
		`metadata.jsonl:{"file_name":"1.png","label":{"a":1}}`: `"label" is an object`,
	} {
		name, contents, _ := strings.Cut(list, ":")
		o := options(t, plant(t, map[string]string{"1.png": "", name: contents}))
		o.FollowLinks = false
		_, err := Open(context.Background(), o)
		if fault := (*data.Fault)(nil); !errors.As(err, &fault) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want a fault with %q", list, err, want)
		}
	}
}

// A label such as 00012 must be a name. As a number, it could become class -1, which the loss ignores.
func TestLabelsThatAreNumbersInAnotherFormAreNames(t *testing.T) {
	for labels, want := range map[string]string{
		"00012 00003": "1:00012 2:00003 [00003 00012]",
		"+1 0":        "1:+1 2:0 [+1 0]",
		"-1 a":        "1:-1 2:a [-1 a]",
		"2 0":         "1:2 2:0 [0 1 2]",
	} {
		first, second, _ := strings.Cut(labels, " ")
		o := options(t, plant(t, map[string]string{"1.png": "", "2.png": "",
			"metadata.csv": "file_name,label\n1.png," + first + "\n2.png," + second + "\n"}))
		s, err := Open(context.Background(), o)
		if err != nil {
			t.Errorf("%s: %v", labels, err)
			continue
		}
		for i := range s.Train.Len() {
			if s.Train.Label(i) < 0 {
				t.Fatalf("%s: image %d has label %d", labels, i, s.Train.Label(i))
			}
		}
		if got := fmt.Sprint(describe(t, s.Train), " ", s.Train.Classes()); got != want {
			t.Errorf("%s: got %s, want %s", labels, got, want)
		}
		s.Close()
	}
}

func TestTooManyClassesAreRefused(t *testing.T) {
	var list strings.Builder
	list.WriteString("file_name,label\n")
	for k := range maxClasses + 1 {
		fmt.Fprintf(&list, "1.png,id%d\n", k)
	}
	dir := plant(t, map[string]string{"1.png": "", "metadata.csv": list.String()})
	_, err := Open(context.Background(), options(t, dir))
	if err == nil || !strings.Contains(err.Error(), "want at most 65536: set data.label_column") {
		t.Errorf("got %v", err)
	}
}

func TestLongLinesOfListsAreRefused(t *testing.T) {
	long := strings.Repeat("x", 3*mostLine)
	for name, c := range map[string]struct{ list, want string }{
		"metadata.csv":   {"file_name,label\n1.png,a\n1.png,\"" + long, "after line 2: a record has more than 16777216 bytes"},
		"metadata.jsonl": {`{"file_name":"1.png","label":"a"}` + "\n" + long, "line 2 has more than 16777216 bytes"},
	} {
		_, err := Open(context.Background(), options(t, plant(t, map[string]string{"1.png": "", name: c.list})))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %.300v, want %q", name, err, c.want)
		}
	}
}
