package ingest

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/engine/spelling"
)

// MaxBytes is the maximum size of a source.
const MaxBytes = 256 << 20

// readAll reads a source. It removes a byte order mark at the start.
func readAll(source string, r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", source, err)
	}
	var f faults
	if len(text) > MaxBytes {
		f.add(source, 0, "size of the source", fmt.Sprintf("more than %d MiB", MaxBytes>>20), "a smaller source")
		return nil, f.err()
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !utf8.Valid(text) {
		line := 1
		for n, l := range bytes.Split(text, []byte("\n")) {
			if !utf8.Valid(l) {
				line = n + 1
				break
			}
		}
		f.add(source, line, "text", "bytes that are not UTF-8", "a text in UTF-8")
		return nil, f.err()
	}
	return text, nil
}

// lines yields the lines that are not blank, with their numbers from 1. If the text does not end with a line feed, it
// is incomplete: lines reports a fault, and does not yield the last line.
func lines(text []byte, source string, f *faults) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		n := 0
		for rest := string(text); rest != ""; {
			n++
			line, after, complete := strings.Cut(rest, "\n")
			if !complete {
				f.add(source, n, "last line", quote(line)+" without a line end",
					"a complete file that ends with a line end")
				return
			}
			rest = after
			if line = strings.TrimSuffix(line, "\r"); strings.TrimSpace(line) != "" && !yield(n, line) {
				return
			}
		}
	}
}

// editDistance returns the edit distance of two names. It ignores case, and compares only the first 100 bytes.
func editDistance(a, b string) int {
	return spelling.Distance(strings.ToLower(a[:min(len(a), 100)]), strings.ToLower(b[:min(len(b), 100)]))
}
