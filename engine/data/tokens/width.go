package tokens

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// foreign names the format of a file that is no sequence of tokens, by its first bytes; "" if the format is unknown.
func foreign(head []byte) string {
	for magic, name := range map[string]string{"\x93NUMPY": "an array of NumPy (.npy)", "PK\x03\x04": "a zip archive, such as weights of PyTorch", "\x80\x02\x8a\nl\xfc\x9c": "a file of weights of PyTorch"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return name
		}
	}
	return ""
}

// widths are the maxima of the 2-byte values in each of the four places of 8 bytes.
type widths struct {
	most [4]uint16
	n    int // number of groups of 8 bytes
}

func (w *widths) add(block []byte) {
	for ; len(block) >= 8; block = block[8:] {
		for i := range w.most {
			w.most[i] = max(w.most[i], binary.LittleEndian.Uint16(block[2*i:]))
		}
		w.n++
	}
}

// Constants of the recognition of wide tokens.
const (
	// leastGroups is the smallest number of groups of 8 bytes on which a judgement is based: 16 tokens of 4 bytes.
	leastGroups = 8
	// mostHigh limits the upper half of a token of 4 bytes: a vocabulary of 2^20 tokens has upper halves below 16.
	mostHigh = 16
	// leastLow is a value that some lower halves exceed if the vocabulary has more than 2^16 tokens.
	leastLow = 4096
)

// bytes returns the size of a token that the values prove: 8 or 4, or 2 if they prove nothing.
func (w *widths) bytes() int {
	low, high := max(w.most[0], w.most[2]), max(w.most[1], w.most[3])
	switch {
	case w.n < leastGroups || low == 0:
		return 2
	case w.most[1] < mostHigh && w.most[2] == 0 && w.most[3] == 0:
		return 8 // in text, two of four tokens are not 0 everywhere
	case high == 0 || high < mostHigh && low >= leastLow && w.n >= 32*leastGroups:
		return 4 // in text, each second token is not 0 everywhere, nor small while the others are not
	}
	return 2
}

// checkWidth returns an error if a file without a header evidently has tokens of 4 or 8 bytes. Read as tokens of 2 bytes,
// they would be wrong, but within the vocabulary. It reads three blocks of the file.
func checkWidth(f io.ReaderAt, size int64) error {
	const block = 64 << 10
	var w widths
	buf := make([]byte, block)
	for _, at := range []int64{0, size / 2, size - block} {
		at = max(at, 0) &^ 7
		n, err := f.ReadAt(buf[:min(block, size-at)], at)
		if err != nil && err != io.EOF {
			return err
		}
		w.add(buf[:n])
	}
	switch w.bytes() {
	case 8:
		return fmt.Errorf("the file seems to have tokens of 8 bytes (int64), because all upper halves are 0: write tokens of 2 or 4 bytes, or set data.token_bytes = 2 if they have 2 bytes")
	case 4:
		if size%4 == 0 {
			return fmt.Errorf("the file seems to have tokens of 4 bytes (int32), because all upper halves are small: set data.token_bytes = 4, or 2 if they have 2 bytes")
		}
	}
	return nil
}
