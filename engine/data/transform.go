package data

import (
	"errors"
	"fmt"
	"math"
)

// Crop determines how the output square is cut from an image.
type Crop uint8

const (
	// CentreCrop is for evaluation. It resizes the shorter side to Transform.Resize and cuts out the centre.
	CentreCrop Crop = iota
	// PadCrop is for training on small images. It adds Transform.Pad black pixels on each side and cuts out a random
	// square. If the image is not Size x Size, PadCrop first resizes it like CentreCrop.
	PadCrop
	// ResizedCrop is for training on photographs. It resizes a random rectangle. The rectangle covers a fraction of the
	// image between MinArea and 1, and its aspect ratio is between 3/4 and 4/3. The distribution is that of
	// torchvision's RandomResizedCrop, including the 10 attempts and the fallback. The fallback is the largest centred
	// rectangle within the ratios.
	ResizedCrop
)

func (c Crop) String() string {
	switch c {
	case CentreCrop:
		return "centre crop"
	case PadCrop:
		return "padded crop"
	case ResizedCrop:
		return "resized crop"
	}
	return fmt.Sprintf("crop %d", uint8(c))
}

// Transform converts images to one size. Its random choices are functions of (seed, epoch, sample index). Resizing is
// bilinear with antialiasing.
type Transform struct {
	Crop    Crop
	Size    int     // height and width of the output in pixels
	Pad     int     // PadCrop: number of pixels added on each side
	Resize  int     // CentreCrop: length of the shorter side before the crop, in pixels; 0 means Size
	MinArea float64 // ResizedCrop: smallest fraction of the area; 0 means 0.08
	Flip    bool    // mirror left to right with probability 1/2; no effect with CentreCrop
	Augment Augment // applied after crop and flip
}

// maxSize is the largest permitted size in pixels. It prevents overflow of products of sizes.
const maxSize = 1 << 14

// normalized returns the settings with defaults, or an error for invalid settings.
func (t Transform) normalized() (Transform, error) {
	if t.Resize == 0 {
		t.Resize = t.Size
	}
	if t.MinArea == 0 {
		t.MinArea = 0.08
	}
	var errs []error
	if t.Crop > ResizedCrop {
		errs = append(errs, fmt.Errorf("transform: unknown %v", t.Crop))
	}
	if t.Size < 1 || t.Size > maxSize {
		errs = append(errs, fmt.Errorf("transform: image size is %d pixels, want 1 to %d", t.Size, maxSize))
	}
	if t.Resize < t.Size || t.Resize > maxSize {
		errs = append(errs, fmt.Errorf("transform: shorter side is %d pixels, want %d (the image size) to %d", t.Resize,
			t.Size, maxSize))
	}
	if t.Pad < 0 || t.Pad > maxSize {
		errs = append(errs, fmt.Errorf("transform: padding is %d pixels, want 0 to %d", t.Pad, maxSize))
	}
	if !(t.MinArea > 0 && t.MinArea <= 1) {
		errs = append(errs, fmt.Errorf("transform: minimum area is %g of the image, want above 0 and at most 1",
			t.MinArea))
	}
	if t.Flip && t.Crop == CentreCrop {
		errs = append(errs,
			errors.New("transform: flip is set with a centre crop, want a padded or resized crop, or no flip"))
	}
	var err error
	if t.Augment, err = t.Augment.normalized(); err != nil {
		errs = append(errs, err)
	}
	return t, errors.Join(errs...)
}

// rect is a rectangle in an image, in pixels.
type rect struct{ x, y, w, h int }

// transformer applies a Transform. Each worker has its own transformer. As a Sizer, it returns sizes for the sample of
// the latest call of begin.
type transformer struct {
	t     Transform
	seed  uint64
	epoch int
	index int

	resampler resampler
	augmenter augmenter
	square    []byte // (Size, Size, 3), input of a padded crop
}

// prepared returns a transformer for a normalized Transform.
func (t Transform) prepared(seed uint64) transformer {
	p := transformer{t: t, seed: seed, augmenter: augmenter{a: t.Augment}}
	if t.Augment.Erase.Probability > 0 {
		p.augmenter.paint = newPaint(t.Augment.Erase.Normalization)
	}
	return p
}

// begin selects the sample for MinSize and apply.
func (p *transformer) begin(epoch, index int) { p.epoch, p.index = epoch, index }

// MinSize returns the smallest size at which the crop has at least as many pixels per axis as the output.
func (p *transformer) MinSize(width, height int) (int, int) {
	var scaleX, scaleY float64 // output pixels per image pixel
	if p.t.Crop == ResizedCrop {
		d := newDraws(p.seed, p.epoch, p.index, streamAugment)
		r := p.resizedRect(&d, width, height)
		scaleX, scaleY = float64(p.t.Size)/float64(r.w), float64(p.t.Size)/float64(r.h)
	} else {
		scaleX = float64(p.t.Resize) / float64(min(width, height))
		scaleY = scaleX
	}
	atLeast := func(n int, scale float64) int { return min(n, int(math.Ceil(float64(n)*scale))) }
	return atLeast(width, scaleX), atLeast(height, scaleY)
}

// apply writes the output for the current sample to dst (Size, Size, 3).
func (p *transformer) apply(dst []byte, img *Image) {
	p.cut(dst, img)
	p.augment(dst)
}

