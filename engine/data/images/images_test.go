package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/archive"
)

// TestMain lets the tests find the library that `make` built.
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

// tree maps names to contents; a name that ends in a slash is an empty folder.
type tree map[string]string

// named makes a tree of small images, each of a colour that its name decides.
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

// colorOf gives a name its colour.
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
	path := filepath.Join(t.TempDir(), "set.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	names := tr.names()
	slices.Reverse(names) // the order in the archive must not matter
	for _, name := range names {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(tr[name]))}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(tr[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
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
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(contents)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "set.tar.gz")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// open opens a data set that the test closes; log takes what is logged.
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

// list describes the samples of one part: label, class and the colour that was found.
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

// wanted is what list should return for files of the given names.
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
		{"train and test around", []string{"set/train/b/1.png", "set/train/a/1.png", "set/test/a/9.png"}, []string{"a", "b"},
			[]string{"set/train/a/1.png", "set/train/b/1.png"}, []string{"set/test/a/9.png"}, ""},
		{"val goes before test", []string{"train/a/1.png", "test/a/2.png", "val/a/3.png"}, []string{"a"},
			[]string{"train/a/1.png"}, []string{"val/a/3.png"}, ""},
		{"only train", []string{"train/a/1.png", "train/b/1.png"}, []string{"a", "b"}, []string{"train/a/1.png", "train/b/1.png"}, nil, ""},
		{"a class that is called train", []string{"train/1.png", "bus/1.png", "car/1.png"}, []string{"bus", "car", "train"},
			[]string{"bus/1.png", "car/1.png", "train/1.png"}, nil, ""},
		{"hidden files", []string{"a/1.png", "a/._1.png", ".git/x/1.png", "__MACOSX/a/1.png", "b/1.png", ".DS_Store", "c/.hidden/1.png", "c/1.png"},
			[]string{"a", "b", "c"}, []string{"a/1.png", "b/1.png", "c/1.png"}, nil, ""},
		{"other files are counted", []string{"a/1.png", "b/1.png", "b/notes.txt", "README.md"}, []string{"a", "b"},
			[]string{"a/1.png", "b/1.png"}, nil, "2 files are not .jpg, .jpeg or .png"},
		{"loose images are counted", []string{"a/1.png", "b/1.png", "logo.png"}, []string{"a", "b"},
			[]string{"a/1.png", "b/1.png"}, nil, "1 images lie in no class folder"},
		{"images beside the parts are counted", []string{"train/a/1.png", "val/a/1.png", "extra/a/1.png"}, []string{"a"},
			[]string{"train/a/1.png"}, []string{"val/a/1.png"}, "1 images lie outside of train/, val/ and test/"},
	} {
		for kind, make := range map[string]func(tree, testing.TB) string{"folder": tree.folder, "tar": tree.tar, "tar.gz": tree.tarGz} {
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
				if c.logged == "" && strings.Contains(log.String(), "passed over") || !strings.Contains(log.String(), c.logged) {
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
		{"nothing", []string{"a/"}, "no .jpg, .jpeg or .png files"},
		{"no class folders", []string{"1.png", "2.png"}, "no class folders with images"},
		{"no train", []string{"val/a/1.png"}, "there is val/ but no train/"},
		{"empty class", []string{"a/1.png", "b/", "c/1.png"}, `class folder "b" holds no image`},
		{"empty class in train", []string{"train/a/1.png", "train/b/", "val/a/1.png"}, `class folder "train/b" holds no image`},
		{"class only in val", []string{"train/a/1.png", "val/b/1.png"}, `class folder "val/b" has none of that name in train/`},
	} {
		for kind, make := range map[string]func(tree, testing.TB) string{"folder": tree.folder, "tar": tree.tar} {
			_, _, err := open(t, Options{Path: make(named(t, c.files...), t)})
			var fault *data.Fault
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s in a %s: got %v, want a Fault with %q", c.name, kind, err, c.want)
			}
		}
	}
}

