package webdataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/datatest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// file is a member of a shard.
type file struct{ name, contents string }

// picture returns a PNG image whose colour identifies the sample.
func picture(i int) string {
	img := image.NewNRGBA(image.Rect(0, 0, 9, 7))
	for p := range 9 * 7 {
		img.Set(p%9, p/9, color.NRGBA{R: uint8(i), G: uint8(i >> 8), B: uint8(p), A: 255})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(err)
	}
	return b.String()
}

// samples returns n samples, numbered from first. They have 5 numeric classes.
func samples(first, n int) []file {
	var files []file
	for i := first; i < first+n; i++ {
		key := fmt.Sprintf("s/%06d", i)
		files = append(files, file{key + ".png", picture(i)}, file{key + ".cls", fmt.Sprintf("%d\n", i%5)})
	}
	return files
}

func tarOf(t testing.TB, files []file) []byte {
	t.Helper()
	var members []datatest.Member
	for _, f := range files {
		members = append(members, datatest.File(f.name, f.contents))
	}
	return datatest.Tar(t, members...)
}

// write stores a shard and returns its path.
func write(t testing.TB, dir, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// quiet opens a data set without a log, and closes it at the end of the test.
func quiet(t testing.TB, o Options) (data.Splits, error) {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	if o.CacheBytes == 0 {
		o.CacheBytes = 1 << 20
	}
	s, err := Open(t.Context(), o)
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

// number reads sample i of ds. It returns the number that the colour of the image represents.
func number(t testing.TB, ds data.Dataset, i int) (int, error) {
	t.Helper()
	r, err := ds.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var img data.Image
	if err := r.Read(i, nil, &img); err != nil {
		return 0, err
	}
	if img.Width != 9 || img.Height != 7 {
		t.Errorf("sample %d has %d x %d pixels, want 9 x 7", i, img.Width, img.Height)
	}
	return int(img.Pix[0]) | int(img.Pix[1])<<8, nil
}

func TestShardsOfAnyKindAreOneDataSet(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "train-000000.tar", tarOf(t, samples(0, 20)))
	write(t, dir, "train-000001.tar.gz", datatest.Gzip(t, tarOf(t, samples(20, 20))))
	write(t, dir, "train-000002.tar.zst", datatest.Zstd(t, tarOf(t, samples(40, 20))))
	write(t, dir, "val-000000.tar", tarOf(t, samples(60, 10)))
	list := write(t, dir, "lists/train.txt",
		[]byte("# shards\n../train-000000.tar\n\n../train-000001.tar.gz\n../train-000002.tar.zst\n"))
	cache := t.TempDir()
	for name, o := range map[string]Options{
		"folder": {Path: dir},
		"pattern and parts": {Path: filepath.Join(dir, "train-{000000..000000}.tar") + "::" +
			filepath.Join(dir, "train-00000{1.tar.gz,2.tar.zst}"), ValPath: filepath.Join(dir, "val-000000.tar")},
		"list":           {Path: list, ValPath: filepath.Join(dir, "val-{0..0}00000.tar")},
		"cache":          {Path: dir, CacheDir: cache},
		"from the cache": {Path: dir, CacheDir: cache},
	} {
		if o.CacheDir == "" {
			o.CacheDir = t.TempDir()
		}
		s, err := quiet(t, o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.Train.Len() != 60 || s.Eval == nil || s.Eval.Len() != 10 ||
			strings.Join(s.Train.Classes(), " ") != "0 1 2 3 4" {
			t.Fatalf("%s: %d training samples, classes %q, want 60 in 0 to 4", name, s.Train.Len(), s.Train.Classes())
		}
		for _, i := range []int{59, 0, 20, 41, 39, 7} {
			if got, err := number(t, s.Train, i); err != nil || got != i || s.Train.Label(i) != i%5 {
				t.Errorf("%s: sample %d is %d of class %d, %v", name, i, got, s.Train.Label(i), err)
			}
		}
		if got, err := number(t, s.Eval, 3); err != nil || got != 63 {
			t.Errorf("%s: evaluation sample 3 is %d, %v, want 63", name, got, err)
		}
	}
}

func TestAGzipShardIsExpandedOnceAndAgainWhenItChanges(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	path := write(t, dir, "a.tar.gz", datatest.Gzip(t, tarOf(t, samples(0, 10))))
	var fault *data.Fault
	if _, err := quiet(t, Options{Path: path}); err == nil || !strings.Contains(err.Error(), "cache folder") {
		t.Errorf("without a cache folder: got %v, want an error that names it", err)
	}
	read := 0
	open := func(first int) {
		t.Helper()
		read = 0
		s, err := quiet(t, Options{Path: path, CacheDir: cache, Progress: func(done, total int64) { read++ }})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := number(t, s.Train, 0); err != nil || got != first {
			t.Errorf("sample 0 is %d, %v, want %d", got, err, first)
		}
	}
	if open(0); read == 0 {
		t.Error("the first time: no progress")
	}
	if open(0); read != 0 {
		t.Error("the second time: read the shard again")
	}
	write(t, dir, "a.tar.gz", datatest.Gzip(t, tarOf(t, samples(2000, 12))))
	if open(2000); read == 0 {
		t.Error("a changed shard was not expanded")
	}
	whole := datatest.Gzip(t, tarOf(t, samples(0, 10)))
	write(t, dir, "a.tar.gz", whole[:len(whole)/2])
	if _, err := quiet(t, Options{Path: path, CacheDir: cache}); !errors.As(err, &fault) || fault.Path != path {
		t.Errorf("cut to half: got %v, want a fault of %s", err, path)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "expanded", "*.part")); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
}

func TestAnIndexIsMadeAnewWhenTheShardChanges(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	one, other := tarOf(t, samples(0, 10)), tarOf(t, samples(1000, 10))
	if len(one) != len(other) {
		t.Fatalf("shards of %d and %d bytes, want the same", len(one), len(other))
	}
	path := write(t, dir, "a.tar", one)
	indexed := 0
	open := func() data.Splits {
		indexed = 0
		s, err := quiet(t, Options{Path: path, CacheDir: cache, Progress: func(done, total int64) { indexed++ }})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if open(); indexed == 0 {
		t.Error("the first time: no progress")
	}
	if open(); indexed != 0 {
		t.Error("the second time: passed over the shard again")
	}
	// Change the contents, but keep the size and the time.
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a.tar", other)
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if got, err := number(t, open().Train, 0); err != nil || got != 1000 || indexed == 0 {
		t.Errorf("after a change that keeps size and time: sample 0 is %d, %v, want 1000", got, err)
	}
	// If an index is damaged, it must be created again.
	kept, err := filepath.Glob(filepath.Join(cache, "shards", "*.idx"))
	if err != nil || len(kept) == 0 {
		t.Fatalf("kept %q, %v", kept, err)
	}
	for _, name := range kept {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-1] ^= 1
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if open(); indexed == 0 {
		t.Error("a damaged index was used")
	}
}

func TestLabels(t *testing.T) {
	img := picture(1)
	tests := []struct {
		name    string
		files   []file
		classes string // names of the classes, joined by |; "": an error is expected
		label   int    // label of the first sample
		fault   string
	}{
		{"numbers", []file{{"a.cls", "7"}, {"a.png", img}, {"b.png", img}, {"b.cls", "2"}}, "0|1|2|3|4|5|6|7", 7, ""},
		{"names", []file{{"a.jpg", img}, {"a.txt", "zebra\n"}, {"b.jpg", img}, {"b.txt", "ant"}}, "ant|zebra", 1, ""},
		{"cls before json before txt", []file{{"a.txt", "no"}, {"a.json", `{"label":"json"}`}, {"a.cls", "cls"},
			{"a.png", img}, {"b.txt", "no"}, {"b.json", `{"cls":"b"}`}, {"b.png", img}}, "b|cls", 1, ""},
		{"json number", []file{{"a.json", `{"x":[1],"label":3}`}, {"a.png", img}}, "0|1|2|3", 3, ""},
		{"json without a label, then txt", []file{{"a.json", `{"w":1}`}, {"a.txt", "1"}, {"a.png", img}}, "0|1", 1, ""},
		{"others are passed over", []file{{"__index__/x", ""}, {"._a.jpg", "?"}, {"a.seg.png", "?"}, {"a.png", img},
			{"a.cls", "0"}, {"a.npy", "?"}, {"c.cls", "0"}}, "0", 0, ""},
		{"a caption is no label", []file{{"a.png", img}, {"a.txt", strings.Repeat("word ", 100)}}, "", 0, "no label"},
		{"no label", []file{{"a.png", img}}, "", 0, `"a" has no label`},
		{"endings with dots", []file{{"a.input.png", img}, {"a.output.cls", "3"}, {"b.input.PNG", img},
			{"b.output.cls", "0"}}, "0|1|2|3", 3, ""},
		{"an image without dots first", []file{{"a.mask.png", "?"}, {"a.edges.png", "?"}, {"a.png", img},
			{"a.depth.png", "?"}, {"a.cls", "0"}}, "0", 0, ""},
		{"a label without dots first", []file{{"a.fine.cls", "7"}, {"a.coarse.cls", "8"}, {"a.png", img},
			{"a.txt", "1"}}, "0|1", 1, ""},
		{"several images with dots", []file{{"a.left.png", img}, {"a.right.png", img}, {"a.cls", "0"}}, "", 0,
			"several images, .left.png and .right.png; the key of a sample ends at the first dot"},
		{"several labels with dots", []file{{"a.png", img}, {"a.fine.cls", "7"}, {"a.coarse.cls", "8"}}, "", 0,
			"several files .cls whose extensions have dots"},
		{"dots in keys", []file{{"v1.5.png", img}, {"v1.5.cls", "0"}, {"v1.6.png", img}, {"v1.6.cls", "1"}}, "", 0,
			"rename the files if the key itself has dots"},
		{"a label far from its image", []file{{"a.png", img}, {"b.png", img}, {"a.cls", "0"}, {"b.cls", "1"}}, "", 0,
			`"a" has no label next to its image`},
		{"json of Python", []file{{"a.json", `{"score": NaN, "label": 3}`}, {"a.png", img}}, "0|1|2|3", 3, ""},
		{"mixed", []file{{"a.png", img}, {"a.cls", "1"}, {"b.png", img}, {"b.cls", "b"}}, "", 0,
			"some labels are numbers"},
		{"two images", []file{{"a.png", img}, {"a.jpg", img}, {"a.cls", "1"}}, "", 0, "two images, .png and .jpg"},
		{"twice", []file{{"a.png", img}, {"a.cls", "1"}, {"b.png", img}, {"b.cls", "1"}, {"a.png", img},
			{"a.cls", "1"}}, "", 0, `"a" appears twice`},
		{"empty label", []file{{"a.png", img}, {"a.cls", " \n"}}, "", 0, "want a number, or a name"},
		{"control characters", []file{{"a.png", img}, {"a.cls", "a\x1b[2J"}}, "", 0, "want a number, or a name"},
		{"huge number", []file{{"a.png", img}, {"a.cls", "70000"}}, "", 0, "want below 65536"},
		{"json fraction", []file{{"a.png", img}, {"a.json", `{"label":1.5}`}}, "", 0, "whole number"},
		{"json damaged", []file{{"a.png", img}, {"a.json", `{"label":`}}, "", 0, "JSON"},
		{"nothing", []file{{"readme", "hello"}}, "", 0, "no samples"},
		{"leads out of the archive", []file{{"../a.png", img}}, "", 0, "refused"},
	}
	for _, c := range tests {
		path := write(t, t.TempDir(), "x.tar", tarOf(t, c.files))
		s, err := quiet(t, Options{Path: path})
		var fault *data.Fault
		switch {
		case c.classes == "" && (!errors.As(err, &fault) || !strings.Contains(err.Error(), c.fault) ||
			fault.Path != path):
			t.Errorf("%s: got %v, want a fault of the shard with %q", c.name, err, c.fault)
		case c.classes != "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.classes != "" && (strings.Join(s.Train.Classes(), "|") != c.classes || s.Train.Label(0) != c.label):
			t.Errorf("%s: classes %q, first label %d, want %s and %d", c.name, s.Train.Classes(), s.Train.Label(0),
				c.classes, c.label)
		}
	}
}

func TestNumericClassesHaveTheNamesOfAList(t *testing.T) {
	path := write(t, t.TempDir(), "a.tar", tarOf(t, samples(0, 5)))
	s, err := quiet(t, Options{Path: path, ClassNames: []string{"a", "b", "c", "d", "e", "f"}})
	if err != nil || strings.Join(s.Train.Classes(), "") != "abcdef" || s.Train.Label(3) != 3 {
		t.Errorf("got %v, want the six names", err)
	}
	if s, err := quiet(t, Options{Path: path, ClassNames: []string{"a", "b"}, NamesFound: "names"}); err != nil ||
		strings.Join(s.Train.Classes(), "") != "01234" {
		t.Errorf("too few names of a list that was found: got %v, want the numbers", err)
	}
	if _, err := quiet(t, Options{Path: path, ClassNames: []string{"a", "b"}}); err == nil ||
		!strings.Contains(err.Error(), "too few class names: got 2 names, want more than 4") {
		t.Errorf("too few names: got %v", err)
	}
}

func TestAShardThatVanishesOrIsCutIsAFaultOfItsSamples(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"truncated": func(path string) error { return os.Truncate(path, 5000) },
		"changed":   func(path string) error { return os.Chtimes(path, time.Now(), time.Unix(1, 0)) },
		"vanished":  os.Remove,
	} {
		dir := t.TempDir()
		write(t, dir, "a.tar", tarOf(t, samples(0, 10)))
		write(t, dir, "b.tar", tarOf(t, samples(10, 10)))
		s, err := quiet(t, Options{Path: dir})
		if err != nil {
			t.Fatal(err)
		}
		if name == "truncated" { // the shard is open, so a read finds the truncation
			if _, err := number(t, s.Train, 19); err != nil {
				t.Fatal(err)
			}
		}
		if err := harm(filepath.Join(dir, "b.tar")); err != nil {
			t.Fatal(err)
		}
		var fault *data.Fault
		if _, err := number(t, s.Train, 18); !errors.As(err, &fault) || fault.Index != 18 ||
			!strings.HasSuffix(fault.Path, "b.tar!s/000018.png") {
			t.Errorf("%s: got %v, want a fault of sample 18 that names its member", name, err)
		}
		if got, err := number(t, s.Train, 9); err != nil || got != 9 {
			t.Errorf("%s: sample 9 of the other shard: %d, %v", name, got, err)
		}
		// All samples of this shard must be replaced by samples of the other shard. Neither the order of reading nor
		// the rank may affect the replacements.
		skipping := []*data.Skipping{data.Skip(s.Train, 10, nil), data.Skip(s.Train, 10, nil)}
		var seen [2]map[int]int
		for k, ds := range skipping {
			seen[k] = map[int]int{}
			for i := range 20 {
				if k == 1 {
					i = 19 - i
				}
				got, err := number(t, ds, i)
				if err != nil || ds.Label(i) != got%5 {
					t.Fatalf("%s: sample %d: got %d of class %d, %v", name, i, got, ds.Label(i), err)
				}
				seen[k][i] = got
			}
		}
		for i := range 20 {
			if seen[0][i] != seen[1][i] || i < 10 && seen[0][i] != i {
				t.Errorf("%s: sample %d is %d in one order and %d in another", name, i, seen[0][i], seen[1][i])
			}
		}
	}
}

func TestMoreShardsThanFilesAreOpen(t *testing.T) {
	dir := t.TempDir()
	for k := range 128 + 20 {
		write(t, dir, fmt.Sprintf("%04d.tar", k), tarOf(t, samples(k, 1)))
	}
	s, err := quiet(t, Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Train.Len() {
		if got, err := number(t, s.Train, i); err != nil || got != i {
			t.Fatalf("sample %d is %d, %v", i, got, err)
		}
	}
	if n, most := s.Closer.(*source).Open(); n != most || most < 1 {
		t.Errorf("%d shards are open, want %d", n, most)
	}
}

func TestAShardThatCannotBeEnteredNeedsTheMemory(t *testing.T) {
	one := datatest.Zstd(t, tarOf(t, append(samples(0, 3), file{"s/000002.bin", strings.Repeat("x", 3<<20)})))
	path := write(t, t.TempDir(), "a.tar.zst", one)
	if _, err := quiet(t, Options{Path: path, CacheBytes: 2 << 20}); err == nil ||
		!strings.Contains(err.Error(), "shard_cache_mb") || !strings.Contains(err.Error(), "repack") {
		t.Errorf("got %v, want the way out", err)
	}
	if _, err := quiet(t, Options{Path: path, CacheBytes: 8 << 20}); err != nil {
		t.Error(err)
	}
}

// The writer may open a pipe later than the reader. If no writer opens it, Expand must return as soon as the context
// ends.
func TestAListMayBeANamedPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.txt")
	if err := needtest.MakePipe(path); err != nil {
		needtest.Missing(t, "system", err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if list, err := Expand(brief, path, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no writer: got %q, %v, want the end of the context", list, err)
	}
	written := make(chan error, 1)
	go func() {
		time.Sleep(50 * time.Millisecond)
		written <- os.WriteFile(path, []byte("/a-{0..1}.tar\n"), 0o600)
	}()
	list, err := Expand(t.Context(), path, true)
	if err = errors.Join(err, <-written); err != nil || !slices.Equal(list, []string{"/a-0.tar", "/a-1.tar"}) {
		t.Errorf("a late writer: got %q, %v, want two shards", list, err)
	}
	silent, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	writer, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if list, err := Expand(silent, path, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a writer that writes nothing: got %q, %v, want the end of the context", list, err)
	}
}

func TestExpand(t *testing.T) {
	for pattern, want := range map[string]string{
		"t-{08..11}.tar":        "t-08.tar t-09.tar t-10.tar t-11.tar",
		"{a,b}/{0..1}.tar":      "a/0.tar a/1.tar b/0.tar b/1.tar",
		"one.tar":               "one.tar",
		"x.tar::{1..2}.tar":     "x.tar 1.tar 2.tar",
		"t-{3..1}.tar":          "", // this pattern and all following ones are errors
		"t-{a..c}.tar":          "",
		"t-{1..2.tar":           "",
		"t-1}.tar":              "",
		"{a{b,c}}.tar":          "",
		"a.tar::":               "",
		"{0..99999999}.tar":     "",
		"{0..2000}/{0..2000}":   "",
		"t-{-1..2}.tar":         "",
		"t-{0..4294967296}.tar": "",
	} {
		got, err := Expand(t.Context(), pattern, true)
		if want == "" && err == nil || want != "" && (err != nil || strings.Join(got, " ") != want) {
			t.Errorf("%s: got %q, %v, want %q", pattern, got, err, want)
		}
	}
}

func TestHeldOutSamplesDoNotDependOnTheShards(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	write(t, one, "a.tar", tarOf(t, samples(0, 200)))
	write(t, two, "a.tar", tarOf(t, samples(100, 100)))
	write(t, two, "b.tar", tarOf(t, samples(0, 100)))
	var keys [2][]int
	for k, dir := range []string{one, two} {
		s, err := quiet(t, Options{Path: dir, ValFraction: 0.2})
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Eval.Len() {
			n, err := number(t, s.Eval, i)
			if err != nil {
				t.Fatal(err)
			}
			keys[k] = append(keys[k], n)
		}
		slices.Sort(keys[k])
	}
	if !slices.Equal(keys[0], keys[1]) || len(keys[0]) < 20 || len(keys[0]) > 60 {
		t.Errorf("held out %v of one shard and %v of two, want the same, about 40", keys[0], keys[1])
	}
}

func TestOnlySamplesAreRemembered(t *testing.T) {
	g := newGrouper()
	add := func(name string) error { return g.add(member(name, "1"), strings.NewReader("1")) }
	for i := range 1000 {
		if err := add(fmt.Sprintf("no sample %d.bin", i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a.png", "a.cls", "b.png", "b.cls", "rest.bin"} {
		if err := add(name); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.seen) != 2 || len(g.out.Keys) != 2 || g.out.Ignored != 1000 {
		t.Errorf("%d keys, %d samples, %d ignored, want 2, 2 and 1000", len(g.seen), len(g.out.Keys), g.out.Ignored)
	}
	if err := errors.Join(add("a.bin"), add("rest.bin")); err != nil || len(g.out.Faults) != 1 ||
		g.out.Faults[0].Key != "a" || !strings.Contains(g.out.Faults[0].Reason, "appears twice") {
		t.Errorf("a sample's files apart: got %v, %v", g.out.Faults, err)
	}
	g.names = maxNamesBytes - 2
	for _, name := range []string{"c.png", "c.cls", "dd.png", "dd.cls"} {
		if err := add(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := add("e.png"); !errors.Is(err, archive.ErrRefused) {
		t.Errorf("too many names: got %v", err)
	}
}

func TestTheFirstDamagedShardEndsIndexing(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // only one shard at a time
	dir, cache := t.TempDir(), t.TempDir()
	write(t, dir, "a.tar", []byte(strings.Repeat("no tar ", 200)))
	for i := range 3 {
		write(t, dir, fmt.Sprintf("b%d.tar", i), tarOf(t, samples(i, 1)))
	}
	_, err := quiet(t, Options{Path: dir, CacheDir: cache})
	var fault *data.Fault
	if !errors.As(err, &fault) || filepath.Base(fault.Path) != "a.tar" {
		t.Errorf("got %v, want the fault of a.tar", err)
	}
	if kept, err := filepath.Glob(filepath.Join(cache, "shards", "*.idx")); err != nil || len(kept) != 0 {
		t.Errorf("indexed %q after the damaged one, %v", kept, err)
	}
}

// FuzzGroup passes the names and contents of members to a grouper.
func FuzzGroup(f *testing.F) {
	f.Add("a.jpg\x00img\x00a.cls\x001")
	f.Add("d/a.jpg\x00img\x00d/a.json\x00{\"label\":\"x\"}\x00d/a.txt\x00y")
	f.Add("a.b.c\x00\x00a.png\x00\x00.x\x00\x00__meta__/a.jpg\x00")
	f.Fuzz(func(t *testing.T, text string) {
		parts := strings.Split(text, "\x00")
		g := newGrouper()
		for k := 0; k+1 < len(parts) && k < 200; k += 2 {
			if err := g.add(member(parts[k], parts[k+1]), strings.NewReader(parts[k+1])); err != nil {
				return
			}
		}
		x, err := g.index(plainLayout(), nil)
		if err != nil {
			return
		}
		n := len(x.Keys)
		if len(x.Ends) != n || len(x.Offsets) != n || len(x.Sizes) != n || len(x.Labels) != n {
			t.Fatalf("columns of unlike length: %+v", x)
		}
		for i, l := range x.Labels {
			if int(l) >= len(x.Texts) || strings.ContainsAny(x.Texts[l], "\n\x1b") {
				t.Fatalf("sample %d has label %d of %q", i, l, x.Texts)
			}
		}
	})
}

func member(name, contents string) archive.Member {
	return archive.Member{Name: name, Size: int64(len(contents))}
}

func plainLayout() archive.Layout { return archive.Layout{Compression: archive.None} }
