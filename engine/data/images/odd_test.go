package images

import (
	"bytes"
	"encoding/binary"
	"image/color"
	"os"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// tiffTags returns a TIFF structure. Its directory has one tag, with this type and value.
func tiffTags(order binary.AppendByteOrder, start string, kind uint16, value uint32) string {
	b := order.AppendUint32(order.AppendUint16([]byte(start), 42), 8)
	b = order.AppendUint16(b, 1)
	b = order.AppendUint32(order.AppendUint16(order.AppendUint16(b, 0x0112), kind), 1)
	if kind == 3 || kind == 8 {
		b = order.AppendUint16(order.AppendUint16(b, uint16(value)), 0)
	} else {
		b = order.AppendUint32(b, value)
	}
	return string(order.AppendUint32(b, 0))
}

func TestOrientationOfUnusualPrograms(t *testing.T) {
	photo, picture := jpegOf(t, plain(8, 8, color.White)), pngOf(t, plain(8, 8, color.White))
	segment := func(contents string) string {
		return photo[:2] + "\xFF\xE1" + string(binary.BigEndian.AppendUint16(nil, uint16(len(contents)+2))) + contents +
			photo[2:]
	}
	afterHead := len(pngStart) + 25
	withChunk := func(kind, contents string) string {
		return picture[:afterHead] + chunk(kind, contents) + picture[afterHead:]
	}
	const xmp = "http://ns.adobe.com/xap/1.0/\x00<x:xmpmeta>"
	little, big := binary.LittleEndian, binary.BigEndian
	for name, c := range map[string]struct {
		contents string
		want     Orientation
	}{
		"short":                {segment("Exif\x00\x00" + tiffTags(little, "II", 3, 6)), TurnRight},
		"long":                 {segment("Exif\x00\x00" + tiffTags(little, "II", 4, 6)), TurnRight},
		"long, big endian":     {segment("Exif\x00\x00" + tiffTags(big, "MM", 4, 8)), TurnLeft},
		"signed short":         {segment("Exif\x00\x00" + tiffTags(little, "II", 8, 6)), TurnRight},
		"signed long":          {segment("Exif\x00\x00" + tiffTags(big, "MM", 9, 6)), TurnRight},
		"negative":             {segment("Exif\x00\x00" + tiffTags(big, "MM", 9, 1<<32-6)), Upright},
		"PNG, EXIF as in JPEG": {withChunk("eXIf", "Exif\x00\x00"+tiffTags(big, "MM", 3, 6)), TurnRight},
		"text":                 {segment("Exif\x00\x00" + tiffTags(big, "MM", 2, 8)), Upright},
		"too large":            {segment("Exif\x00\x00" + tiffTags(big, "MM", 4, 1<<16+6)), Upright},
		"XMP, attribute":       {segment(xmp + `<rdf:Description tiff:Orientation="3" tiff:Make="x"/>`), Turn180},
		"XMP, single quotes":   {segment(xmp + `<rdf:Description tiff:Orientation = '3'/>`), Turn180},
		"XMP, element":         {segment(xmp + "<tiff:Orientation>8</tiff:Orientation>"), TurnLeft},
		"XMP, invalid":         {segment(xmp + "<tiff:Orientation>9</tiff:Orientation>"), Upright},
		"XMP, two digits":      {segment(xmp + "<tiff:Orientation>33</tiff:Orientation>"), Upright},
		"XMP, cut":             {segment(xmp + "<tiff:Orientation>"), Upright},
		"EXIF before XMP": {segment(xmp + `tiff:Orientation="3"`)[:2] +
			segment("Exif\x00\x00" + tiffTags(little, "II", 3, 1))[2:], Upright},
		"PNG, EXIF": {withChunk("eXIf", tiffTags(big, "MM", 4, 6)), TurnRight},
		"PNG, XMP": {withChunk("iTXt", "XML:com.adobe.xmp\x00\x00\x00\x00\x00"+`tiff:Orientation="6"`),
			TurnRight},
		"PNG, XMP after text": {withChunk("iTXt", "Comment\x00\x00\x00\x00\x00"+`tiff:Orientation="6"`), Upright},
		"none":                {photo, Upright},
	} {
		if got := OrientationOf([]byte(c.contents)); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

func TestOtherFormatsAreNamed(t *testing.T) {
	avif, err := os.ReadFile("testdata/formats/refused.avif")
	if err != nil {
		t.Fatal(err)
	}
	for start, want := range map[string]string{
		"RIFF\x10\x00\x00\x00WAVEfmt ": "no image of a known format",
		"text":                         "no image of a known format (JPEG, PNG, WebP, BMP, TIFF, GIF, PPM, PGM or PBM): begins with 74 65 78 74",
		string(avif):                   "the image has the format AVIF, want JPEG, PNG, WebP, BMP, TIFF, GIF, PPM, PGM or PBM: convert it with avifdec IN.avif OUT.png",
		"\x00\x00\x00\x18ftypheic":     "the image has the format HEIC",
		"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1heic": "heif-convert IN.heic OUT.jpg",
		"\xFF\x0A": "JPEG XL", "II+\x00": "BigTIFF",
		"RIFF\x10\x00\x00\x00WEBPICCP":                 "webp: no image data in a known format (VP8, VP8L): the program does not read this kind of WebP image",
		"RIFF\x10\x00\x00\x00WEBPVP8 \x09\x00\x00\x00": "unexpected EOF",
		"GIF89a": "gif: ", "BM\x00\x00": "EOF", "II*\x00": "EOF", "P6 3": "EOF", "P6 x": "want a number",
	} {
		if _, err := Describe([]byte(start)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", start, err, want)
		}
	}
}

// libpng ignores faults in chunks that do not affect pixels. A file may also end directly after its pixels.
func TestFaultsOutsideThePixelsOfAPNG(t *testing.T) {
	picture := pngOf(t, plain(9, 7, color.NRGBA{200, 100, 50, 255}))
	bad := []byte(chunk("tEXt", "Comment\x00none"))
	bad[len(bad)-1] ^= 1
	head, end := len(pngStart)+25, len(picture)-12
	d, err := NewDecoder(DecodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for name, c := range map[string]struct {
		contents string
		ok       bool
	}{
		"checksum of a text behind the pixels": {picture[:end] + string(bad) + picture[end:], true},
		"checksum of a text before the pixels": {picture[:head] + string(bad) + picture[head:], true},
		"no end chunk":                         {picture[:end], true},
		"checksum of the end chunk":            {picture[:len(picture)-1] + "\x00", true},
		"checksum of the pixels": {
			picture[:end-1] + string([]byte{picture[end-1] ^ 1}) + picture[end:], false},
		"checksum of the header": {picture[:head-1] + string([]byte{picture[head-1] ^ 1}) +
			picture[head:], false},
		"cut within the pixels, with a bad chunk": {picture[:end-20] + string(bad) + picture[end:], false},
	} {
		var img data.Image
		err := d.Decode([]byte(c.contents), nil, &img)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v, want decoded %v", name, err, c.ok)
		}
		if err == nil && !bytes.Equal(img.Pix[:3], []byte{200, 100, 50}) {
			t.Errorf("%s: pixels are %v", name, img.Pix[:3])
		}
		if _, err := Describe([]byte(c.contents)); c.ok && err != nil {
			t.Errorf("%s: describe: %v", name, err)
		}
	}
}

// Folders that are parts of a data set become classes if their names are not those of parts. If such folders have the
// same subfolders, a note must say so.
func TestPartsThatLookLikeClassesAreNoted(t *testing.T) {
	listed := func(names ...string) (l listing) {
		for _, name := range names {
			l.addName(name)
		}
		return l
	}
	for name, c := range map[string]struct {
		l    listing
		want bool
	}{
		"parts": {
			listed("trainA/cat/1.jpg", "trainA/dog/1.jpg", "testA/cat/1.jpg", "testA/dog/2.jpg"), true},
		"classes":                 {listed("cat/1.jpg", "dog/1.jpg"), false},
		"classes with subfolders": {listed("cat/a/1.jpg", "cat/b/1.jpg", "dog/a/1.jpg", "dog/c/1.jpg"), false},
		"one subfolder":           {listed("cat/images/1.jpg", "dog/images/1.jpg"), false},
		"images next to folders": {listed("cat/a/1.jpg", "cat/b/1.jpg", "cat/1.jpg", "dog/a/1.jpg", "dog/b/1.jpg"),
			false},
	} {
		a, err := arrange(c.l, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(a.notes, "\n"),
			"each of them has the folders cat, dog"); got != c.want {
			t.Errorf("%s: got the notes %q", name, a.notes)
		}
	}
}

func TestPNMHeadersAreNotTrusted(t *testing.T) {
	d, err := NewDecoder(DecodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for contents, want := range map[string]string{
		"P5 00000000012 1 255 x":             "a number of more than 10 digits",
		"P2 1 1 255 00000000012":             "a number of more than 10 digits",
		"P6 8000 8000 255 x":                 "unexpected EOF",
		"P5 8000 8000 65535 x":               "unexpected EOF",
		"P4 8000 8000 x":                     "unexpected EOF",
		"P3 8000 8000 255 1 2 3":             "unexpected EOF",
		"P1 8000 8000 1 0 1":                 "unexpected EOF",
		"P2 2 1 255 7 8":                     "",
		"P1 2 2 0110":                        "",
		"P4 9 1 " + "\x00\x00":               "",
		"P6 1 1 65535 " + "\x01\x02\x03\x04": "unexpected EOF",
	} {
		var img data.Image
		err := d.Decode([]byte(contents), nil, &img)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", contents, err, want)
		}
		if cap(d.pix) > 1000 {
			t.Fatalf("%q: %d bytes were allocated for pixels", contents, cap(d.pix))
		}
	}
}
