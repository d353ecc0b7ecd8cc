package images

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"path"
	"slices"
	"strings"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/webp"
)

// format is a file format of images. The contents of a file determine the format, not the name.
type format string

// The formats that this package reads. pnm stands for PBM, PGM and PPM.
const (
	unknownFormat format = ""
	jpegFormat    format = "jpeg"
	pngFormat     format = "png"
	webpFormat    format = "webp"
	bmpFormat     format = "bmp"
	tiffFormat    format = "tiff"
	gifFormat     format = "gif"
	pnmFormat     format = "pnm"
)

// formatNames lists the formats for messages.
const formatNames = "JPEG, PNG, WebP, BMP, TIFF, GIF, PPM, PGM or PBM"

// Endings lists the file name extensions of images in shards and lists, without the dot. A file with one of these
// extensions may have any of the formats. Class folders permit fewer extensions.
var Endings = []string{"jpg", "jpeg", "png", "webp", "bmp", "tif", "tiff", "gif", "ppm", "pgm", "pbm", "pnm"}

// EndingsText lists the common extensions for messages.
const EndingsText = ".jpg, .jpeg, .png, .webp, .bmp, .tif, .tiff, .gif, .ppm, .pgm or .pbm"

// IsEnding reports whether a file name extension, without the dot, is that of an image. Upper case is allowed.
func IsEnding(ending string) bool { return slices.Contains(Endings, strings.ToLower(ending)) }

// foreignEndings are the extensions of image formats that this package cannot read.
var foreignEndings = map[string]string{".avif": "AVIF", ".heic": "HEIC", ".heif": "HEIC", ".hif": "HEIC",
	".jxl": "JPEG XL", ".jp2": "JPEG 2000"}

// conversions are the commands that convert images of unsupported formats.
var conversions = map[string]string{
	"AVIF":      "avifdec IN.avif OUT.png (Debian: libavif-bin)",
	"HEIC":      "heif-convert IN.heic OUT.jpg (Debian: libheif-examples)",
	"JPEG XL":   "djxl IN.jxl OUT.png (Debian: libjxl-tools)",
	"JPEG 2000": "opj_decompress -i IN.jp2 -o OUT.png (Debian: libopenjp2-tools)",
}

const anyConversion = "magick IN OUT.png"

// formatOf returns the format of an encoded image.
func formatOf(b []byte) format {
	starts := func(prefix string) bool { return bytes.HasPrefix(b, []byte(prefix)) }
	switch {
	case starts("\xFF\xD8"):
		return jpegFormat
	case starts(pngStart):
		return pngFormat
	case webp.Is(b):
		return webpFormat
	case starts("GIF87a"), starts("GIF89a"):
		return gifFormat
	case starts("II*\x00"), starts("MM\x00*"):
		return tiffFormat
	case starts("BM"):
		return bmpFormat
	case len(b) > 2 && b[0] == 'P' && b[1] >= '1' && b[1] <= '6' && isSpace(b[2]):
		return pnmFormat
	}
	return unknownFormat
}

// foreignFormat returns the name of an image format that this package cannot read, or "".
func foreignFormat(b []byte) string {
	if len(b) >= 12 && string(b[4:8]) == "ftyp" { // the brands of an ISO container
		for at := 8; at+4 <= min(len(b), 64); at += 4 {
			switch string(b[at : at+4]) {
			case "avif", "avis":
				return "AVIF"
			case "heic", "heix", "heim", "heis", "hevc", "hevx":
				return "HEIC"
			}
		}
		return ""
	}
	for _, f := range []struct{ start, name string }{
		{"\xFF\x0A", "JPEG XL"}, {"\x00\x00\x00\x0CJXL \r\n\x87\n", "JPEG XL"},
		{"\x00\x00\x00\x0CjP  \r\n\x87\n", "JPEG 2000"}, {"\xFF\x4F\xFF\x51", "JPEG 2000"},
		{"II+\x00", "BigTIFF"}, {"MM\x00+", "BigTIFF"}, {"8BPS", "Photoshop"}, {"%PDF", "PDF"}, {"<svg", "SVG"},
		{"P7\n", "PAM"}, {"PF\n", "PFM"}, {"Pf\n", "PFM"}, {"\x00\x00\x01\x00", "ICO"}, {"DDS ", "DDS"},
	} {
		if bytes.HasPrefix(b, []byte(f.start)) {
			return f.name
		}
	}
	return ""
}

