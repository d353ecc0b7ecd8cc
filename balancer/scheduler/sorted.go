package scheduler

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/scheduler/internal/limits"
)

// item is an element of a sorted list: a number with a key.
type item struct {
	key float64
	id  int
}

// before orders items by their keys; ties go to the lower number.
func (a item) before(b item) bool { return a.key < b.key || a.key == b.key && a.id < b.id }

// sorted is a list of items in ascending order, in blocks of at most limits.Block items. insert and remove take time
// proportional to the block size plus the logarithm of the number of blocks. If a block is added or dropped, they also
// move the list of blocks. A block with few items is merged with its neighbour, so that the number of blocks is
// proportional to the number of items. Keys must not be NaN. The zero value is an empty list.
type sorted struct {
	blocks []block
	n      int
	spare  [][]item
	value  []float64 // by id; nil: no block has a least value
}

// block is a part of a sorted list. Its items may leave memory free on both sides, so that a removal moves only the
// smaller part of the items.
type block struct {
	memory   []item
	from, to int     // of the items in memory
	least    float64 // at most the values of the items
}

func (b *block) items() []item { return b.memory[b.from:b.to] }

func (b *block) insert(at int, x item) {
	n := b.to - b.from
	if n == len(b.memory) {
		memory := make([]item, max(8, 2*n))
		copy(memory, b.items())
		b.memory, b.from, b.to = memory, 0, n
	}
	if b.to == len(b.memory) || b.from > 0 && at < n/2 {
		copy(b.memory[b.from-1:], b.memory[b.from:b.from+at])
		b.from--
	} else {
		copy(b.memory[b.from+at+1:b.to+1], b.memory[b.from+at:b.to])
		b.to++
	}
	b.memory[b.from+at] = x
}

func (b *block) remove(at int) {
	if at < (b.to-b.from)/2 {
		copy(b.memory[b.from+1:], b.memory[b.from:b.from+at])
		b.from++
		return
	}
	copy(b.memory[b.from+at:], b.memory[b.from+at+1:b.to])
	b.to--
}