func TestANameThatAppearsTwiceIsAFault(t *testing.T) {
	_, err := arrange(listing{files: []file{{name: "a/1.png"}, {name: "b/1.png"}, {name: "a/1.png"}}}, 0)
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
	// In another order, and with a folder around, the same files are held out.
	var wrapped listing
	for _, f := range slices.Backward(l.files) {
		wrapped.add(file{name: "around/" + f.name})
	}
	b, err := arrange(wrapped, 0.2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range a.eval {
		if x, y := l.files[a.eval[i].file].name, wrapped.files[b.eval[i].file].name; "around/"+x != y {
			t.Fatalf("sample %d: %s, and %s with a folder around", i, x, y)
		}
	}
	// The held-out files are spread over the class, not its first or last ones.
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

func TestImagesOfEveryKindBecomeRGB(t *testing.T) {
	c := color.NRGBA{200, 100, 50, 255}
	clear := color.NRGBA{200, 100, 50, 0} // invisible, yet it has colours
	grey := image.NewGray(image.Rect(0, 0, 3, 2))
	grey16 := image.NewGray16(grey.Rect)
	deep := image.NewNRGBA64(grey.Rect)
	palette := image.NewPaletted(grey.Rect, color.Palette{c, color.NRGBA{1, 2, 3, 255}})
	palettedClear := image.NewPaletted(grey.Rect, color.Palette{clear, color.NRGBA{1, 2, 3, 255}})
	for i := range 6 {
		grey.Pix[i] = 77
		grey16.SetGray16(i%3, i/3, color.Gray16{77<<8 | 200})
		deep.SetNRGBA64(i%3, i/3, color.NRGBA64{200<<8 | 9, 100<<8 | 9, 50<<8 | 9, 1 << 15})
	}
	contents := tree{}
	want := map[string][3]int{}
	for name, k := range map[string]struct {
		contents string
		want     [3]int
	}{
		"colour.png":       {pngOf(t, plain(3, 2, c)), [3]int{200, 100, 50}},
		"transparent.png":  {pngOf(t, plain(3, 2, clear)), [3]int{200, 100, 50}},
		"grey.png":         {pngOf(t, grey), [3]int{77, 77, 77}},
		"grey16.png":       {pngOf(t, grey16), [3]int{77, 77, 77}},
		"deep.png":         {pngOf(t, deep), [3]int{200, 100, 50}},
		"palette.png":      {pngOf(t, palette), [3]int{200, 100, 50}},
		"paletteclear.png": {pngOf(t, palettedClear), [3]int{200, 100, 50}},
		"colour.jpg":       {jpegOf(t, plain(3, 2, c)), [3]int{200, 100, 50}},
		"grey.jpg":         {jpegOf(t, grey), [3]int{77, 77, 77}},
		"really_png.jpg":   {pngOf(t, plain(3, 2, c)), [3]int{200, 100, 50}},
	} {
		contents["a/"+name] = k.contents
		want[name] = k.want
	}
	s, _, err := open(t, Options{Path: contents.tar(t)})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range contents.names() {
		img, err := read(s.Train, i, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if img.Width != 3 || img.Height != 2 || len(img.Pix) != 18 {
			t.Errorf("%s: %d x %d pixels in %d bytes", name, img.Width, img.Height, len(img.Pix))
		}
		for k, v := range want[strings.TrimPrefix(name, "a/")] {
			if got := int(img.Pix[15+k]); got < v-3 || got > v+3 {
				t.Errorf("%s: last pixel is %v, want %v", name, img.Pix[15:], want[name])
			}
		}
	}
}

// chunk is a part of a PNG with its right checksum.
func chunk(kind, contents string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(contents)))
	b = append(b, kind+contents...)
	return string(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[4:])))
}