// conversion returns the command that converts a format.
func conversion(format string) string {
	if command, ok := conversions[format]; ok {
		return command
	}
	return anyConversion
}

// otherFormat returns the error for an image in an unsupported format.
func otherFormat(contents []byte) error {
	if len(contents) == 0 {
		return errors.New("empty file")
	}
	if name := foreignFormat(contents); name != "" {
		return fmt.Errorf("the image has the format %s, want %s: convert it with %s", name, formatNames,
			conversion(name))
	}
	return fmt.Errorf("no image of a known format (%s): begins with % x", formatNames,
		contents[:min(len(contents), 8)])
}

// variant completes the error for a variant of a format that the decoder does not support.
func variant(f format, err error) error {
	if unsupported := tiff.UnsupportedError(""); errors.Is(err, bmp.ErrUnsupported) || errors.As(err, &unsupported) ||
		errors.Is(err, webp.ErrVariant) {
		return fmt.Errorf("%w: the program does not read this kind of %s image; convert it, for example with %s", err,
			map[format]string{webpFormat: "WebP", bmpFormat: "BMP", tiffFormat: "TIFF"}[f], anyConversion)
	}
	return err
}

// isImage reports whether a file name has the extension of an image.
func isImage(name string) bool {
	ext := path.Ext(name)
	return ext != "" && IsEnding(ext[1:])
}

// classEndings are the extensions of images in class folders. They are those of torchvision's ImageFolder, so that both
// read the same samples.
var classEndings = []string{"jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"}

// classEndingsText lists classEndings for messages.
const classEndingsText = ".jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff or .webp"

// isClassImage reports whether a file name has the extension of an image in a class folder.
func isClassImage(name string) bool {
	ext := path.Ext(name)
	return ext != "" && slices.Contains(classEndings, strings.ToLower(ext[1:]))
}

// others are files that a listing leaves out.
type others struct {
	foreign []string // names of images in formats that this package cannot read
	lists   []string // names of lists of labels
}

// addOther counts a file that is not an image of the listing.
func (l *listing) addOther(name string) {
	if foreignEndings[strings.ToLower(path.Ext(name))] != "" || isImage(name) {
		l.foreign = append(l.foreign, name)
		return
	}
	if base := path.Base(name); base == "metadata.csv" || base == "metadata.jsonl" {
		l.lists = append(l.lists, name)
	}
	l.ignored++
}

// reason states why an image is left out, and how to convert it.
func reason(name string) string {
	ext := strings.ToLower(path.Ext(name))
	if format := foreignEndings[ext]; format != "" {
		return fmt.Sprintf("the program does not read %s: convert the images with %s, or move them out of the folder",
			format, conversion(format))
	}
	return fmt.Sprintf("class folders use no %s files, as in torchvision (want %s): convert the images with %s", ext,
		classEndingsText, anyConversion)
}

// skipped returns a note about images that this package cannot read, or "".
func skipped(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%d images were skipped, such as %.200q: %s", len(names), names[0], reason(names[0]))
}

// refuseForeign returns an error if names is not empty. It must be called for a class or a data set without images in
// supported formats.
func refuseForeign(names []string) error {
	if len(names) == 0 {
		return nil
	}
	others := ""
	if len(names) > 1 {
		others = fmt.Sprintf(" and %d other files", len(names)-1)
	}
	return fmt.Errorf("%.200q%s: %s", names[0], others, reason(names[0]))
}

