package pixels

// table maps the 256 values of a channel to new values.
type table [256]byte

func (t *table) apply(pix []byte) {
	for i, v := range pix {
		pix[i] = t[v]
	}
}

// Posterize keeps the upper bits (1 to 8) of each value.
func Posterize(pix []byte, bits int) {
	mask := byte(0xFF) << (8 - bits)
	for i := range pix {
		pix[i] &= mask
	}
}

// Solarize inverts values that are at least threshold.
func Solarize(pix []byte, threshold float64) {
	var t table
	for v := range t {
		if t[v] = byte(v); float64(v) >= threshold {
			t[v] = byte(255 - v)
		}
	}
	t.apply(pix)
}

// AutoContrast stretches each channel of pix (n, 3) to the full range 0 … 255.
func AutoContrast(pix []byte) {
	var tables [3]table
	for ch, h := range histograms(pix) {
		lo, hi := 0, 255
		for lo < 255 && h[lo] == 0 {
			lo++
		}
		for hi > 0 && h[hi] == 0 {
			hi--
		}
		t := &tables[ch]
		if hi <= lo {
			t.identity()
			continue
		}
		scale := 255 / float64(hi-lo)
		offset := -float64(float64(lo) * scale)
		for v := range t {
			t[v] = byte(min(max(int(float64(float64(v)*scale)+offset), 0), 255))
		}
	}
	applyEach(pix, &tables)
}

// Equalize equalizes the histogram of each channel of pix (n, 3).
func Equalize(pix []byte) {
	var tables [3]table
	for ch, h := range histograms(pix) {
		t := &tables[ch]
		sum, last, used := 0, 0, 0
		for _, n := range h {
			if n != 0 {
				sum, last, used = sum+n, n, used+1
			}
		}
		step := (sum - last) / 255
		if used <= 1 || step == 0 {
			t.identity()
			continue
		}
		n := step / 2
		for v := range t {
			t[v] = byte(min(n/step, 255))
			n += h[v]
		}
	}
	applyEach(pix, &tables)
}

func (t *table) identity() {
	for v := range t {
		t[v] = byte(v)
	}
}

func histograms(pix []byte) [3][256]int {
	var h [3][256]int
	for i := 0; i+2 < len(pix); i += 3 {
		p := pix[i : i+3 : i+3]
		h[0][p[0]]++
		h[1][p[1]]++
		h[2][p[2]]++
	}
	return h
}

func applyEach(pix []byte, tables *[3]table) {
	for i := 0; i+2 < len(pix); i += 3 {
		p := pix[i : i+3 : i+3]
		p[0], p[1], p[2] = tables[0][p[0]], tables[1][p[1]], tables[2][p[2]]
	}
}
