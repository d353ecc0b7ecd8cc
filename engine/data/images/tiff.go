package images

import (
	"encoding/binary"

	"golang.org/x/image/tiff"

	"github.com/hetero-train/hetero-train/engine/data"
)

// Tags of TIFF.
const (
	tiffWidth        = 256
	tiffHeight       = 257
	tiffBits         = 258 // per channel
	tiffCompression  = 259
	tiffPhotometric  = 262
	tiffFillOrder    = 266
	tiffStripOffsets = 273
	tiffChannels     = 277
	tiffRowsPerStrip = 278
	tiffStripBytes   = 279
	tiffPlanes       = 284
	tiffPredictor    = 317
	tiffTileWidth    = 322
	tiffSampleFormat = 339
)

// Values of tiffCompression.
const (
	tiffStored     = 1
	tiffLZW        = 5
	tiffDeflate    = 8
	tiffOldDeflate = 32946
)

// decodeTIFF decodes the first image of a TIFF file and rotates it upright, as Pillow always does.
func (d *Decoder) decodeTIFF(contents []byte, img *data.Image) error {
	if !d.decodePlainTIFF(contents, img) {
		d.release(0) // package tiff needs memory of the same size
		if err := d.decodeWith(tiff.Decode, tiff.DecodeConfig, contents, img); err != nil {
			return err
		}
		const blackIsZero = 1
		compression, _ := tagOf(contents, tiffCompression)
		photometric, _ := tagOf(contents, tiffPhotometric)
		if fax := compression >= 2 && compression <= 4; fax && photometric == blackIsZero {
			// libtiff stores the black runs of a fax as ones, which are white with this setting
			for i := range img.Pix {
				img.Pix[i] ^= 0xff
			}
		}
	}
	if o, _ := orientationIn(contents); o != Upright {
		d.upright = o.apply(d.upright, img)
	}
	return nil
}

// plainTIFF is a TIFF image with 8-bit RGB or grey pixels in strips.
type plainTIFF struct {
	width, height  int
	channels       int
	compression    int
	difference     bool // each byte is the difference to the pixel to the left
	rows           int  // rows of pixels in a strip
	starts, counts []uint32
}

// readPlainTIFF reads the first directory of a TIFF file. The result ok is false for images of other kinds, and for all
// faults.
func readPlainTIFF(b []byte) (t plainTIFF, ok bool) {
	if len(b) < 8 {
		return t, false
	}
	var order binary.ByteOrder = binary.BigEndian
	if b[0] == 'I' {
		order = binary.LittleEndian
	}
	at := int64(order.Uint32(b[4:]))
	if order.Uint16(b[2:]) != 42 || at+2 > int64(len(b)) {
		return t, false
	}
	n := int(order.Uint16(b[at:]))
	entries := b[at+2:]
	if len(entries) < 12*n {
		return t, false
	}
	t.compression = tiffStored
	photometric, channels, previous := -1, 1, -1
	var bits []uint32
	for ; n > 0; n-- {
		entry := entries[:12]
		entries = entries[12:]
		tag := int(order.Uint16(entry))
		if tag <= previous {
			return t, false
		}
		previous = tag
		var values []uint32
		most := int64(16)
		if tag == tiffStripOffsets || tag == tiffStripBytes {
			most = max(int64(t.height), 1)
		}
		switch tag {
		case tiffWidth, tiffHeight, tiffBits, tiffCompression, tiffPhotometric, tiffFillOrder, tiffStripOffsets,
			tiffChannels, tiffRowsPerStrip, tiffStripBytes, tiffPlanes, tiffPredictor, tiffSampleFormat:
			if values = tiffValues(b, order, entry, most); len(values) == 0 {
				return t, false
			}
		case tiffTileWidth:
			return t, false
		default:
			continue
		}
		first := int(int32(values[0]))
		switch tag {
		case tiffWidth:
			t.width = first
		case tiffHeight:
			t.height = first
		case tiffBits:
			bits = values
		case tiffCompression:
			t.compression = first
		case tiffPhotometric:
			photometric = first
		case tiffStripOffsets:
			t.starts = values
		case tiffChannels:
			channels = first
		case tiffRowsPerStrip:
			t.rows = first
		case tiffStripBytes:
			t.counts = values
		case tiffFillOrder, tiffPlanes:
			if first != 1 {
				return t, false
			}
		case tiffPredictor:
			if t.difference = first == 2; first > 2 {
				return t, false
			}
		case tiffSampleFormat:
			for _, format := range values {
				if format != 1 {
					return t, false
				}
			}
		}
	}
	for _, n := range bits {
		if n != 8 {
			return t, false
		}
	}
	const blackIsZero, rgb = 1, 2
	t.channels = map[int]int{blackIsZero: 1, rgb: 3}[photometric]
	if t.channels == 0 || channels != t.channels || len(bits) != channels || t.width < 1 || t.height < 1 {
		return t, false
	}
	if t.rows < 1 || t.rows > t.height {
		t.rows = t.height
	}
	strips := (t.height + t.rows - 1) / t.rows
	return t, len(t.starts) >= strips && len(t.counts) >= strips
}