// checkClasses returns an error if a class folder after prefix contains only images of unsupported formats. Otherwise,
// the class would be missing, and all later classes would have other numbers.
func (l *listing) checkClasses(prefix string, classes map[string][]int32) error {
	var first string
	var names []string
	for _, name := range l.foreign {
		rest, ok := strings.CutPrefix(name, prefix)
		class, _, inFolder := strings.Cut(rest, "/")
		if _, known := classes[class]; !ok || !inFolder || known || first != "" && class != first {
			continue
		}
		first = class
		names = append(names, name)
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("class folder %.200q has no other images: %w", prefix+first, refuseForeign(names))
}

func (d *Decoder) decode(contents []byte, sizer data.Sizer, img *data.Image) error {
	f := formatOf(contents)
	var err error
	switch f {
	case jpegFormat:
		return d.decodeJPEG(contents, sizer, img)
	case pngFormat:
		return d.decodePNG(contents, img)
	case webpFormat:
		err = d.decodeWebP(contents, img)
	case gifFormat:
		err = d.decodeGIF(contents, img)
	case pnmFormat:
		err = d.decodePNM(contents, img)
	case tiffFormat:
		err = d.decodeTIFF(contents, img)
	case bmpFormat:
		err = d.decodeBMP(contents, img)
	default:
		err = otherFormat(contents)
	}
	return variant(f, err)
}

// decodeGIF decodes the first image of a GIF file. As in Pillow, the image has the size of the whole animation. If the
// first image is smaller, it is surrounded by the transparent colour, or else by the first colour.
func (d *Decoder) decodeGIF(contents []byte, img *data.Image) error {
	c, err := gif.DecodeConfig(bytes.NewReader(contents))
	if err != nil {
		return err
	}
	if err := d.checkSize(c.Width, c.Height); err != nil {
		return err
	}
	d.useLibrary(int64(c.Width) * int64(c.Height)) // indices of colours
	opaque, transparent := withoutTransparency(contents)
	decoded, err := gif.Decode(bytes.NewReader(opaque))
	if err != nil {
		return err
	}
	first, ok := decoded.(*image.Paletted)
	if !ok {
		return fmt.Errorf("gif: the first image has the type %T", decoded)
	}
	whole := image.Rect(0, 0, c.Width, c.Height)
	if first.Rect != whole {
		canvas := image.NewPaletted(whole, first.Palette)
		for i := range canvas.Pix {
			canvas.Pix[i] = transparent
		}
		for y := first.Rect.Min.Y; y < first.Rect.Max.Y; y++ {
			copy(canvas.Pix[canvas.PixOffset(first.Rect.Min.X, y):],
				first.Pix[first.PixOffset(first.Rect.Min.X, y):][:first.Rect.Dx()])
		}
		first = canvas
	}
	d.flattened(first, img)
	return nil
}

// withoutTransparency returns a copy of a GIF file in which the first image has no transparent colour. It also returns
// the index of the removed colour, or 0 if the image had no transparent colour. Package gif would replace the
// transparent colour by black.
func withoutTransparency(b []byte) (opaque []byte, transparent byte) {
	const header = 13 // bytes, before the global palette
	if len(b) < header {
		return b, 0
	}
	at := header
	if flags := b[10]; flags&0x80 != 0 {
		at += 3 << (flags&7 + 1)
	}
	control := -1 // position of the flags of the graphic control extension
	for at+1 < len(b) && b[at] == '!' {
		if b[at+1] == 0xF9 && at+6 < len(b) && b[at+2] == 4 {
			control = at + 3
		}
		at += 2
		for at < len(b) && b[at] != 0 { // blocks of data
			at += 1 + int(b[at])
		}
		at++
	}
	if control < 0 || b[control]&1 == 0 || at+9 >= len(b) || b[at] != ',' {
		return b, 0
	}
	transparent = b[control+3]
	colours := 2 << (b[10] & 7)
	if flags := b[at+9]; flags&0x80 != 0 {
		colours = 2 << (flags & 7)
	}
	if int(transparent) >= colours { // the palette lacks this colour, and package gif adds it
		return b, 0
	}
	opaque = bytes.Clone(b)
	opaque[control] &^= 1
	return opaque, transparent
}