// block returns the index of the block that has or would have an item. The list must not be empty.
func (l *sorted) block(x item) int {
	low, high := 0, len(l.blocks)-1
	for low < high {
		mid := (low + high) / 2
		if b := &l.blocks[mid]; b.memory[b.to-1].before(x) {
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

// empty returns a block without items.
func (l *sorted) empty() block {
	if n := len(l.spare); n > 0 {
		memory := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return block{memory: memory, least: math.Inf(1)}
	}
	return block{least: math.Inf(1)}
}

func (l *sorted) insert(x item) {
	l.n++
	if len(l.blocks) == 0 {
		l.blocks = append(l.blocks, l.empty())
	}
	i := l.block(x)
	b := &l.blocks[i]
	b.insert(position(b.items(), x), x)
	if l.value != nil {
		b.least = min(b.least, l.value[x.id])
	}
	if n := b.to - b.from; n > limits.Block {
		right := l.empty()
		if len(right.memory) < n-n/2 {
			right.memory = make([]item, len(b.memory))
		}
		right.to = copy(right.memory, b.items()[n/2:])
		b.to = b.from + n/2
		l.measure(b)
		l.measure(&right)
		l.blocks = append(l.blocks, block{})
		copy(l.blocks[i+2:], l.blocks[i+1:])
		l.blocks[i+1] = right
	}
}

// insertEarly is insert for an item that probably belongs to the first items of the list.
func (l *sorted) insertEarly(x item) {
	const few = 8
	if len(l.blocks) == 0 || l.value != nil {
		l.insert(x)
		return
	}
	b := &l.blocks[0]
	items := b.items()
	if len(items) > few && len(items) < limits.Block && x.before(items[few]) {
		at := 0
		for items[at].before(x) {
			at++
		}
		l.n++
		b.insert(at, x)
		return
	}
	l.insert(x)
}

// measure computes the least value of a block.
func (l *sorted) measure(b *block) {
	if l.value == nil {
		return
	}
	b.least = math.Inf(1)
	for _, x := range b.items() {
		b.least = min(b.least, l.value[x.id])
	}
}

// remove removes an item, and reports whether the list had it.
func (l *sorted) remove(x item) bool {
	if len(l.blocks) == 0 {
		return false
	}
	i := l.block(x)
	b := &l.blocks[i]
	at := position(b.items(), x)
	if at == b.to-b.from || b.memory[b.from+at] != x {
		return false
	}
	b.remove(at)
	l.n--
	l.shrink(i)
	return true
}

// shrink drops block i if it is empty, and merges it with a neighbour if both together have few items.
func (l *sorted) shrink(i int) {
	switch n := l.blocks[i].to - l.blocks[i].from; {
	case n == 0:
		l.drop(i)
	case n < limits.Block/4:
		if !l.merge(i) {
			l.merge(i - 1)
		}
	}
}

// merge merges blocks i and i+1 if they exist and have few items.
func (l *sorted) merge(i int) bool {
	if i < 0 || i+1 >= len(l.blocks) {
		return false
	}
	a, items := &l.blocks[i], l.blocks[i+1].items()
	n := a.to - a.from
	if n+len(items) > limits.Block/2 {
		return false
	}
	if a.to+len(items) > len(a.memory) { // make room behind the items
		memory := a.memory
		if n+len(items) > len(memory) {
			memory = make([]item, limits.Block)
		}
		copy(memory, a.items())
		a.memory, a.from, a.to = memory, 0, n
	}
	a.to += copy(a.memory[a.to:], items)
	a.least = min(a.least, l.blocks[i+1].least)
	l.drop(i + 1)
	return true
}

func (l *sorted) drop(i int) {
	l.spare = append(l.spare, l.blocks[i].memory)
	copy(l.blocks[i:], l.blocks[i+1:])
	l.blocks = l.blocks[:len(l.blocks)-1]
}

// pop removes the first item. The list must not be empty.
func (l *sorted) pop() item {
	b := &l.blocks[0]
	x := b.memory[b.from]
	l.n--
	if b.from++; b.from == b.to {
		l.drop(0)
	}
	return x
}

// at returns the item with index k, which must exist. Its time is proportional to the number of blocks before the item.
func (l *sorted) at(k int) item {
	for i := range l.blocks {
		b := &l.blocks[i]
		if n := b.to - b.from; k >= n {
			k -= n
			continue
		}
		return b.memory[b.from+k]
	}
	panic("scheduler: index beyond the end of a sorted list")
}

func (l *sorted) clear() {
	for i := range l.blocks {
		l.spare = append(l.spare, l.blocks[i].memory)
	}
	l.blocks, l.n = l.blocks[:0], 0
}

// cursor is a position in a sorted list. It is valid until the list changes.
type cursor struct {
	list     *sorted
	items    []item // of the block
	block, i int
}

// enter moves the cursor to a block.
func (c *cursor) enter(block int) {
	c.block, c.items = block, nil
	if block >= 0 && block < len(c.list.blocks) {
		c.items = c.list.blocks[block].items()
	}
}

// first returns the position of the first item.
func (l *sorted) first() cursor {
	c := cursor{list: l}
	c.enter(0)
	return c
}

// last returns the position of the last item.
func (l *sorted) last() cursor {
	c := cursor{list: l}
	c.enter(len(l.blocks) - 1)
	c.i = max(0, len(c.items)-1)
	return c
}

// from returns the position of the first item that is not before x.
func (l *sorted) from(x item) cursor {
	if l.n == 0 {
		return cursor{list: l}
	}
	c := cursor{list: l}
	c.enter(l.block(x))
	if c.i = position(c.items, x); c.i == len(c.items) {
		c.skip()
	}
	return c
}

// get returns the item at the position; ok is false beyond the ends of the list.
func (c *cursor) get() (x item, ok bool) {
	if c.i >= len(c.items) {
		return item{}, false
	}
	return c.items[c.i], true
}

func (c *cursor) next() {
	if c.i++; c.i >= len(c.items) {
		c.skip()
	}
}

// skip moves to the first item of the next block.
func (c *cursor) skip() {
	c.enter(c.block + 1)
	c.i = 0
}

func (c *cursor) prev() {
	if c.i--; c.i < 0 {
		c.enter(c.block - 1)
		c.i = max(0, len(c.items)-1)
	}
}

// least returns a number that is at most the values of all items of the block. It is +Inf beyond the ends of the list.
func (c *cursor) least() float64 {
	if len(c.items) == 0 {
		return math.Inf(1)
	}
	return c.list.blocks[c.block].least
}
