package data

import (
	"errors"
	"fmt"
	"math"
)

// EraseMode is the kind of pixels that replace an erased rectangle.
type EraseMode uint8

// The modes of timm, converted from normalised images to bytes. A normalised value of 0 becomes the mean colour.
// Standard normal values become normal values with the mean and the standard deviation of the data.
const (
	EraseConst EraseMode = iota // mean colour of the data
	EraseRand                   // one random colour
	ErasePixel                  // a random colour for each pixel
)

// RandomErase erases rectangles. Their total area is 2 % to 1/3 of the image, and their aspect ratios are 0.3 to 1/0.3
// (Z. Zhong et al., "Random erasing data augmentation", 2017). The distribution and the number of attempts are those of
// timm.
type RandomErase struct {
	Probability float64
	Mode        EraseMode
	Count       int // largest number of rectangles; the actual number is drawn from 1 to Count; 0 means 1
	Normalization
}

func (r RandomErase) withDefaults() RandomErase {
	setDefault(&r.Count, 1)
	return r
}

func (r RandomErase) check(check func(name string, got, least, most float64)) error {
	check("probability of erasing", r.Probability, 0, 1)
	check("number of erased rectangles", float64(r.Count), 0, 1024)
	var errs []error
	if r.Mode > ErasePixel {
		errs = append(errs, fmt.Errorf("augmentation: unknown mode %d of erasing", r.Mode))
	}
	for _, std := range r.Std {
		if r.Probability > 0 && !(std > 0) {
			errs = append(errs, fmt.Errorf("augmentation: standard deviation of erased pixels is %g, want above 0",
				std))
		}
	}
	return errors.Join(errs...)
}

// logEraseRatio is ln(1/0.3).
const logEraseRatio = 1.2039728043259359926227462177618

// apply erases random rectangles of pix (size, size, 3).
func (r RandomErase) apply(d *draws, p *paint, pix []byte, size int) {
	if d.float64() >= r.Probability {
		return
	}
	count := 1 + d.below(r.Count)
	for range count {
		for range 10 {
			area := d.between(0.02, 1.0/3) * float64(size*size) / float64(count)
			ratio := exponentialWide(d.between(-logEraseRatio, logEraseRatio))
			h := int(math.RoundToEven(math.Sqrt(float64(area * ratio))))
			w := int(math.RoundToEven(math.Sqrt(area / ratio)))
			if w >= size || h >= size {
				continue
			}
			y := d.below(size - h + 1)
			p.fill(d, r.Mode, pix, size, rect{d.below(size - w + 1), y, w, h})
			break
		}
	}
}

// paint draws bytes of normally distributed colours. It uses Walker's alias method, with one 32-bit random number per
// byte.
type paint struct {
	mean  [3]byte
	alias [3][256]aliasEntry
}

// aliasEntry covers 1/256 of the probability. If the random number is below threshold, the result is the byte of the
// entry itself. Otherwise the result is the byte other.
type aliasEntry struct {
	threshold uint32 // compared with the lower 24 bits of the random number
	other     byte
}

// newPaint returns the tables for the bytes of mean + std·z, where z is standard normal. Mean and standard deviation
// are in units of full scale. The bytes are rounded and clamped to 0 … 255.
func newPaint(n Normalization) *paint {
	p := new(paint)
	for ch := range p.alias {
		mean, std := float64(float64(n.Mean[ch])*255), float64(float64(n.Std[ch])*255)
		p.mean[ch] = byte(min(max(math.RoundToEven(mean), 0), 255))
		var weight [256]float64 // probability of each byte, times 256
		below := 0.0
		for v := range weight {
			upTo := 1.0
			if v < 255 {
				upTo = normalBelow((float64(v) + 0.5 - mean) / std)
			}
			weight[v] = 256 * (upTo - below)
			below = upTo
		}
		p.alias[ch] = aliasTable(weight)
	}
	return p
}

// aliasTable builds a table with Vose's method.
func aliasTable(weight [256]float64) (table [256]aliasEntry) {
	var small, large []int
	sort := func(v int) {
		if weight[v] < 1 {
			small = append(small, v)
		} else {
			large = append(large, v)
		}
	}
	for v := range weight {
		sort(v)
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small, large = small[:len(small)-1], large[:len(large)-1]
		table[s] = aliasEntry{uint32(math.RoundToEven(weight[s] * (1 << 24))), byte(l)}
		weight[l] -= 1 - weight[s]
		sort(l)
	}
	for _, v := range append(small, large...) { // their weight is 1, except for rounding
		table[v] = aliasEntry{1 << 24, byte(v)}
	}
	return table
}

func (p *paint) draw(d *draws, ch int) byte {
	r := d.uint32()
	if e := &p.alias[ch][r>>24]; r&(1<<24-1) >= e.threshold {
		return e.other
	}
	return byte(r >> 24)
}

// fill fills a rectangle.
func (p *paint) fill(d *draws, mode EraseMode, pix []byte, size int, r rect) {
	color := p.mean
	if mode == EraseRand {
		color = [3]byte{p.draw(d, 0), p.draw(d, 1), p.draw(d, 2)}
	}
	for y := r.y; y < r.y+r.h; y++ {
		row := pix[3*(y*size+r.x):][:3*r.w]
		for len(row) >= 3 {
			if mode == ErasePixel {
				color = [3]byte{p.draw(d, 0), p.draw(d, 1), p.draw(d, 2)}
			}
			row[0], row[1], row[2] = color[0], color[1], color[2]
			row = row[3:]
		}
	}
}
