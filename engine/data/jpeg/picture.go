package jpeg

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// natural maps the index of a coefficient in the file to its position in a block. The last entries are for damaged
// files, whose runs of zeros may exceed a block.
var natural = [64 + 16]uint8{
	0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33,
	40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36,
	29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
	47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
}

// Colours as stored.
const (
	grey = iota
	ycc
	rgb
	cmyk
	ycck
)

// channel is one channel of an image.
type channel struct {
	id            byte
	h, v          int // sampling factors
	fileV         int // sampling factor in the file; differs from v if there is a single channel
	table         byte
	quant         [64]uint16 // in the order of a block; defined at its first scan
	known         bool       // quant is known
	blocksWide    int        // blocks that hold samples
	blocksHigh    int
	stride        int // blocks in a row, with those that fill the last unit of the image
	size          int // samples along a side of a decoded block: 8, 4, 2, or 1
	width, height int // samples of the image
	plane         []byte
	coefficients  []int16 // of all blocks, if the image has several scans; not multiplied by quant
	accuracy      [64]int8
	first         int32 // previous first coefficient
}

// picture decodes one image with Go, and keeps its buffers for the next one.
type picture struct {
	data          []byte
	at            int
	width, height int
	progressive   bool
	channels      []*channel
	four          [4]channel
	list          [4]*channel
	pass          scan
	hMost, vMost  int // largest sampling factors
	unitsWide     int // units of the image; a unit has h x v blocks of each channel
	unitsHigh     int
	several       bool // the image has several scans
	whole         bool // a scan had all pixels
	quants        [4][64]uint16
	quantSet      [4]bool
	dc, ac        [4]huffman
	interval      int // units between restart markers; 0: none
	jfif, adobe   bool
	transform     byte // of Adobe's marker
	smallest      int  // samples along a side of a block of the channel with the largest factors
	complain      bool // the image lacks its end marker, so bytes between segments are an error, too
	upsampler
}

// maxKept limits the buffers that remain for the next image, in bytes of one channel.
const maxKept = 16 << 20

// decode decodes an image whose header is h.
func (p *picture) decode(data []byte, h Header, denominator int, buf []byte) ([]byte, int, int, error) {
	p.data, p.at = data, 2
	p.channels, p.several, p.whole, p.interval = p.list[:0], false, false, 0
	p.quantSet = [4]bool{}
	for i := range p.dc {
		p.dc[i].known, p.ac[i].known = false, false
	}
	p.jfif, p.adobe, p.transform = false, false, 0
	p.smallest = 8 / denominator
	p.complain = !h.frame.ended
	defer p.release()
	if len(data) < 2 || data[0] != 0xFF || data[1] != 0xD8 {
		return nil, 0, 0, errors.New("jpeg: no start marker")
	}
	if err := p.scans(h); err != nil {
		if p.complain {
			err = fmt.Errorf("%w (%w)", errCut, err)
		}
		return nil, 0, 0, err
	}
	width, height := (p.width+denominator-1)/denominator, (p.height+denominator-1)/denominator
	pix := grow(buf, 3*width*height)
	if err := p.write(pix, width, height); err != nil {
		return nil, 0, 0, err
	}
	return pix, width, height, nil
}

// release frees large buffers.
func (p *picture) release() {
	p.data = nil
	for i := range p.four {
		c := &p.four[i]
		if cap(c.plane) > maxKept {
			c.plane = nil
		}
		if cap(c.coefficients) > maxKept/2 {
			c.coefficients = nil
		}
	}
}