func (p *transformer) augment(dst []byte) {
	p.augmenter.apply(dst, p.t.Size, p.seed, p.epoch, p.index)
}

// cut crops, resizes and flips.
func (p *transformer) cut(dst []byte, img *Image) {
	d := newDraws(p.seed, p.epoch, p.index, streamAugment)
	switch p.t.Crop {
	case ResizedCrop:
		p.resizedCrop(dst, img, p.resizedRect(&d, img.FullWidth, img.FullHeight))
		if p.t.Flip && d.below(2) == 1 {
			mirror(dst, p.t.Size)
		}
	case PadCrop:
		x, y := d.below(2*p.t.Pad+1)-p.t.Pad, d.below(2*p.t.Pad+1)-p.t.Pad
		flip := p.t.Flip && d.below(2) == 1
		src := img.Pix
		if img.Width != p.t.Size || img.Height != p.t.Size {
			p.square = resize(p.square, len(dst))
			p.centreCrop(p.square, img)
			src = p.square
		}
		shifted(dst, src, p.t.Size, x, y, flip)
	default:
		p.centreCrop(dst, img)
	}
}

// resizedRect draws the rectangle of ResizedCrop in an image of w x h pixels.
func (p *transformer) resizedRect(d *draws, w, h int) rect {
	// ln(4/3): the logarithm of the aspect ratio is uniform in [-ln(4/3), ln(4/3)].
	const logRatio = 0.287682072451780927439219005993827
	area := float64(w) * float64(h)
	for range 10 {
		target := float64(area * (p.t.MinArea + float64((1-p.t.MinArea)*d.float64())))
		ratio := exponential(logRatio * float64(2*d.float64()-1))
		cw := int(math.RoundToEven(math.Sqrt(float64(target * ratio))))
		ch := int(math.RoundToEven(math.Sqrt(target / ratio)))
		if cw > 0 && cw <= w && ch > 0 && ch <= h {
			y := d.below(h - ch + 1)
			return rect{d.below(w - cw + 1), y, cw, ch}
		}
	}
	cw, ch := w, h
	switch {
	case 4*w < 3*h:
		ch = int(math.RoundToEven(float64(4*w) / 3))
	case 3*w > 4*h:
		cw = int(math.RoundToEven(float64(4*h) / 3))
	}
	return rect{(w - cw) / 2, (h - ch) / 2, cw, ch}
}

// resizedCrop resizes the rectangle r of the stored image to the output size.
func (p *transformer) resizedCrop(dst []byte, img *Image, r rect) {
	p.resampler.resample(dst, img.Pix, img.Width,
		cropAxis(r.x, r.w, img.Width, img.FullWidth, p.t.Size),
		cropAxis(r.y, r.h, img.Height, img.FullHeight, p.t.Size))
}

// cropAxis maps the pixels [start, start+length) of one side of the stored image to size output pixels. The parameter
// full is the length of the stored side in pixels. The parameter have is its length after a decode at reduced size.
// Only pixels that overlap the crop are read, including those that the border of the crop splits.
func cropAxis(start, length, have, full, size int) axis {
	return axis{
		from: float64(start) * float64(have) / float64(full),
		to:   float64(start+length) * float64(have) / float64(full),
		lo:   start * have / full,
		hi:   min(((start+length)*have+full-1)/full, have),
		grid: size, count: size,
	}
}

// centreCrop resizes the shorter side to Resize and cuts out the centre.
func (p *transformer) centreCrop(dst []byte, img *Image) {
	size, short := p.t.Size, p.t.Resize
	if img.Width == size && img.Height == size && short == size {
		copy(dst, img.Pix)
		return
	}
	gridX, gridY := short, short
	if img.FullWidth > img.FullHeight {
		gridX = short * img.FullWidth / img.FullHeight
	} else {
		gridY = short * img.FullHeight / img.FullWidth
	}
	window := func(have, grid int) axis {
		first := int(math.RoundToEven(float64(grid-size) / 2))
		return axis{to: float64(have), hi: have, grid: grid, first: first, count: size}
	}
	p.resampler.resample(dst, img.Pix, img.Width, window(img.Width, gridX), window(img.Height, gridY))
}

// shifted copies src (size, size, 3) to dst such that dst(i, j) = src(i+y, j+x). Pixels outside src are 0. If flip is
// set, the result is mirrored.
func shifted(dst, src []byte, size, x, y int, flip bool) {
	row := 3 * size
	// Columns [left, right) of the output come from the source.
	left, right := min(max(-x, 0), size), max(min(size-x, size), 0)
	left = min(left, right)
	for i := range size {
		out := dst[i*row:][:row]
		if sy := i + y; sy < 0 || sy >= size || left == right {
			clear(out)
		} else {
			clear(out[:3*left])
			copy(out[3*left:3*right], src[sy*row+3*(left+x):])
			clear(out[3*right:])
		}
	}
	if flip {
		mirror(dst, size)
	}
}

// mirror flips an image (size, size, 3) left to right in place.
func mirror(pix []byte, size int) {
	for row := 0; row < len(pix); row += 3 * size {
		line := pix[row:][:3*size]
		for i, j := 0, 3*(size-1); i < j; i, j = i+3, j-3 {
			a, b := line[i:i+3:i+3], line[j:j+3:j+3]
			a[0], a[1], a[2], b[0], b[1], b[2] = b[0], b[1], b[2], a[0], a[1], a[2]
		}
	}
}
