package jpeg

import "fmt"

// kept decodes one of several scans, and keeps the coefficients until the end of the image.
func (s *scan) kept() error {
	if s.p.progressive {
		if err := s.progress(); err != nil {
			return err
		}
	}
	if len(s.channels) == 1 { // the units are the blocks that hold samples
		c := s.channels[0]
		for y := range c.blocksHigh {
			for x := 0; x < c.blocksWide; x++ {
				if err := s.unit(); err != nil {
					return err
				}
				if err := s.block(0, y, x); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for y := range s.p.unitsHigh {
		for x := range s.p.unitsWide {
			if err := s.unit(); err != nil {
				return err
			}
			for i, c := range s.channels {
				for j := range c.v {
					for k := range c.h {
						if err := s.block(i, y*c.v+j, x*c.h+k); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return nil
}

// progress checks the range of a scan, and notes the accuracy of the coefficients after it.
func (s *scan) progress() error {
	if s.from == 0 && s.to != 0 || s.from > 0 && (s.from > s.to || s.to > 63 || len(s.channels) != 1) ||
		s.high != 0 && s.low != s.high-1 || s.low > 13 {
		return fmt.Errorf("jpeg: scan of coefficients %d to %d, bits %d to %d", s.from, s.to, s.high, s.low)
	}
	for _, c := range s.channels {
		for k := s.from; k <= s.to; k++ {
			c.accuracy[k] = int8(s.low)
		}
	}
	return nil
}

// noQuant leaves coefficients as they are.
var noQuant = func() (q [64]uint16) {
	for i := range q {
		q[i] = 1
	}
	return q
}()

// block decodes the part of a block that the scan contains. The block belongs to channel i of the scan.
func (s *scan) block(i, y, x int) error {
	c := s.channels[i]
	b := (*block)(c.coefficients[64*(y*c.stride+x):])
	switch {
	case !s.p.progressive:
		_, err := s.sequential(b, c, s.dc[i], s.ac[i], &noQuant)
		return err
	case s.from == 0 && s.high == 0:
		s.need(32)
		size, err := s.symbol(s.dc[i])
		if err != nil {
			return err
		}
		c.first += s.value(uint(size))
		b[0] = int16(c.first << s.low)
	case s.from == 0:
		if s.read(1) != 0 {
			b[0] |= 1 << s.low
		}
	case s.high == 0:
		return s.firstBits(b, s.ac[i])
	default:
		return s.nextBit(b, s.ac[i])
	}
	if s.n < 0 {
		return errBitsEnd
	}
	return nil
}

// firstBits reads the upper bits of a range of coefficients.
func (s *scan) firstBits(b *block, ac *huffman) error {
	if s.run > 0 {
		s.run--
		return nil
	}
	for k := s.from; k <= s.to; k++ {
		s.need(32)
		symbol, err := s.symbol(ac)
		if err != nil {
			return err
		}
		zeros, size := uint(symbol>>4), uint(symbol&15)
		switch {
		case size > 0:
			k += int(zeros)
			b[natural[k]] = int16(s.value(size) << s.low)
		case zeros == 15:
			k += 15
		default:
			s.runOf(zeros)
			s.run--
			k = s.to
		}
	}
	if s.n < 0 {
		return errBitsEnd
	}
	return nil
}

// runOf sets run to the number of blocks without further coefficients, including this one. The number is 1<<n plus an
// n-bit number that follows.
func (s *scan) runOf(n uint) {
	s.run = 1 << n
	if n > 0 {
		s.run += int(s.read(n))
	}
}

// nextBit reads one more bit of a range of coefficients.
func (s *scan) nextBit(b *block, ac *huffman) error {
	k, bit := s.from, int16(1)<<s.low
	for s.run == 0 && k <= s.to {
		s.need(32)
		symbol, err := s.symbol(ac)
		if err != nil {
			return err
		}
		zeros, size := int(symbol>>4), symbol&15
		value := int16(0)
		switch {
		case size > 1:
			return errBadCode
		case size == 1:
			if value = -bit; s.read(1) != 0 {
				value = bit
			}
		case zeros < 15:
			s.runOf(uint(zeros))
			continue
		}
		k = s.refine(b, k, zeros, bit)
		if value != 0 {
			b[natural[k]] = value
		}
		k++
	}
	if s.run > 0 {
		s.refine(b, k, 64, bit)
		s.run--
	}
	if s.n < 0 {
		return errBitsEnd
	}
	return nil
}

// refine reads one bit for each coefficient that is not 0, beginning at index k. It skips the given number of zero
// coefficients, and stops at the next zero coefficient. It returns the index of this coefficient, or the index after
// the range.
func (s *scan) refine(b *block, k, zeros int, bit int16) int {
	for ; k <= s.to; k++ {
		v := &b[natural[k]]
		switch {
		case *v == 0:
			if zeros == 0 {
				return k
			}
			zeros--
		case s.read(1) == 0 || *v&bit != 0:
		case *v > 0:
			*v += bit
		default:
			*v -= bit
		}
	}
	return k
}

// finish transforms the blocks of an image with several scans.
func (p *picture) finish() {
	if !p.several {
		return
	}
	smooth := p.smooth()
	var b block
	for _, c := range p.channels {
		stride := c.stride * c.size
		for y := range c.blocksHigh {
			for x := range c.blocksWide {
				b = block(c.coefficients[64*(y*c.stride+x):])
				if smooth {
					c.estimate(&b, y, x)
				}
				rest := int16(0)
				for i, v := range b {
					b[i] = int16(int32(v) * int32(c.quant[i]))
					if i > 0 {
						rest |= v
					}
				}
				if to := c.plane[(y*stride+x)*c.size:]; rest == 0 {
					flat(b[0], to, stride, c.size)
				} else {
					inverse(&b, to, stride, c.size)
				}
			}
		}
	}
}
