package data

import (
	"errors"
	"fmt"
	"math"
)

// SyntheticOptions describes a synthetic data set.
type SyntheticOptions struct {
	Seed    uint64 // seed of patterns and samples
	Train   int    // number of training samples; 0 means 50,000
	Eval    int    // number of evaluation samples, all different from the training samples; 0 means 10,000
	Classes int    // number of classes, 2 … 65,536; 0 means 10
	Size    int    // height and width in pixels, 1 … 4,096; 0 means 32
}

// mostSynthetic is the largest number of samples in a part of a synthetic data set. The order of an epoch needs 4 bytes
// per sample, so this limit allows 1 GiB. A larger data set could exhaust the memory, and the system would end the
// process without a message.
const mostSynthetic = 1 << 28

// Synthetic returns a data set that a model can learn and that needs no files. Each class has a colour and two plane
// waves. A sample shows them with random phases and contrast under strong noise. The label of sample i is i modulo
// Classes. Every byte is a function of (Seed, part, i) only, computed with integers.
func Synthetic(o SyntheticOptions) (Splits, error) {
	setDefault(&o.Train, 50_000)
	setDefault(&o.Eval, 10_000)
	setDefault(&o.Classes, 10)
	setDefault(&o.Size, 32)
	var errs []error
	check := func(name string, got, least, most int) {
		if got < least || got > most {
			errs = append(errs, fmt.Errorf("synthetic images: %s is %d, want %d to %d", name, got, least, most))
		}
	}
	check("number of training samples", o.Train, 1, mostSynthetic)
	check("number of evaluation samples", o.Eval, 1, mostSynthetic)
	check("number of classes", o.Classes, 2, 1<<16)
	check("image size in pixels", o.Size, 1, 4096)
	if len(errs) > 0 {
		return Splits{}, errors.Join(errs...)
	}
	s := synthetic{seed: o.Seed, size: o.Size, class: make([]wavePattern, o.Classes), names: make([]string, o.Classes)}
	for c := range s.class {
		s.class[c] = newWavePattern(o.Seed, c)
		s.names[c] = fmt.Sprintf("class_%02d", c)
	}
	for i := range s.sine {
		s.sine[i] = int32(math.Round(127 * math.Sin(2*math.Pi*float64(i)/256)))
	}
	train, eval := s, s
	train.samples, train.part = o.Train, 0
	eval.samples, eval.part = o.Eval, 1
	return Splits{Train: &train, Eval: &eval, OwnEval: true, Normalization: NormalizeSynthetic}, nil
}

type synthetic struct {
	seed    uint64
	part    int // 0 for training, 1 for evaluation
	samples int
	size    int // height and width in pixels
	class   []wavePattern
	names   []string
	sine    [256]int32 // one period of a sine, -127 … 127
}

// wavePattern contains the common properties of all samples of a class.
type wavePattern struct {
	base [3]int32 // mean colour, offset from 128
	wave [2]struct {
		fx, fy int32    // number of periods across the image
		color  [3]int32 // contrast of each channel, -64 … 63
	}
}

func newWavePattern(seed uint64, class int) wavePattern {
	d := newDraws(seed, 0, class, streamClass)
	var p wavePattern
	for ch := range p.base {
		p.base[ch] = int32(d.below(65)) - 32
	}
	for w := range p.wave {
		p.wave[w].fx, p.wave[w].fy = int32(d.below(5)), int32(d.below(9))-4
		for ch := range p.wave[w].color {
			p.wave[w].color[ch] = int32(d.below(128)) - 64
		}
	}
	return p
}

func (s *synthetic) Len() int          { return s.samples }
func (s *synthetic) Classes() []string { return s.names }
func (s *synthetic) Label(i int) int   { return i % len(s.class) }

func (s *synthetic) NewReader() (Reader, error) {
	return &syntheticReader{s: s, pix: make([]byte, 3*s.size*s.size)}, nil
}

type syntheticReader struct {
	s   *synthetic
	pix []byte
}

func (r *syntheticReader) Close() error { return nil }

func (r *syntheticReader) Read(i int, _ Sizer, img *Image) error {
	s, size := r.s, r.s.size
	d := newDraws(s.seed, s.part, i, streamSynthetic)
	p := &s.class[s.Label(i)]
	var phase, contrast [2]uint32
	for w := range phase {
		phase[w] = uint32(d.below(1 << 16)) // in units of 1/65,536 of a period
		contrast[w] = uint32(64 + d.below(65))
	}
	noise := noiseBytes{draws: d}
	at := 0
	for y := range size {
		var u, du [2]uint32 // phases along the row and their increments
		for w := range u {
			u[w] = phase[w] + uint32(int64(p.wave[w].fy)*int64(y)<<16/int64(size))
			du[w] = uint32(p.wave[w].fx << 16 / int32(size))
		}
		for range size {
			w0 := s.sine[u[0]>>8&255] * int32(contrast[0])
			w1 := s.sine[u[1]>>8&255] * int32(contrast[1])
			for ch := range 3 {
				v := 128 + p.base[ch] + (w0*p.wave[0].color[ch]+w1*p.wave[1].color[ch])>>15
				v += (int32(noise.next()) - 128) * 3 >> 2
				r.pix[at+ch] = uint8(min(max(v, 0), 255))
			}
			at += 3
			u[0] += du[0]
			u[1] += du[1]
		}
	}
	*img = Image{Pix: r.pix, Width: size, Height: size, FullWidth: size, FullHeight: size}
	return nil
}

// noiseBytes returns the random numbers of draws byte by byte.
type noiseBytes struct {
	draws
	word uint32
	left int
}

func (n *noiseBytes) next() uint8 {
	if n.left == 0 {
		n.word, n.left = n.uint32(), 4
	}
	b := uint8(n.word)
	n.word >>= 8
	n.left--
	return b
}
