package webp

import "image"

// rows are the rows of an RGB image, 3 bytes per pixel.
type rows struct {
	pix    []byte
	stride int // bytes
}

func (r rows) row(y int) []byte { return r.pix[y*r.stride:] }

// fromVideo converts an image whose chroma has half the width and height to RGB. Each chroma sample is in the middle of
// four pixels. It is interpolated with the weights 9/16, 3/16, 3/16 and 1/16. The order of operations is that of
// libwebp, so that the pixels are bit-equal.
func fromVideo(dst rows, src *image.YCbCr, width, height int) {
	half := (height + 1) / 2
	for y := range height {
		near := y / 2
		far := max(near-1, 0)
		if y%2 == 1 {
			far = min(near+1, half-1)
		}
		luma := src.Y[y*src.YStride:][:width]
		convertRow(dst.row(y), luma, &chromaRows{src.Cb[near*src.CStride:], src.Cr[near*src.CStride:],
			src.Cb[far*src.CStride:], src.Cr[far*src.CStride:]})
	}
}

// dropAlpha copies the colours of a row of red, green, blue and opacity.
func dropAlpha(dst, src []byte) {
	for len(dst) >= 3 && len(src) >= 4 {
		dst[0], dst[1], dst[2] = src[0], src[1], src[2]
		dst, src = dst[3:], src[4:]
	}
}

// chroma contains a blue chroma sample in bits 0 to 15, and a red one in bits 16 to 31. A sum of a few blue samples
// does not overflow into the red one.
type chroma uint32

func chromaOf(blue, red byte) chroma { return chroma(blue) | chroma(red)<<16 }

func (c chroma) values() (blue, red int) { return int(c & 0xff), int(c >> 16 & 0xff) }

// chromaRows are the two rows of chroma samples that determine a row of pixels.
type chromaRows struct{ nearBlue, nearRed, farBlue, farRed []byte }

func (c *chromaRows) near(x int) chroma { return chromaOf(c.nearBlue[x], c.nearRed[x]) }

func (c *chromaRows) far(x int) chroma { return chromaOf(c.farBlue[x], c.farRed[x]) }

// edge returns the chroma of a pixel at the left or right edge.
func (c *chromaRows) edge(x int) chroma { return (3*c.near(x) + c.far(x) + 0x00020002) >> 2 }

// convertRow converts one row of pixels.
func convertRow(dst, luma []byte, c *chromaRows) {
	width := len(luma)
	dst = dst[:3*width]
	put(dst, luma[0], c.edge(0))
	pairs := (width - 1) / 2
	nearBlue, nearRed := c.nearBlue[:pairs+1], c.nearRed[:pairs+1]
	farBlue, farRed := c.farBlue[:pairs+1], c.farRed[:pairs+1]
	nearLeft, farLeft := c.near(0), c.far(0)
	for k := 1; k <= pairs; k++ { // two pixels between the chroma samples k-1 and k
		near, far := chromaOf(nearBlue[k], nearRed[k]), chromaOf(farBlue[k], farRed[k])
		sum := nearLeft + near + farLeft + far + 0x00080008
		rising, falling := (sum+2*(near+farLeft))>>3, (sum+2*(nearLeft+far))>>3
		two, y := dst[6*k-3:6*k+3:6*k+3], luma[2*k-1:2*k+1:2*k+1]
		put(two, y[0], (rising+nearLeft)>>1)
		put(two[3:], y[1], (falling+near)>>1)
		nearLeft, farLeft = near, far
	}
	if width%2 == 0 {
		put(dst[3*width-3:], luma[width-1], c.edge(width/2-1))
	}
}

// put converts a pixel, with the coefficients of libwebp.
func put(dst []byte, luma byte, c chroma) {
	u, v := c.values()
	y := int(luma) * 19077 >> 8
	_ = dst[2]
	dst[0] = clip6(y + v*26149>>8 - 14234)
	dst[1] = clip6(y - u*6419>>8 - v*13320>>8 + 8708)
	dst[2] = clip6(y + u*33050>>8 - 17685)
}

// clip6 returns the integer part of a number with 6 binary places, limited to 0 … 255.
func clip6(v int) byte {
	if uint(v) < 256<<6 { // most values
		return byte(v >> 6)
	}
	return byte(^(v >> 63))
}
