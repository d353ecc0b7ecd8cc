package tokens

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// foreign returns the format of a file that is not a sequence of tokens, based on its first bytes; "" if it is unknown.
func foreign(head []byte) string {
	for magic, name := range map[string]string{"\x93NUMPY": "an array of NumPy (.npy)",
		"PK\x03\x04":              "a zip archive, such as weights of PyTorch",
		"\x80\x02\x8a\nl\xfc\x9c": "a file of weights of PyTorch"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return name
		}
	}
	return ""
}

// widths contains the maxima of the 2-byte values at each of the four positions in groups of 8 bytes.
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

// Constants for the detection of the token size.
const (
	// leastGroups is the minimum number of groups of 8 bytes for a decision: 16 tokens of 4 bytes.
	leastGroups = 8
	// mostHigh limits the upper half of a 4-byte token. In a vocabulary of 2^20 tokens, upper halves are below 16.
	mostHigh = 16
	// leastLow is a value that some lower halves exceed if the vocabulary has more than 2^16 tokens.
	leastLow = 4096
)

// bytes returns the token size that the values prove: 8, 4 or 2, or 0 if they prove nothing. In 4-byte tokens, the
// upper half is always below high.
func (w *widths) bytes(high uint16) int {
	lower, upper := max(w.most[0], w.most[2]), max(w.most[1], w.most[3])
	long := w.n >= 32*leastGroups
	switch {
	case w.n < leastGroups || lower == 0:
		return 0
	case w.most[1] < high && w.most[2] == 0 && w.most[3] == 0:
		return 8 // 2-byte tokens of text would not be 0 at two of four positions everywhere
	case upper == 0 || upper < high && lower >= leastLow && long:
		return 4 // 2-byte tokens of text would not be 0, or small, only at every second position
	case upper >= high || long:
		// as 4-byte tokens, the values would exceed every vocabulary, or have small lower halves and upper halves that
		// are not 0
		return 2
	}
	return 0
}

// leastText is the minimum number of bytes for the decision that a file is text.
const leastText = 512

// isText reports whether no byte is a control character. In files of tokens, at least every second byte is often 0 or
// small.
func isText(b []byte) bool {
	control := func(c byte) bool { return c < ' ' && c != '\n' && c != '\r' && c != '\t' || c == 0x7F }
	return !slices.ContainsFunc(b, control)
}

// checkWidth returns an error if a file without a header clearly has tokens of another size than width. With the wrong
// size, the tokens would be wrong but within the vocabulary. The parameter vocabulary is the vocabulary size, or 0 if
// unknown. checkWidth reads three blocks of the file.
func checkWidth(f io.ReaderAt, size int64, width, vocabulary int) error {
	const block = 64 << 10
	var w widths
	text := true
	buf := make([]byte, block)
	for _, at := range []int64{0, size / 2, size - block} {
		at = max(at, 0) &^ 7
		n, err := f.ReadAt(buf[:min(block, size-at)], at)
		if err != nil && err != io.EOF {
			return err
		}
		w.add(buf[:n])
		text = text && isText(buf[:n])
	}
	if text && size >= leastText {
		return errors.New("the file seems to be text: convert it with \"data tokenize\"")
	}
	evident := w.bytes(uint16(min(max(mostHigh, vocabulary>>16+1), 1<<15)))
	if evident == 0 || evident == width || size%int64(evident) != 0 {
		return nil
	}
	why := map[int]string{8: "tokens of 8 bytes (int64), because all upper halves are 0: write tokens of 2 or 4 bytes",
		4: "tokens of 4 bytes (int32), because all upper halves are small: set data.token_bytes = 4",
		2: "tokens of 2 bytes (uint16), because the upper halves of tokens of 4 bytes would not be small: set data.token_bytes = 2"}[evident]
	return fmt.Errorf("data.token_bytes: got %d bytes per token, but the file seems to have %s; a file with a header, which \"data tokenize\" writes, needs no key",
		width, why)
}
