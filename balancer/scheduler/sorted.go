package scheduler

// item is an element of a sorted list: a number with a key.
type item struct {
	key float64
	id  int
}

// before orders items by their keys; ties go to the lower number.
func (a item) before(b item) bool { return a.key < b.key || a.key == b.key && a.id < b.id }

// sortedBlock is the largest number of items in a block. With larger blocks, insert and remove move more items; with
// smaller blocks, a list has more blocks to search.
const sortedBlock = 128

// sorted is a list of items in ascending order, in blocks. insert and remove take time proportional to the block size
// plus the logarithm of the number of blocks. If a block is added or becomes empty, they also move the list of blocks.
// Blocks are not merged, so after many removals a list may have up to n blocks. Keys must not be NaN. The zero value is
// an empty list.
type sorted struct {
	blocks [][]item
	n      int
	spare  [][]item
}

// block returns the index of the block that has or would have an item. The list must not be empty.
func (l *sorted) block(x item) int {
	low, high := 0, len(l.blocks)-1
	for low < high {
		mid := (low + high) / 2
		if b := l.blocks[mid]; b[len(b)-1].before(x) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// position returns the index of the first item of a block that is not before x.
func position(b []item, x item) int {
	low, high := 0, len(b)
	for low < high {
		if mid := (low + high) / 2; b[mid].before(x) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// empty returns an empty block.
func (l *sorted) empty() []item {
	if n := len(l.spare); n > 0 {
		b := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return b[:0]
	}
	return make([]item, 0, 8)
}

func (l *sorted) insert(x item) {
	l.n++
	if len(l.blocks) == 0 {
		l.blocks = append(l.blocks, append(l.empty(), x))
		return
	}
	i := l.block(x)
	b := l.blocks[i]
	at := position(b, x)
	b = append(b, item{})
	copy(b[at+1:], b[at:])
	b[at] = x
	l.blocks[i] = b
	if len(b) > sortedBlock {
		half := len(b) / 2
		right := append(l.empty(), b[half:]...)
		l.blocks[i] = b[:half]
		l.blocks = append(l.blocks, nil)
		copy(l.blocks[i+2:], l.blocks[i+1:])
		l.blocks[i+1] = right
	}
}

// remove removes an item, and reports whether the list had it.
func (l *sorted) remove(x item) bool {
	if len(l.blocks) == 0 {
		return false
	}
	i := l.block(x)
	at := position(l.blocks[i], x)
	if at == len(l.blocks[i]) || l.blocks[i][at] != x {
		return false
	}
	l.cut(i, at)
	return true
}

func (l *sorted) cut(i, at int) {
	l.n--
	b := l.blocks[i]
	copy(b[at:], b[at+1:])
	b = b[:len(b)-1]
	l.blocks[i] = b
	if len(b) == 0 {
		l.spare = append(l.spare, b)
		copy(l.blocks[i:], l.blocks[i+1:])
		l.blocks = l.blocks[:len(l.blocks)-1]
	}
}

// pop removes the first item. The list must not be empty.
func (l *sorted) pop() item {
	x := l.blocks[0][0]
	l.cut(0, 0)
	return x
}

// at returns the item with index k, which must exist. Its time is proportional to the number of blocks before the item:
// about k / sortedBlock, and up to k after many removals.
func (l *sorted) at(k int) item {
	for i := range l.blocks {
		if b := l.blocks[i]; k < len(b) {
			return b[k]
		} else {
			k -= len(b)
		}
	}
	panic("scheduler: index beyond the end of a sorted list")
}

func (l *sorted) clear() {
	l.spare = append(l.spare, l.blocks...)
	l.blocks, l.n = l.blocks[:0], 0
}

// cursor is a position in a sorted list. It is valid until the list changes.
type cursor struct {
	list     *sorted
	block, i int
}

// first returns the position of the first item.
func (l *sorted) first() cursor { return cursor{list: l} }

// last returns the position of the last item.
func (l *sorted) last() cursor {
	if l.n == 0 {
		return cursor{list: l}
	}
	b := len(l.blocks) - 1
	return cursor{l, b, len(l.blocks[b]) - 1}
}

// from returns the position of the first item that is not before x.
func (l *sorted) from(x item) cursor {
	if l.n == 0 {
		return cursor{list: l}
	}
	b := l.block(x)
	at := position(l.blocks[b], x)
	if at == len(l.blocks[b]) {
		return cursor{l, b + 1, 0}
	}
	return cursor{l, b, at}
}

// get returns the item at the position; ok is false beyond the ends of the list.
func (c *cursor) get() (x item, ok bool) {
	if c.block < 0 || c.block >= len(c.list.blocks) {
		return item{}, false
	}
	return c.list.blocks[c.block][c.i], true
}

func (c *cursor) next() {
	if c.i++; c.i >= len(c.list.blocks[c.block]) {
		c.block, c.i = c.block+1, 0
	}
}

func (c *cursor) prev() {
	if c.i--; c.i < 0 {
		if c.block--; c.block >= 0 {
			c.i = len(c.list.blocks[c.block]) - 1
		}
	}
}
