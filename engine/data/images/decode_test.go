package images

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

func TestImagesOfEveryKindBecomeRGB(t *testing.T) {
	c := color.NRGBA{200, 100, 50, 255}
	clear := color.NRGBA{200, 100, 50, 0} // transparent, but its pixels still have a colour
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

// chunk returns a chunk of a PNG with a correct checksum.
func chunk(kind, contents string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(contents)))
	b = append(b, kind+contents...)
	return string(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[4:])))
}

func TestBadImagesAreFaultsThatNameThem(t *testing.T) {
	photo := jpegOf(t, plain(64, 64, color.NRGBA{1, 2, 3, 255}))
	picture := pngOf(t, plain(64, 64, color.NRGBA{1, 2, 3, 255}))
	huge := []byte(picture)
	// changes the size in the header, so the header's checksum is also wrong
	copy(huge[16:], "\x00\x00\xFF\xFF\x00\x00\xFF\xFF")
	bomb := picture[:8] + chunk("IHDR", "\x00\x00\x23\x28\x00\x00\x23\x28\x08\x02\x00\x00\x00")
	wide := []byte(photo)
	if at := bytes.Index(wide, []byte{0xFF, 0xC0}); at > 0 {
		copy(wide[at+5:], "\xFF\xFF\xFF\xFF")
	}
	files := tree{
		"a/0empty.jpg": "", "a/1text.jpg": "not an image", "a/2cut.jpg": photo[:len(photo)/2],
		"a/3cut.png":  picture[:len(picture)/2],
		"a/4huge.png": string(huge), "a/5bomb.png": bomb, "a/6wide.jpg": string(wide), "a/7good.jpg": photo,
	}
	want := []string{"empty file", "no image of a known format (JPEG, PNG, WebP, BMP, TIFF, GIF, PPM, PGM or PBM): begins with 6e 6f 74", "", "", "",
		"9000 x 9000 pixels, want at most 67108864", "65535 x 65535 pixels", "-"}
	for kind, path := range map[string]string{"tar": files.tar(t), "folder": files.folder(t)} {
		r := openReader(t, path)
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
			if !errors.As(err, &fault) || fault.Index != i || fault.Path != name ||
				!strings.Contains(err.Error(), want[i]) {
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
		s, _, err := open(t, Options{Path: files.tar(t), DecodeOptions: DecodeOptions{MaxPixels: c.cap}})
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

// least is a Sizer that requests at least the size w x h.
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
	d, err := NewDecoder(DecodeOptions{MaxPixels: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, c := range []struct {
		sample int
		sizer  data.Sizer
		w, h   int
	}{
		{0, nil, 1000, 600},
		{0, least{501, 100}, 1000, 600},
		{0, least{500, 300}, 500, 300},
		{0, least{250, 151}, 500, 300},
		{0, least{200, 150}, 250, 150},
		{0, least{1, 1}, 125, 75},
		{1, least{1, 1}, 256, 256}, // an image of FullDecodePixels pixels must always be decoded at its full size
		{2, least{1, 1}, 1000, 600},
	} {
		img, err := read(s.Train, c.sample, c.sizer)
		if err != nil {
			t.Fatal(err)
		}
		full := [3]int{1000, 256, 1000}[c.sample]
		if img.Width != c.w || img.Height != c.h || img.FullWidth != full {
			t.Errorf("%+v: got %d x %d of width %d", c, img.Width, img.Height, img.FullWidth)
		}
	}
}

func TestReadingFromATarAllocatesNothing(t *testing.T) {
	files := tree{"a/1.jpg": jpegOf(t, plain(64, 48, color.White)), "b/1.jpg": jpegOf(t, plain(48, 64, color.White))}
	r := openReader(t, files.tar(t))
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
	for _, kind := range []string{"webp", "tiff", "bmp", "gif", "p?m"} {
		names, err := filepath.Glob("testdata/formats/*." + kind)
		if err != nil || len(names) < 4 {
			f.Fatalf("%d files of kind %s, %v", len(names), kind, err)
		}
		for _, name := range names {
			contents, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(contents)
		}
	}
	d, err := NewDecoder(DecodeOptions{MaxPixels: 1 << 18})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(d.Close)
	f.Fuzz(func(t *testing.T, contents []byte) {
		var img data.Image
		if err := d.Decode(contents, least{10, 10}, &img); err != nil {
			return
		}
		if img.Width < 1 || img.Height < 1 || len(img.Pix) != 3*img.Width*img.Height || img.Width > img.FullWidth ||
			img.Height > img.FullHeight || img.FullWidth*img.FullHeight > 1<<18 {
			t.Fatalf("%d x %d of %d x %d pixels in %d bytes", img.Width, img.Height, img.FullWidth, img.FullHeight,
				len(img.Pix))
		}
	})
}
