package runs

import (
	"bytes"
	"slices"
)

// Limits of the memory that a run uses for a file of lines. Files are untrusted: a line may be large, and its decoded
// form may be several times larger than its text.
const (
	// mostHistoryBytes limits the texts of the lines that a history keeps.
	mostHistoryBytes = 8 << 20
	// mostObjects limits the number of objects in a line. mostMembers limits the number of all their members and
	// elements. A line with the values of 10,000 ranks has 100,000 objects.
	mostObjects = 1 << 17
	mostMembers = 1 << 21
)

// history contains the newest elements of a list. It is limited by a number of elements, and by mostHistoryBytes.
type history[T any] struct {
	list  []T
	sizes []int // bytes of each element
	bytes int
}

// add appends an element of about the given number of bytes. It keeps at most limit elements.
func (h *history[T]) add(x T, bytes, limit int) {
	h.list, h.sizes, h.bytes = append(h.list, x), append(h.sizes, bytes), h.bytes+bytes
	drop := 0
	for ; drop < len(h.list)-1 && (len(h.list)-drop > limit || h.bytes > mostHistoryBytes); drop++ {
		h.bytes -= h.sizes[drop]
	}
	h.list, h.sizes = slices.Delete(h.list, 0, drop), slices.Delete(h.sizes, 0, drop)
}

// tooLarge reports whether a line may decode to much more memory than its text.
func tooLarge(line []byte) bool {
	return bytes.Count(line, []byte("{")) > mostObjects || bytes.Count(line, []byte(",")) > mostMembers
}