// scans reads all segments up to the end marker, and decodes the scans.
func (p *picture) scans(h Header) error {
	found := 0
	for {
		marker, err := p.next()
		if err != nil {
			return err
		}
		switch {
		case marker == 0xD9:
			if found == 0 {
				return errors.New("jpeg: no scan")
			}
			p.finish()
			return nil
		case marker == 0x01, marker >= 0xD0 && marker <= 0xD7: // without contents
			continue
		case marker < 0xC0, marker == 0xC8, marker == 0xD8, marker == 0xDE, marker == 0xDF,
			marker >= 0xF0 && marker < 0xFE:
			return fmt.Errorf("jpeg: unexpected marker %#02x", marker)
		}
		if p.at+2 > len(p.data) {
			return errCut
		}
		length := int(binary.BigEndian.Uint16(p.data[p.at:]))
		if length < 2 || p.at+length > len(p.data) {
			return errCut
		}
		contents := p.data[p.at+2 : p.at+length]
		p.at += length
		switch {
		case marker == 0xC4:
			err = p.huffmanTables(contents)
		case marker == 0xDB:
			err = p.quantTables(contents)
		case marker == 0xDD:
			if len(contents) != 2 {
				return errors.New("jpeg: damaged restart interval")
			}
			p.interval = int(binary.BigEndian.Uint16(contents))
		case marker == 0xDA:
			found++
			err = p.scan(contents)
		case marker == 0xE0:
			p.jfif = p.jfif || len(contents) >= 14 && string(contents[:5]) == "JFIF\x00"
		case marker == 0xEE:
			if len(contents) >= 12 && string(contents[:5]) == "Adobe" {
				p.adobe, p.transform = true, contents[11]
			}
		case marker >= 0xC0 && marker <= 0xC2:
			p.progressive = marker == 0xC2
			err = p.start(contents, h)
		case marker >= 0xC3 && marker <= 0xCF && marker != 0xCC: // 0xCC prepares arithmetic codes
			return unsupportedFrame(h.frame)
		}
		if err != nil {
			return err
		}
	}
}

// next skips bytes up to the next marker and returns the marker. At the end of the data, it returns the end marker.
func (p *picture) next() (byte, error) {
	for {
		skipped := 0
		for p.at < len(p.data) && p.data[p.at] != 0xFF {
			p.at, skipped = p.at+1, skipped+1
		}
		for p.at < len(p.data) && p.data[p.at] == 0xFF {
			p.at++
		}
		if p.at == len(p.data) {
			if skipped > 0 && p.complain {
				return 0, errCut
			}
			return 0xD9, nil
		}
		marker := p.data[p.at]
		p.at++
		if (skipped > 0 || marker == 0) && p.complain {
			return 0, errCut
		}
		if marker != 0 {
			return marker, nil
		}
	}
}

func (p *picture) quantTables(contents []byte) error {
	for len(contents) > 0 {
		id, wide := contents[0]&15, contents[0]>>4 != 0
		contents = contents[1:]
		size := 64
		if wide {
			size = 128
		}
		if id > 3 || len(contents) < size {
			return errors.New("jpeg: damaged quantization table")
		}
		for i := range 64 {
			if wide {
				p.quants[id][natural[i]] = binary.BigEndian.Uint16(contents[2*i:])
			} else {
				p.quants[id][natural[i]] = uint16(contents[i])
			}
		}
		p.quantSet[id] = true
		contents = contents[size:]
	}
	return nil
}

func (p *picture) huffmanTables(contents []byte) error {
	for len(contents) > 0 {
		id := contents[0] & 15
		if contents[0]>>4 > 1 || id > 3 {
			return errBadTable
		}
		table := &p.dc[id]
		if contents[0]>>4 == 1 {
			table = &p.ac[id]
		}
		n, err := table.set(contents[1:])
		if err != nil {
			return err
		}
		contents = contents[1+n:]
	}
	return nil
}

// unsupported reports an image that libturbojpeg may be able to read. The data set must not replace the image, because
// ranks with libturbojpeg would not replace it.
type unsupported string

func (e unsupported) Error() string {
	return fmt.Sprintf("jpeg: %s: install it, and build the program again", string(e))
}

// Unavailable reports that another machine may read the image.
func (unsupported) Unavailable() bool { return true }

// unsupportedFrame returns the error of an image with a frame that this decoder does not read.
func unsupportedFrame(f frame) error {
	switch {
	case f.foreign() && f.kind == lossless:
		return unsupported("lossless coding, which libturbojpeg 3 reads")
	case f.foreign():
		return unsupported("arithmetic coding, which libturbojpeg reads")
	case f.frames > 1:
		return errFrames
	}
	return fmt.Errorf("jpeg: coding process %#02x, which usual decoders do not read", f.kind)
}

