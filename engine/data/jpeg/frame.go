package jpeg

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// frame describes an encoded image. Cameras write further data behind its end marker, for example a video.
type frame struct {
	width, height int
	channels      int // 0 without a frame header
	bits          int // per channel
	end           int // bytes up to and including the end marker; the number of all bytes without one
	ended         bool
	scans         int  // passes over the pixels
	whole         bool // the only scan has all channels and is not progressive
	kind          byte // marker of the frame header
	partial       bool // a progressive image whose scans leave out a part of the first coefficients of its blocks
	ids           [4]byte
	accuracy      [4][10]int8 // bits of these coefficients of each channel that are still missing; -1: all
}

// note notes the coefficients of a scan of a progressive image; contents is its header.
func (f *frame) note(contents []byte) {
	count := 0
	if len(contents) > 0 {
		count = int(contents[0])
	}
	if count > 4 || len(contents) < 4+2*count {
		return // damaged
	}
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
	progressive := false
	defer func() { f.partial = progressive && f.left() }()
	at := min(2, len(data)) // after the start marker
	for {
		next := bytes.IndexByte(data[at:], 0xFF)
		if next < 0 {
			return f
		}
		for at += next; at < len(data) && data[at] == 0xFF; at++ { // a marker may have several of these bytes
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
			if f.scans++; progressive {
				f.note(contents)
			}
			f.whole = f.scans == 1 && !progressive && len(contents) > 0 && int(contents[0]) == f.channels
		case marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC &&
			len(contents) >= 6:
			progressive, f.kind = marker > 0xC1, marker
			for i := range f.ids {
				f.accuracy[i] = [10]int8{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1}
				if at := 6 + 3*i; at < len(contents) {
					f.ids[i] = contents[at]
				}
			}
			f.bits, f.channels = int(contents[0]), int(contents[5])
			f.height, f.width = int(binary.BigEndian.Uint16(contents[1:])), int(binary.BigEndian.Uint16(contents[3:]))
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

// image returns the bytes of the image alone. Without an end marker, it returns all bytes if a decoder detects missing
// pixels; of several scans, whole scans could be missing.
func (f frame) image(data []byte) ([]byte, error) {
	if !f.ended && !f.whole {
		return nil, errCut
	}
	return data[:f.end], nil
}
