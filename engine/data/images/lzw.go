package images

// lzw decodes LZW as in TIFF files. Each code in the table stands for a part of the output: the string of an earlier
// code and the byte after that string.
type lzw struct {
	start  [1 << lzwWidth]int32 // position of the string in the output
	length [1 << lzwWidth]int32
}

const (
	lzwWidth = 12 // bits of the longest code
	lzwClear = 256
	lzwEnd   = 257
	lzwFirst = 258 // first code of a string
)

// decode fills out from packed. It returns false if the codes are invalid, or if the end code does not follow the last
// byte of out. LZW has no checksum, so codes after the pixels may be the only sign of damage.
func (t *lzw) decode(out, packed []byte) bool {
	var bits uint64
	held, at, n := 0, 0, 0 // bits in bits, position in packed, position in out
	width, next := 9, lzwFirst
	last, lastLength := -1, 0 // string of the last code; -1: none since the table was cleared
	for {
		for held < width {
			if at == len(packed) {
				return false
			}
			bits = bits<<8 | uint64(packed[at])
			at++
			held += 8
		}
		held -= width
		code := int(bits>>held) & (1<<width - 1)
		length, begin := 1, n
		switch {
		case code < lzwClear:
			if n == len(out) {
				return false
			}
			out[n] = byte(code)
		case code == lzwClear:
			width, next, last = 9, lzwFirst, -1
			continue
		case code == lzwEnd:
			return n == len(out)
		default:
			from := last
			if length = lastLength + 1; code < next {
				from, length = int(t.start[code]), int(t.length[code])
			} else if code > next || last < 0 {
				return false
			}
			if length > len(out)-n {
				return false
			}
			if from+length <= n {
				copy(out[n:n+length], out[from:from+length])
			} else { // the string of the last code, and its first byte
				for i := range length {
					out[n+i] = out[from+i]
				}
			}
		}
		n += length
		if last >= 0 {
			if next == len(t.start) { // encoders clear the table before it is full
				return false
			}
			t.start[next], t.length[next] = int32(last), int32(lastLength+1)
			next++
		}
		last, lastLength = begin, length
		if next+1 >= 1<<width && width < lzwWidth {
			width++
		}
	}
}