var errFrames = errors.New("jpeg: several frames")

// start reads the frame header, and gets the memory for the samples.
func (p *picture) start(contents []byte, h Header) error {
	switch {
	case len(p.channels) > 0:
		return errFrames
	case len(contents) < 6 || len(contents) != 6+3*int(contents[5]):
		return errors.New("jpeg: damaged frame header")
	}
	if err := checkFrame(int(contents[0]), int(contents[5])); err != nil {
		return err
	}
	p.height, p.width = int(binary.BigEndian.Uint16(contents[1:])), int(binary.BigEndian.Uint16(contents[3:]))
	if p.width != h.Width || p.height != h.Height {
		return fmt.Errorf("jpeg: frame of %d x %d pixels, want %d x %d as in the header", p.width, p.height, h.Width,
			h.Height)
	}
	p.hMost, p.vMost = 1, 1
	count := int(contents[5])
	for i := range count {
		c, at := &p.four[i], 6+3*i
		*c = channel{id: contents[at], h: int(contents[at+1] >> 4), v: int(contents[at+1] & 15), table: contents[at+2],
			fileV: int(contents[at+1] & 15), plane: c.plane, coefficients: c.coefficients}
		if c.h < 1 || c.h > 4 || c.v < 1 || c.v > 4 {
			return fmt.Errorf("jpeg: sampling factors %d x %d, want 1 to 4", c.h, c.v)
		}
		p.hMost, p.vMost = max(p.hMost, c.h), max(p.vMost, c.v)
		for k := range c.accuracy {
			c.accuracy[k] = -1
		}
		p.channels = append(p.channels, c)
	}
	if count == 1 { // the blocks of a single channel lie in rows, independent of its factors
		p.four[0].h, p.four[0].v, p.hMost, p.vMost = 1, 1, 1, 1
	}
	p.unitsWide, p.unitsHigh = quotient(p.width, 8*p.hMost), quotient(p.height, 8*p.vMost)
	for _, c := range p.channels {
		// A channel with fewer samples than the others is reduced less.
		c.size = p.smallest
		for c.size < 8 && p.hMost*p.smallest%(2*c.h*c.size) == 0 && p.vMost*p.smallest%(2*c.v*c.size) == 0 {
			c.size *= 2
		}
		c.blocksWide, c.blocksHigh = quotient(p.width*c.h, 8*p.hMost), quotient(p.height*c.v, 8*p.vMost)
		c.width, c.height = quotient(p.width*c.h*c.size, 8*p.hMost), quotient(p.height*c.v*c.size, 8*p.vMost)
		c.stride = p.unitsWide * c.h
	}
	for _, c := range p.channels {
		c.plane = grow(c.plane, c.stride*c.size*p.unitsHigh*c.v*c.size)
	}
	return nil
}

// checkFrame refuses frames that no decoder of this package reads.
func checkFrame(bits, channels int) error {
	switch {
	case bits != 8:
		return fmt.Errorf("jpeg: %d bits per channel, want 8", bits)
	case channels != 1 && channels != 3 && channels != 4:
		return fmt.Errorf("jpeg: %d channels, want 1, 3 or 4", channels)
	}
	return nil
}

func quotient(a, b int) int { return (a + b - 1) / b } // rounded up

// stored returns the representation of the stored colours, in accordance with the rules of libjpeg.
func (p *picture) stored() int {
	switch c := p.channels; {
	case len(c) == 1:
		return grey
	case len(c) == 4 && (!p.adobe || p.transform == 0):
		return cmyk
	case len(c) == 4:
		return ycck
	case p.jfif:
		return ycc
	case p.adobe && p.transform == 0, !p.adobe && c[0].id == 'R' && c[1].id == 'G' && c[2].id == 'B':
		return rgb
	}
	return ycc
}
