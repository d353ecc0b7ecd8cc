package images

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// differences returns the largest and the mean difference of two images.
func differences(a, b []byte) (largest int, mean float64) {
	sum := 0
	for i := range a {
		d := int(a[i]) - int(b[i])
		d = max(d, -d)
		sum += d
		largest = max(largest, d)
	}
	return largest, float64(sum) / float64(len(a))
}

// scripts/image_goldens.py wrote the expected pixels, which Pillow decoded from these images.
func TestFormatsAreReadAsPillowDoes(t *testing.T) {
	files, err := filepath.Glob("testdata/formats/*.rgb")
	if err != nil || len(files) < 90 {
		t.Fatalf("%d goldens, %v, want at least 90", len(files), err)
	}
	for _, golden := range files {
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		name, turned := strings.CutSuffix(golden, ".turned.rgb")
		if !turned {
			name = strings.TrimSuffix(golden, ".rgb")
		}
		contents, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := NewDecoder(DecodeOptions{Orient: turned})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		var img data.Image
		if err := d.Decode(contents, nil, &img); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		width, height := 19, 13
		switch {
		case strings.Contains(name, "even"):
			width, height = 18, 12
		case strings.HasSuffix(name, ".tiff") && strings.Contains(name, "turned") && name[len(name)-6] >= '5':
			width, height = 13, 19
		}
		if turned {
			width, height = int(binary.LittleEndian.Uint32(want)), int(binary.LittleEndian.Uint32(want[4:]))
			want = want[8:]
		}
		if img.Width != width || img.Height != height || img.FullWidth != width || len(img.Pix) != len(want) {
			t.Errorf("%s: %d x %d pixels, want %d x %d", golden, img.Width, img.Height, width, height)
			continue
		}
		if l, m := differences(img.Pix, want); l > 0 {
			t.Errorf("%s: pixels differ by up to %d, %.2f in the mean", golden, l, m)
		}
	}
}

func TestDamagedEXIFIsNoOrientation(t *testing.T) {
	contents, err := os.ReadFile("testdata/formats/exif6.jpg")
	if err != nil {
		t.Fatal(err)
	}
	if got := OrientationOf(contents); got != TurnRight {
		t.Fatalf("got orientation %d, want %d", got, TurnRight)
	}
	for n := range contents {
		if got := OrientationOf(contents[:n]); got != Upright && got != TurnRight {
			t.Errorf("cut to %d bytes: got orientation %d", n, got)
		}
	}
}

// FuzzOrientation checks that no offset leads outside the file.
func FuzzOrientation(f *testing.F) {
	for _, name := range []string{"exif8.jpg", "exif3.png", "rgb.png", "raw-profile-zipped.png", "xmp-zipped.png"} {
		contents, err := os.ReadFile("testdata/formats/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(contents[:min(len(contents), 500)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if o := OrientationOf(b); o < Upright || o > TurnLeft {
			t.Fatalf("orientation %d", o)
		}
	})
}

func TestDescribe(t *testing.T) {
	for name, want := range map[string]Description{
		"cmyk.jpg": {"jpeg", 19, 13, "cmyk", 8, Upright}, "grey.jpg": {"jpeg", 19, 13, "grey", 8, Upright},
		"exif6.jpg":  {"jpeg", 19, 13, "rgb", 8, TurnRight},
		"grey16.png": {"png", 19, 13, "grey", 16, Upright}, "palette.png": {"png", 19, 13, "palette", 8, Upright},
		"alpha.png": {"png", 19, 13, "rgb", 8, Upright},
	} {
		contents, err := os.ReadFile("testdata/formats/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Describe(contents); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
}

// Only the start of a long text may be read into memory.
func TestALongTextOfAPNGNeedsLittleMemory(t *testing.T) {
	text := "Raw profile type exif\x00\nexif\n 9\n" + strings.Repeat("a ", 16<<20)
	contents := append([]byte(pngStart), binary.BigEndian.AppendUint32(nil, uint32(len(text)))...)
	contents = append(append(append(contents, "tEXt"...), text...), 0, 0, 0, 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if o := OrientationOf(contents); o != Upright {
		t.Errorf("got orientation %d", o)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 4*mostText {
		t.Errorf("got %d bytes allocated for a text of %d, want at most %d", used, len(text), 4*mostText)
	}
}
