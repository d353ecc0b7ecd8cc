package memory

import (
	"bytes"
	"fmt"
	"io/fs"
	"unsafe"
)

// goHeap describes the addresses of Go's heap, bytes. The runtime reserves them in arenas of ArenaBytes.
type goHeap struct {
	reserved int64
	unused   int64 // part of reserved that the heap has not used yet
}

// later returns the addresses of the arenas that the heap may still reserve. The heap begins at a random place in its
// first arena, so one process needs one arena more than the next one. For equal limits, the sum of reserved and later
// must be equal, so it contains a whole arena for this place.
func (h goHeap) later() int64 {
	used := h.reserved - h.unused
	arenas := 1 + (used+HeapSpread+ArenaBytes-1)/ArenaBytes
	return max(arenas*ArenaBytes-max(h.reserved, ArenaBytes), 0)
}

// readGoHeap returns the addresses of the heap of this process. The result is the zero value if they are unknown.
func readGoHeap(root fs.FS) goHeap {
	text, _ := fs.ReadFile(root, "proc/self/maps")
	object := make([]byte, 64<<10) // on the heap
	return heapAround(text, uint64(uintptr(unsafe.Pointer(&object[0]))))
}

// heapAround returns the addresses of the adjacent mappings that contain the address at. The parameter maps is the text
// of proc/self/maps.
func heapAround(maps []byte, at uint64) goHeap {
	var h goHeap
	var last uint64
	found := false
	for line := range bytes.Lines(maps) {
		var from, to uint64
		var mode string
		if n, _ := fmt.Sscanf(string(line), "%x-%x %s", &from, &to, &mode); n < 3 {
			continue
		}
		if from != last {
			if found {
				return h
			}
			h = goHeap{}
		}
		last = to
		found = found || from <= at && at < to
		if h.reserved += int64(to - from); mode == "---p" {
			h.unused += int64(to - from)
		}
	}
	if !found {
		return goHeap{}
	}
	return h
}