func TestBadImagesAreFaultsThatNameThem(t *testing.T) {
	photo := jpegOf(t, plain(64, 64, color.NRGBA{1, 2, 3, 255}))
	picture := pngOf(t, plain(64, 64, color.NRGBA{1, 2, 3, 255}))
	huge := []byte(picture)
	copy(huge[16:], "\x00\x00\xFF\xFF\x00\x00\xFF\xFF") // the header's size; its checksum is wrong then, too
	bomb := picture[:8] + chunk("IHDR", "\x00\x00\x23\x28\x00\x00\x23\x28\x08\x02\x00\x00\x00")
	wide := []byte(photo)
	if at := bytes.Index(wide, []byte{0xFF, 0xC0}); at > 0 {
		copy(wide[at+5:], "\xFF\xFF\xFF\xFF")
	}
	files := tree{
		"a/0empty.jpg": "", "a/1text.jpg": "not an image", "a/2cut.jpg": photo[:len(photo)/2], "a/3cut.png": picture[:len(picture)/2],
		"a/4huge.png": string(huge), "a/5bomb.png": bomb, "a/6wide.jpg": string(wide), "a/7good.jpg": photo,
	}
	want := []string{"empty file", "neither JPEG nor PNG: begins with 6e 6f 74", "", "", "", "9000 x 9000 pixels, want at most 67108864", "65535 x 65535 pixels", "-"}
	for kind, path := range map[string]string{"tar": files.tar(t), "folder": files.folder(t)} {
		s, _, err := open(t, Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Train.NewReader()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for i, name := range files.names() {
			var img data.Image
			err := r.Read(i, nil, &img)
			if want[i] == "-" {
				if err != nil {
					t.Errorf("%s: a good image after bad ones: %v", kind, err)
				}
				continue
			}
			var fault *data.Fault
			if !errors.As(err, &fault) || fault.Index != i || fault.Path != name || !strings.Contains(err.Error(), want[i]) {
				t.Errorf("%s: %s: got %v, want a Fault with %q", kind, name, err, want[i])
			}
		}
	}
}

func TestPixelCapIsSettable(t *testing.T) {
	files := tree{"a/1.jpg": jpegOf(t, plain(40, 30, color.White)), "b/1.png": pngOf(t, plain(40, 30, color.White))}
	for _, c := range []struct {
		cap int
		ok  bool
	}{{1200, true}, {1199, false}} {
		s, _, err := open(t, Options{Path: files.tar(t), MaxPixels: c.cap})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if _, err := read(s.Train, i, nil); (err == nil) != c.ok {
				t.Errorf("cap %d, sample %d: %v", c.cap, i, err)
			}
		}
	}
}

// least asks for a decode of at least its size.
type least struct{ w, h int }

func (l least) MinSize(width, height int) (int, int) { return min(l.w, width), min(l.h, height) }

