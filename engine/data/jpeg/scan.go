package jpeg

import (
	"errors"
	"fmt"
	"slices"
)

// scan describes one pass over channels of an image.
type scan struct {
	bitReader
	p        *picture
	channels []*channel
	list     [4]*channel
	dc, ac   [4]*huffman // of these channels
	// Of a progressive image: the range of coefficients, and the number of lower bits that this scan and the one before
	// leave out.
	from, to  int
	low, high int
	left      int // units up to the next restart marker
	restart   byte
	run       int // blocks that follow without further coefficients
}

var errBadScan = errors.New("jpeg: damaged scan header")

// scan decodes a scan; contents is its header.
func (p *picture) scan(contents []byte) error {
	switch {
	case len(p.channels) == 0:
		return errors.New("jpeg: a scan before the frame header")
	case p.whole:
		return errors.New("jpeg: a scan after one with all pixels")
	}
	if len(contents) < 1 || len(contents) != 4+2*int(contents[0]) || contents[0] < 1 || contents[0] > 4 {
		return errBadScan
	}
	count := int(contents[0])
	options := contents[1+2*count:]
	s := &p.pass
	*s = scan{p: p, from: int(options[0]), to: int(options[1]), high: int(options[2] >> 4), low: int(options[2] & 15)}
	if !p.progressive { // some files have invalid values here; these are the intended ones
		s.from, s.to, s.high, s.low = 0, 63, 0, 0
	}
	s.channels = s.list[:0]
	blocks := 0
	for i := range count {
		c := p.named(contents[1+2*i], s.channels)
		dc, ac := contents[2+2*i]>>4, contents[2+2*i]&15
		if c == nil {
			return errBadScan
		}
		s.channels = append(s.channels, c)
		if err := p.choose(s, i, dc, ac); err != nil {
			return err
		}
		if !c.known {
			if c.table > 3 || !p.quantSet[c.table] {
				return fmt.Errorf("jpeg: no quantization table %d", c.table)
			}
			c.quant, c.known = p.quants[c.table], true
		}
		c.first = 0
		blocks += c.h * c.v
	}
	if count > 1 && blocks > 10 {
		return errors.New("jpeg: more than 10 blocks in a unit")
	}
	s.bitReader = bitReader{data: p.data, at: p.at, lenient: !p.progressive}
	s.left, s.restart = p.interval, 0
	if !p.progressive && count == len(p.channels) && !p.several {
		p.whole = true
		if err := s.direct(); err != nil {
			return err
		}
		return s.end()
	}
	p.keepCoefficients()
	if err := s.kept(); err != nil {
		return err
	}
	return s.end()
}

// named returns the channel with the given id that is not part of the scan yet, or nil. If several channels have the
// same id, it chooses like libjpeg.
func (p *picture) named(id byte, before []*channel) (found *channel) {
	for i, c := range p.channels {
		if c.id != id || slices.Contains(before, c) {
			continue
		}
		if i >= len(before) {
			return c
		}
		found = c
	}
	return found
}

// choose sets the tables of the scan's channel i.
func (p *picture) choose(s *scan, i int, dc, ac byte) error {
	needsDC, needsAC := s.from == 0 && s.high == 0, s.to > 0
	if needsDC && dc > 3 || needsAC && ac > 3 {
		return errBadScan
	}
	s.dc[i], s.ac[i] = &p.dc[dc&3], &p.ac[ac&3]
	if !p.progressive { // Motion JPEG omits the tables of the standard
		s.dc[i].standard(&standardDC, dc)
		s.ac[i].standard(&standardAC, ac)
	}
	if needsDC {
		if err := s.dc[i].use(true); err != nil {
			return err
		}
	}
	if needsAC {
		return s.ac[i].use(false)
	}
	return nil
}

// keepCoefficients gets the memory for the coefficients of all channels, before the first scan.
func (p *picture) keepCoefficients() {
	if p.several {
		return
	}
	p.several = true
	for _, c := range p.channels {
		n := 64 * c.stride * p.unitsHigh * c.v
		if cap(c.coefficients) < n {
			c.coefficients = make([]int16, n)
			continue
		}
		c.coefficients = c.coefficients[:n]
		clear(c.coefficients)
	}
}

// direct decodes the only scan of an image, and transforms each block immediately.
func (s *scan) direct() error {
	var b block
	for y := range s.p.unitsHigh {
		for x := range s.p.unitsWide {
			if err := s.unit(); err != nil {
				return err
			}
			for i, c := range s.channels {
				stride := c.stride * c.size
				for j := range c.v {
					to := c.plane[((y*c.v+j)*stride+x*c.h)*c.size:]
					for k := range c.h {
						b = block{}
						last, err := s.sequential(&b, c, s.dc[i], s.ac[i], &c.quant)
						if err != nil {
							return err
						}
						if last == 0 {
							flat(b[0], to[k*c.size:], stride, c.size)
						} else {
							inverse(&b, to[k*c.size:], stride, c.size)
						}
					}
				}
			}
		}
	}
	return nil
}

// unit prepares the next unit: it reads a restart marker if one is due.
func (s *scan) unit() error {
	if s.p.interval == 0 {
		return nil
	}
	if s.left > 0 {
		s.left--
		return nil
	}
	if err := s.end(); err != nil {
		return err
	}
	marker, err := s.p.next()
	if err != nil {
		return err
	}
	if marker != 0xD0+s.restart {
		return fmt.Errorf("jpeg: damaged: marker %#02x, want the restart marker %#02x", marker, 0xD0+s.restart)
	}
	s.bitReader = bitReader{data: s.data, at: s.p.at, lenient: s.lenient}
	s.restart, s.left, s.run = (s.restart+1)&7, s.p.interval-1, 0
	for _, c := range s.channels {
		c.first = 0
	}
	return nil
}

// end moves the position in the image to the byte after those that the scan has read.
func (s *scan) end() error {
	if s.n < 0 {
		return errBitsEnd
	}
	if s.n >= 8 && s.p.complain {
		return errCut
	}
	s.p.at = s.at
	return nil
}

// sequential reads a block of an image that is not progressive, multiplied by quant. It returns the index of the last
// coefficient that is not 0, in the order of the file.
func (s *scan) sequential(b *block, c *channel, dc, ac *huffman, quant *[64]uint16) (last int, err error) {
	s.need(32)
	size, err := s.symbol(dc)
	if err != nil {
		return 0, err
	}
	c.first += s.value(uint(size))
	b[0] = int16(c.first * int32(quant[0]))
	for k := 1; k < 64; k++ {
		s.need(32)
		if e := ac.whole[s.bits>>(64-lookBits)]; e != 0 {
			s.bits <<= uint(e & 15)
			s.n -= int(e & 15)
			k += int(e>>4) & 15
			at := natural[k] & 63
			b[at] = int16(int32(e>>8) * int32(quant[at]))
			last = k
			continue
		}
		symbol, err := s.symbol(ac)
		if err != nil {
			return 0, err
		}
		zeros, size := int(symbol>>4), uint(symbol&15)
		if size == 0 {
			if zeros != 15 {
				break
			}
			k += 15
			continue
		}
		k += zeros
		at := natural[k] & 63
		b[at] = int16(s.value(size) * int32(quant[at]))
		last = k
	}
	if s.n < 0 {
		return 0, errBitsEnd
	}
	return last, nil
}
