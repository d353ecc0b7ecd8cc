package jpeg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// frame describes an encoded image. Cameras write further data after its end marker, for example a video.
type frame struct {
	width, height int
	channels      int // 0 without a frame header
	bits          int // per channel
	end           int // offset after the end marker, or after all bytes if there is no end marker
	ended         bool
	scans         int     // passes over the pixels
	whole         bool    // the only scan has all channels and is not progressive
	frames        int     // frame headers; the other fields describe the first one
	kind          byte    // marker of the frame header
	lacks         bool    // a scan uses a table that no segment before it defines
	padded        bool    // the pixels contain runs of bytes 0xFF that stand for a single one
	vertical      bool    // a channel has half of the rows and all of the columns (4:4:0)
	quants        [4]byte // quantization tables of the channels
	tables        [3]byte // one bit for each table that is defined: quantization, DC codes, AC codes
	partial       bool    // a progressive image whose scans leave out a part of the first coefficients of its blocks
	ids           [4]byte
	accuracy      [4][10]int8 // bits of these coefficients of each channel that are still missing; -1: all
}

// Kinds of frames that only libturbojpeg decodes, and only some of its releases.
const (
	lossless              = 0xC3
	arithmetic            = 0xC9
	progressiveArithmetic = 0xCA
)

// foreign reports whether only some releases of libturbojpeg decode images of this kind. An image with a second frame
// header is damaged.
func (f *frame) foreign() bool {
	return f.frames == 1 && (f.kind == lossless || f.kind == arithmetic || f.kind == progressiveArithmetic)
}

// unequal reports whether the pixels of libturbojpeg depend on its release or on the processor, so that Go decodes the
// image. Releases differ in how they smooth incomplete images, and how they interpolate channels with half of the rows.
// With padded pixels, libturbojpeg may leave coefficients of its first attempt in a block.
func (f *frame) unequal() bool { return f.kind <= 0xC2 && (f.partial || f.vertical || f.padded) }

// start reads the frame header; contents has at least 6 bytes.
func (f *frame) start(marker byte, contents []byte) {
	if f.frames++; f.frames > 1 {
		return
	}
	f.kind = marker
	f.bits, f.channels = int(contents[0]), int(contents[5])
	f.height, f.width = int(binary.BigEndian.Uint16(contents[1:])), int(binary.BigEndian.Uint16(contents[3:]))
	var h, v [4]byte
	for i := range f.ids {
		f.accuracy[i] = [10]int8{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1}
		if at := 6 + 3*i; i < f.channels && at+2 < len(contents) {
			f.ids[i], h[i], v[i], f.quants[i] = contents[at], contents[at+1]>>4, contents[at+1]&15, contents[at+2]
		}
	}
	hMost, vMost := slices.Max(h[:]), slices.Max(v[:])
	for i := range f.ids {
		f.vertical = f.vertical || v[i] > 0 && h[i] == hMost && 2*v[i] == vMost
	}
}

// define records which tables a segment defines. It does not check for damage, because decoders refuse damaged
// segments.
func (f *frame) define(marker byte, contents []byte) {
	for len(contents) > 0 {
		class, id := contents[0]>>4, contents[0]&15
		size, kind := 1+64, 0
		switch {
		case marker == 0xC4 && len(contents) > maxCode:
			size, kind = 1+maxCode, 1+int(class&1)
			for _, n := range contents[1 : 1+maxCode] {
				size += int(n)
			}
		case marker == 0xDB && class > 0:
			size = 1 + 128
		}
		if len(contents) < size || id > 3 {
			return
		}
		f.tables[kind] |= 1 << id
		contents = contents[size:]
	}
}