func TestLargeImagesAreDecodedSmallerWhereThatIsEnough(t *testing.T) {
	files := tree{
		"a/1large.jpg": jpegOf(t, plain(1000, 600, color.NRGBA{9, 99, 199, 255})),
		"a/2small.jpg": jpegOf(t, plain(256, 256, color.NRGBA{9, 99, 199, 255})),
		"a/3large.png": pngOf(t, plain(1000, 600, color.NRGBA{9, 99, 199, 255})),
	}
	s, _, err := open(t, Options{Path: files.tar(t)})
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDecoder(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	scales := d.jpeg.Scales()
	for _, c := range []struct {
		sample int
		sizer  data.Sizer
		w, h   int
		scaled bool
	}{
		{0, nil, 1000, 600, false},
		{0, least{501, 100}, 1000, 600, false},
		{0, least{500, 300}, 500, 300, true},
		{0, least{250, 151}, 500, 300, true},
		{0, least{200, 150}, 250, 150, true},
		{0, least{1, 1}, 125, 75, true},
		{1, least{1, 1}, 256, 256, false}, // of FullDecodePixels: never scaled
		{2, least{1, 1}, 1000, 600, false},
	} {
		img, err := read(s.Train, c.sample, c.sizer)
		if err != nil {
			t.Fatal(err)
		}
		full := [3]int{1000, 256, 1000}[c.sample]
		if c.scaled && !scales {
			c.w, c.h = 1000, 600
		}
		if img.Width != c.w || img.Height != c.h || img.FullWidth != full {
			t.Errorf("%+v: got %d x %d of width %d", c, img.Width, img.Height, img.FullWidth)
		}
	}
}

func TestTarAttacksAreFaultsAtOpen(t *testing.T) {
	write := func(headers ...tar.Header) string {
		path := filepath.Join(t.TempDir(), "set.tar")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w := tar.NewWriter(f)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, h := range map[string]tar.Header{
		"parent":   {Name: "../a/1.png"},
		"absolute": {Name: "/a/1.png"},
		"link":     {Name: "a/1.png", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		"device":   {Name: "a/1.png", Typeflag: tar.TypeChar},
	} {
		_, _, err := open(t, Options{Path: write(h)})
		var fault *data.Fault
		if !errors.As(err, &fault) || !errors.Is(err, archive.ErrRefused) {
			t.Errorf("%s: got %v, want a Fault with ErrRefused", name, err)
		}
	}
}

func TestLinksAreFollowedWithinTheFolderOnly(t *testing.T) {
	dir := named(t, "a/1.png", "b/1.png").folder(t)
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("a", "c")
	link("1.png", "b/2.png")
	s, _, err := open(t, Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Train.Len(); got != 4 {
		t.Errorf("%d samples, want 4", got)
	}
	outside := filepath.Join(t.TempDir(), "secret.png")
	if err := os.WriteFile(outside, []byte(pngOf(t, plain(1, 1, color.White))), 0o644); err != nil {
		t.Fatal(err)
	}
	link(outside, "a/2.png")
	if _, _, err := open(t, Options{Path: dir}); err == nil || !strings.Contains(err.Error(), "links that lead out of the folder") {
		t.Errorf("a link to %s: got %v", outside, err)
	}
	os.Remove(filepath.Join(dir, "a/2.png"))
	link("..", "a/loop")
	if _, _, err := open(t, Options{Path: dir}); err == nil {
		t.Error("a loop of links is followed without an error")
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
		os.Remove(at("2.png")), syscall.Mkfifo(at("2.png"), 0o644),
		os.WriteFile(at("3.png"), make([]byte, 20_000), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"no such file", "want a regular file", "20000, want a regular file of at most 10000", ""} {
		_, err := read(s.Train, i, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), " bytes", ""), want)) {
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
	if _, err := read(s.Train, 0, nil); err == nil || !strings.Contains(err.Error(), "cut short since it was opened") {
		t.Errorf("cut tar: got %v", err)
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	files := named(t, "a/1.png")
	for kind, path := range map[string]string{"folder": files.folder(t), "tar": files.tar(t), "tar.gz": files.tarGz(t)} {
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

func TestReadingFromATarAllocatesNothing(t *testing.T) {
	files := tree{"a/1.jpg": jpegOf(t, plain(64, 48, color.White)), "b/1.jpg": jpegOf(t, plain(48, 64, color.White))}
	s, _, err := open(t, Options{Path: files.tar(t)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Train.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if !r.(*reader).decoder.jpeg.Scales() {
		t.Skip("image/jpeg allocates for each image")
	}
	var img data.Image
	if n := testing.AllocsPerRun(50, func() {
		for i := range 2 {
			if err := r.Read(i, nil, &img); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%.1f allocations for two images", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(jpegOf(f, plain(20, 13, color.White))))
	f.Add([]byte(pngOf(f, plain(20, 13, color.White))))
	f.Add([]byte(pngOf(f, image.NewPaletted(image.Rect(0, 0, 5, 5), color.Palette{color.Black, color.White}))))
	f.Add([]byte(pngOf(f, image.NewGray16(image.Rect(0, 0, 5, 5)))))
	d, err := newDecoder(1 << 18)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(d.close)
	f.Fuzz(func(t *testing.T, contents []byte) {
		var img data.Image
		if err := d.decode(contents, least{10, 10}, &img); err != nil {
			return
		}
		if img.Width < 1 || img.Height < 1 || len(img.Pix) != 3*img.Width*img.Height || img.Width > img.FullWidth ||
			img.Height > img.FullHeight || img.FullWidth*img.FullHeight > 1<<18 {
			t.Fatalf("%d x %d of %d x %d pixels in %d bytes", img.Width, img.Height, img.FullWidth, img.FullHeight, len(img.Pix))
		}
	})
}
