package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/datatest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// TestMain uses the libraries that `make` built, unless HETERO_LIB_DIR is set.
func TestMain(m *testing.M) {
	if _, set := os.LookupEnv("HETERO_LIB_DIR"); !set {
		if dir, err := filepath.Abs("../../../build/lib"); err == nil {
			os.Setenv("HETERO_LIB_DIR", dir)
		}
	}
	os.Exit(m.Run())
}

// plain returns an image of one colour.
func plain(w, h int, c color.Color) image.Image {
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		img.Set(i%w, i/w, c)
	}
	return img
}

func pngOf(t testing.TB, img image.Image) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func jpegOf(t testing.TB, img image.Image) string {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// tree contains files by name. A name that ends in a slash is an empty folder.
type tree map[string]string

// named returns a tree of small images. The name of an image determines its colour.
func named(t testing.TB, names ...string) tree {
	t.Helper()
	out := tree{}
	for _, name := range names {
		if strings.HasSuffix(name, "/") {
			out[name] = ""
			continue
		}
		out[name] = pngOf(t, plain(3, 2, colorOf(name)))
	}
	return out
}

// colorOf returns the colour of the image with the given name.
func colorOf(name string) color.NRGBA {
	h := nameHash(name)
	return color.NRGBA{uint8(h), uint8(h >> 8), uint8(h >> 16), 255}
}

func (tr tree) names() []string {
	var names []string
	for name := range tr {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func (tr tree) folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, contents := range tr {
		path := filepath.Join(dir, filepath.FromSlash(name))
		parent := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			parent = path
		}
		if err := os.MkdirAll(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		if parent != path {
			if err := os.WriteFile(path, []byte(contents), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func (tr tree) tar(t testing.TB) string {
	t.Helper()
	var members []datatest.Member
	for _, name := range slices.Backward(tr.names()) { // the order in the archive must not affect the result
		members = append(members, datatest.File(name, tr[name]))
	}
	return write(t, "set.tar", datatest.Tar(t, members...))
}

// write stores a file in a new folder and returns its path.
func write(t testing.TB, name string, contents []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, contents, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func (tr tree) tarGz(t testing.TB) string {
	t.Helper()
	contents, err := os.ReadFile(tr.tar(t))
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "set.tar.gz", datatest.Gzip(t, contents))
}

// open opens a data set and closes it at the end of the test. The returned log contains the messages of Open.
func open(t testing.TB, o Options) (s data.Splits, log *bytes.Buffer, err error) {
	t.Helper()
	log = new(bytes.Buffer)
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	if o.CacheDir == "" {
		o.CacheDir = t.TempDir()
	}
	s, err = Open(t.Context(), o)
	if err == nil {
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return s, log, err
}

// openReader opens a data set, and returns a reader of its training part.
func openReader(t testing.TB, path string) data.Reader {
	t.Helper()
	s, _, err := open(t, Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Train.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func read(ds data.Dataset, i int, sizer data.Sizer) (data.Image, error) {
	r, err := ds.NewReader()
	if err != nil {
		return data.Image{}, err
	}
	defer r.Close()
	var img data.Image
	err = r.Read(i, sizer, &img)
	img.Pix = bytes.Clone(img.Pix)
	return img, err
}

// list returns one text per sample of one part: label, class and decoded colour.
func list(t testing.TB, ds data.Dataset) []string {
	t.Helper()
	if ds == nil {
		return nil
	}
	var out []string
	for i := range ds.Len() {
		img, err := read(ds, i, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%d %s %v", ds.Label(i), ds.Classes()[ds.Label(i)], img.Pix[:3]))
	}
	return out
}

// wanted returns the expected result of list for files of the given names.
func wanted(classes []string, names ...string) []string {
	var out []string
	for _, name := range names {
		for label, class := range classes {
			if strings.Contains("/"+name, "/"+class+"/") {
				c := colorOf(name)
				out = append(out, fmt.Sprintf("%d %s [%d %d %d]", label, class, c.R, c.G, c.B))
			}
		}
	}
	return out
}

func TestTarAttacksAreFaultsAtOpen(t *testing.T) {
	for name, h := range map[string]tar.Header{
		"parent":   {Name: "../a/1.png"},
		"absolute": {Name: "/a/1.png"},
		"link":     {Name: "a/1.png", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		"device":   {Name: "a/1.png", Typeflag: tar.TypeChar},
	} {
		_, _, err := open(t, Options{Path: write(t, "set.tar", datatest.Tar(t, datatest.Member{Header: h}))})
		var fault *data.Fault
		if !errors.As(err, &fault) || !errors.Is(err, archive.ErrRefused) {
			t.Errorf("%s: got %v, want a Fault with ErrRefused", name, err)
		}
	}
}

func TestLinksInFolders(t *testing.T) {
	big := named(t, "train/a/1.png", "train/a/2.png", "train/b/1.png", "one.png").folder(t)
	for _, c := range []struct {
		name, link, target string
		samples            int    // number of samples if links may leave the folder
		kept               int    // number of samples if they may not
		want               string // error; if kept is 0 and samples is not, only without such links
	}{
		{"within the folder", "c", "a", 3, 3, ""},
		{"a file within the folder", "b/2.png", "1.png", 3, 3, ""},
		{"a file outside", "a/3.png", filepath.Join(big, "one.png"), 3, 0,
			`the link "a/3.png" leads out of the folder`},
		{"a class outside", "c", filepath.Join(big, "train/a"), 4, 0, "set data.follow_links = true"},
		{"a loop", "a/loop", "..", 0, 0, `the link "a/loop" leads to folder ".", which contains it`},
		{"broken", "a/3.png", "/nothing", 0, 0, `the link "a/3.png" is broken`},
	} {
		dir := named(t, "a/1.png", "b/1.png").folder(t)
		if err := os.Symlink(c.target, filepath.Join(dir, c.link)); err != nil {
			t.Fatal(err)
		}
		for follow, want := range map[bool]int{true: c.samples, false: c.kept} {
			s, _, err := open(t, Options{Path: dir, FollowLinks: follow})
			if want == 0 {
				if err == nil || follow && !strings.Contains(err.Error(), c.want) || c.samples > 0 &&
					!strings.Contains(err.Error(), c.want) {
					t.Errorf("%s, follow = %v: got %v, want %q", c.name, follow, err, c.want)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, follow = %v: %v", c.name, follow, err)
				continue
			}
			if got := list(t, s.Train); len(got) != want {
				t.Errorf("%s, follow = %v: got %d samples, want %d", c.name, follow, len(got), want)
			}
		}
	}
}

func TestListsOfImageNetMustNotBeLinksOutOfAFolderOfAStranger(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "names")
	if err := os.WriteFile(outside, []byte("a tench\nb goldfish\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := named(t, "a/1.png", "b/1.png").folder(t)
	if err := os.Symlink(outside, filepath.Join(dir, "classnames.txt")); err != nil {
		t.Fatal(err)
	}
	if s, _, err := open(t, Options{Path: dir, FollowLinks: true}); err != nil || s.Train.Classes()[0] != "a tench" {
		t.Errorf("got %v", err)
	}
	if _, _, err := open(t, Options{Path: dir}); err == nil || !strings.Contains(err.Error(), "data.follow_links") {
		t.Errorf("got %v", err)
	}
}

func TestFilesThatChangeAfterOpenAreFaults(t *testing.T) {
	files := named(t, "a/1.png", "a/2.png", "a/3.png", "a/4.png")
	dir := files.folder(t)
	s, _, err := open(t, Options{Path: dir, Limits: archive.Limits{MemberBytes: 10_000}})
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, "a", name) }
	if err := errors.Join(
		os.Remove(at("1.png")),
		os.Remove(at("2.png")), needtest.MakePipe(at("2.png")),
		os.WriteFile(at("3.png"), make([]byte, 20_000), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"no such file", "want a regular file", "20000, want a regular file of at most 10000",
		""} {
		_, err := read(s.Train, i, nil)
		if want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), " bytes", ""), want)) {
			t.Errorf("sample %d: got %v, want %q", i, err, want)
		}
	}
	path := files.tar(t)
	s, _, err = open(t, Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(s.Train, 0, nil); err == nil ||
		!strings.Contains(err.Error(), "became shorter after it was opened") {
		t.Errorf("cut tar: got %v", err)
	}
}

func TestOnlyLayoutsThatAreWrongGetAdviceOnLayouts(t *testing.T) {
	good := named(t, "a/1.png", "b/1.png")
	text := filepath.Join(t.TempDir(), "set.zip")
	taken := filepath.Join(t.TempDir(), "cache")
	for _, path := range []string{text, taken} {
		if err := os.WriteFile(path, bytes.Repeat([]byte("text "), 300), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		o      Options
		want   string
		advice string
	}{
		{"no class folders", Options{Path: named(t, "1.png").folder(t)}, "no class folders", layoutAdvice},
		{"no such path", Options{Path: filepath.Join(t.TempDir(), "none")}, "no such file", ""},
		{"neither folder nor tar", Options{Path: text}, "not a tar archive", ""},
		{"cache folder that cannot be made", Options{Path: good.tarGz(t), CacheDir: taken}, "not a directory",
			archive.CacheAdvice},
	} {
		_, _, err := open(t, c.o)
		var fault *data.Fault
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) || fault.Advice != c.advice {
			t.Errorf("%s: got %v, want a Fault with %q and advice %q", c.name, err, c.want, c.advice)
		}
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	files := named(t, "a/1.png")
	for kind, path := range map[string]string{"folder": files.folder(t), "tar": files.tar(t),
		"tar.gz": files.tarGz(t)} {
		if _, err := Open(ctx, Options{Path: path, CacheDir: t.TempDir()}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", kind, err)
		}
	}
	_, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "none")})
	var fault *data.Fault
	if !errors.As(err, &fault) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such path: got %v", err)
	}
}