// tiffValues returns the numbers of a directory entry. It returns nil if they are outside the file, if there are more
// than most, or if their type is not an unsigned integer of 16 or 32 bits.
func tiffValues(b []byte, order binary.ByteOrder, entry []byte, most int64) (values []uint32) {
	const short, long = 3, 4
	size, count := int64(2), int64(order.Uint32(entry[4:]))
	switch order.Uint16(entry[2:]) {
	case short:
	case long:
		size = 4
	default:
		return nil
	}
	if count > most {
		return nil
	}
	raw := entry[8:]
	if size*count > 4 {
		at := int64(order.Uint32(raw))
		if at+size*count > int64(len(b)) {
			return nil
		}
		raw = b[at:]
	}
	values = make([]uint32, count)
	for i := range values {
		if size == 2 {
			values[i] = uint32(order.Uint16(raw[2*i:]))
		} else {
			values[i] = order.Uint32(raw[4*i:])
		}
	}
	return values
}

// decodePlainTIFF decodes an image that readPlainTIFF accepts. It returns false for all other images, and for all
// faults; package tiff then decodes the image, or reports the error.
func (d *Decoder) decodePlainTIFF(contents []byte, img *data.Image) bool {
	t, ok := readPlainTIFF(contents)
	if !ok || d.checkSize(t.width, t.height) != nil {
		return false
	}
	packed := int64(0)
	for _, n := range t.counts[:(t.height+t.rows-1)/t.rows] {
		packed += int64(n)
	}
	if int64(t.width*t.height*t.channels)/mostExpansion(t.compression) > min(packed, int64(len(contents))) {
		return false
	}
	d.pix = grow(d.pix, 3*t.width*t.height)
	row := t.width * t.channels // bytes
	for k, y := 0, 0; y < t.height; k, y = k+1, y+t.rows {
		rows := min(t.rows, t.height-y)
		start, end := int64(t.starts[k]), int64(t.starts[k])+int64(t.counts[k])
		if end > int64(len(contents)) {
			return false
		}
		dst := d.pix[3*t.width*y:][:3*t.width*rows]
		strip := dst // the decompressed strip
		if t.channels == 1 {
			d.rows = grow(d.rows, row*rows)
			strip = d.rows
		}
		if !d.unpackStrip(strip, contents[start:end], t.compression) {
			return false
		}
		if t.difference {
			for at := 0; at < len(strip); at += row {
				unfilter(pngSub, strip[at:at+row], strip[at:at+row], t.channels)
			}
		}
		if t.channels == 1 {
			grey := plainPNG{colour: pngGrey}
			grey.flatten(dst, strip)
		}
	}
	*img = data.Image{Pix: d.pix, Width: t.width, Height: t.height, FullWidth: t.width, FullHeight: t.height}
	return true
}

// mostExpansion returns the largest ratio of a strip to its compressed size.
func mostExpansion(compression int) int64 {
	switch compression {
	case tiffLZW:
		return mostLZW
	case tiffDeflate, tiffOldDeflate:
		return mostDeflate
	}
	return 1
}

// unpackStrip decompresses a strip. It returns false if the data is damaged or the compression is unsupported.
func (d *Decoder) unpackStrip(strip, packed []byte, compression int) bool {
	switch compression {
	case tiffStored:
		return copy(strip, packed) == len(strip)
	case tiffLZW:
		if d.lzw == nil {
			d.lzw = new(lzw)
		}
		return d.lzw.decode(strip, packed)
	case tiffDeflate, tiffOldDeflate:
		return d.inflater.unpack(strip, packed)
	}
	return false
}