// scan records the properties in the header of a scan.
func (f *frame) scan(contents []byte) {
	f.scans++
	f.whole = f.scans == 1 && f.kind <= 0xC1 && len(contents) > 0 && int(contents[0]) == f.channels
	if f.scans == 1 {
		for _, id := range f.quants[:min(f.channels, 4)] {
			f.lacks = f.lacks || f.kind != lossless && !f.has(0, id)
		}
	}
	count := 0
	if len(contents) > 0 {
		count = int(contents[0])
	}
	if count > 4 || len(contents) < 4+2*count {
		return // damaged
	}
	options := contents[1+2*count:]
	first, all := options[0] == 0 && options[2]>>4 == 0, f.kind == 0xC0 || f.kind == 0xC1
	for i := range count {
		dc, ac := contents[2+2*i]>>4, contents[2+2*i]&15
		if (all || f.kind == lossless || f.kind == 0xC2 && first) && !f.has(1, dc) ||
			(all || f.kind == 0xC2 && options[0] > 0) && !f.has(2, ac) {
			f.lacks = true
		}
	}
	if f.kind == 0xC2 {
		f.note(contents)
	}
}

// has reports whether a table is defined. For numbers above 3, it returns true, because decoders refuse such numbers.
func (f *frame) has(kind int, id byte) bool { return id > 3 || f.tables[kind]>>id&1 != 0 }

// note records the accuracy of coefficients after a scan of a progressive image. The parameter contents is the header
// of the scan, whose length the caller has checked.
func (f *frame) note(contents []byte) {
	count := int(contents[0])
	options := contents[1+2*count:]
	for i := range count {
		c := bytes.IndexByte(f.ids[:], contents[1+2*i])
		for k := int(options[0]); c >= 0 && k <= min(int(options[1]), 9); k++ {
			f.accuracy[c][k] = int8(options[2] & 15)
		}
	}
}

// left reports whether a coefficient is incomplete.
func (f *frame) left() bool {
	for _, accuracy := range f.accuracy[:min(max(f.channels, 0), 4)] {
		for _, bits := range accuracy {
			if bits != 0 {
				return true
			}
		}
	}
	return false
}

// frameOf reads the markers of an image up to its end marker, as decoders do: bytes before a marker are skipped, and a
// marker with a length is skipped together with its contents.
func frameOf(data []byte) (f frame) {
	f.end = len(data)
	defer func() { f.partial = f.kind == 0xC2 && f.left() }()
	at := min(2, len(data)) // after the start marker
	for {
		next := bytes.IndexByte(data[at:], 0xFF)
		if next < 0 {
			return f
		}
		from := at + next
		for at = from; at < len(data) && data[at] == 0xFF; at++ { // a marker may have several of these bytes
		}
		if at == len(data) {
			return f
		}
		marker := data[at]
		at++
		switch {
		case marker == 0xD9:
			f.end, f.ended = at, true
			return f
		case marker == 0 && at-from > 2:
			f.padded = true
			continue
		case marker <= 0x01, marker >= 0xD0 && marker <= 0xD8: // a byte of pixels, or a marker without contents
			continue
		case at+2 > len(data):
			return f
		}
		length := max(int(binary.BigEndian.Uint16(data[at:])), 2)
		contents := data[at+2 : max(at+2, min(at+length, len(data)))]
		at = min(at+length, len(data))
		switch {
		case marker == 0xDA:
			f.scan(contents)
		case marker == 0xC4, marker == 0xDB:
			f.define(marker, contents)
		case marker >= 0xC0 && marker <= 0xCF && marker != 0xC8 && marker != 0xCC && len(contents) >= 6:
			f.start(marker, contents)
		}
	}
}

// Shape returns the size of an image, its number of channels, and the bits of each. It decodes nothing.
func Shape(data []byte) (width, height, channels, bits int, err error) {
	f := frameOf(data)
	if f.width < 1 || f.height < 1 {
		return 0, 0, 0, 0, errors.New("jpeg: no frame header with a size")
	}
	return f.width, f.height, f.channels, f.bits, nil
}

// errCut reports an image that lacks its end marker, and may lack pixels.
var errCut = errors.New("jpeg: no end marker: truncated")

// image returns the bytes of the image, without data after its end marker. If there is no end marker but a single scan,
// image returns all bytes, because decoders detect missing pixels in this scan. Otherwise it returns errCut, because
// whole scans may be missing.
func (f frame) image(data []byte) ([]byte, error) {
	if !f.ended && !f.whole {
		return nil, errCut
	}
	return data[:f.end], nil
}
