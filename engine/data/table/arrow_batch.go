package table

import (
	"errors"
	"fmt"
	"math"
)

// batch is the metadata of a record batch.
type batch struct {
	file    *File
	at      arrowBatch
	rows    int
	nodes   []byte // 16 bytes each: number of values, number of nulls
	buffers []byte // 16 bytes each: position in the body, length
}

func (a *arrowFile) load(b arrowBatch) (*batch, error) {
	metadata := make([]byte, b.length)
	if _, err := a.file.ReadAt(metadata, b.metadata); err != nil {
		return nil, a.cut(b.metadata, err)
	}
	header, ok := rootOf(metadata).table(2)
	if !ok {
		return nil, errors.New("the file changed after it was opened")
	}
	return &batch{a.File, b, int(header.int64(0)), header.vector(1, 16), header.vector(2, 16)}, nil
}

// place returns the position in the file and the length of a buffer.
func (b *batch) place(number int) (at, length int64, err error) {
	entry := b.buffers[16*number:]
	at, length = int64(le.Uint64(entry)), int64(le.Uint64(entry[8:]))
	if at < 0 || length < 0 || at > b.at.size || length > b.at.size-at {
		return 0, 0, fmt.Errorf("buffer %d has %d bytes at byte %d of a body of %d", number, length, at, b.at.size)
	}
	return b.at.body + at, length, nil
}

// read returns the first n bytes of a buffer.
func (b *batch) read(number int, n int64) ([]byte, error) {
	at, length, err := b.place(number)
	if err != nil {
		return nil, err
	}
	if n < 0 || n > length {
		return nil, fmt.Errorf("buffer %d has %d bytes, want %d", number, length, n)
	}
	contents := make([]byte, n)
	_, err = b.file.file.ReadAt(contents, at)
	return contents, err
}

// validity returns a function that reports whether value i of a field is null. It returns nil if there are no nulls.
func (b *batch) validity(f *arrowField, n int) (func(i int) bool, error) {
	node := b.nodes[16*f.node:]
	values, nulls := int64(le.Uint64(node)), int64(le.Uint64(node[8:]))
	if values != int64(n) {
		return nil, fmt.Errorf("%q has %d values, want %d", f.name, values, n)
	}
	if nulls == 0 {
		return nil, nil
	}
	bits, err := b.read(f.buffers, int64(n+7)/8)
	return func(i int) bool { return bits[i/8]>>(i%8)&1 == 0 }, err
}

// reader returns a function that reads value i of the last field of a chain.
func (b *batch) reader(chain []*arrowField, locate bool) (func(i int, v *Value), error) {
	var nulls []func(int) bool
	for _, f := range chain {
		null, err := b.validity(f, b.rows)
		if err != nil {
			return nil, err
		}
		if null != nil {
			nulls = append(nulls, null)
		}
	}
	value, err := b.values(chain[len(chain)-1], b.rows, locate)
	if err != nil {
		return nil, err
	}
	return func(i int, v *Value) {
		for _, null := range nulls {
			if null(i) {
				v.Null = true
				return
			}
		}
		value(i, v)
	}, nil
}

// values returns a function that reads value i of the n values of a field. The value must not be null.
func (b *batch) values(f *arrowField, n int, locate bool) (func(i int, v *Value), error) {
	switch f.kind {
	case arrowInt:
		number, err := b.integers(f, n)
		return func(i int, v *Value) { v.Int = number(i) }, err
	case arrowFloat:
		bits, err := b.read(f.buffers+1, int64(n)*int64(f.bits/8))
		if f.bits == 32 {
			return func(i int, v *Value) { v.Real = float64(math.Float32frombits(le.Uint32(bits[4*i:]))) }, err
		}
		return func(i int, v *Value) { v.Real = math.Float64frombits(le.Uint64(bits[8*i:])) }, err
	case arrowBool:
		bits, err := b.read(f.buffers+1, int64(n+7)/8)
		return func(i int, v *Value) { v.Int = int64(bits[i/8] >> (i % 8) & 1) }, err
	case arrowBinary, arrowText, arrowLargeBinary, arrowLargeText:
		return b.bytes(f, n, locate)
	}
	return b.lists(f, n)
}

// integers returns a function that returns number i of a field.
func (b *batch) integers(f *arrowField, n int) (func(i int) int64, error) {
	bits, err := b.read(f.buffers+1, int64(n)*int64(f.bits/8))
	if err != nil {
		return nil, err
	}
	switch f.bits {
	case 8:
		if f.unsigned {
			return func(i int) int64 { return int64(bits[i]) }, nil
		}
		return func(i int) int64 { return int64(int8(bits[i])) }, nil
	case 16:
		if f.unsigned {
			return func(i int) int64 { return int64(le.Uint16(bits[2*i:])) }, nil
		}
		return func(i int) int64 { return int64(int16(le.Uint16(bits[2*i:]))) }, nil
	case 32:
		if f.unsigned {
			return func(i int) int64 { return int64(le.Uint32(bits[4*i:])) }, nil
		}
		return func(i int) int64 { return int64(int32(le.Uint32(bits[4*i:]))) }, nil
	case 64:
		return func(i int) int64 { return int64(le.Uint64(bits[8*i:])) }, nil
	}
	return nil, fmt.Errorf("whole numbers of %d bits", f.bits)
}

// offsets returns the start of each of n values of varying length, and the end of the last one.
func (b *batch) offsets(f *arrowField, n int, large bool) (func(i int) (start, end int64), int64, error) {
	size := int64(4)
	if large {
		size = 8
	}
	_, length, err := b.place(f.buffers + 1)
	if err != nil || n == 0 && length == 0 { // Arrow permits a missing offsets buffer if there are no values
		return nil, 0, err
	}
	bits, err := b.read(f.buffers+1, size*int64(n+1))
	if err != nil {
		return nil, 0, err
	}
	at := func(i int) int64 {
		if large {
			return int64(le.Uint64(bits[8*i:]))
		}
		return int64(int32(le.Uint32(bits[4*i:])))
	}
	for i, last := 0, int64(0); i <= n; i++ {
		if at(i) < last {
			return nil, 0, fmt.Errorf("%q: value %d has a negative length", f.name, i-1)
		}
		last = at(i)
	}
	return func(i int) (int64, int64) { return at(i), at(i + 1) }, at(n), nil
}

func (b *batch) bytes(f *arrowField, n int, locate bool) (func(i int, v *Value), error) {
	offsets, end, err := b.offsets(f, n, f.kind == arrowLargeBinary || f.kind == arrowLargeText)
	if err != nil {
		return nil, err
	}
	if locate {
		at, length, err := b.place(f.buffers + 2)
		if err == nil && end > length {
			err = fmt.Errorf("%q: the values have %d bytes, want at most %d", f.name, end, length)
		}
		return func(i int, v *Value) {
			start, end := offsets(i)
			v.At, v.Size = at+start, end-start
		}, err
	}
	contents, err := b.read(f.buffers+2, end)
	return func(i int, v *Value) {
		start, end := offsets(i)
		v.Bytes = contents[start:end:end]
	}, err
}

func (b *batch) lists(f *arrowField, n int) (func(i int, v *Value), error) {
	offsets := func(i int) (int64, int64) { return int64(i * f.count), int64((i + 1) * f.count) }
	end := int64(n) * int64(f.count)
	if f.kind != arrowFixedList {
		var err error
		if offsets, end, err = b.offsets(f, n, f.kind == arrowLargeList); err != nil {
			return nil, err
		}
	}
	child := f.children[0]
	if end < 0 || end > b.at.size {
		return nil, fmt.Errorf("%q: the lists have %d elements", f.name, end)
	}
	if values := int64(le.Uint64(b.nodes[16*child.node:])); values < end {
		return nil, fmt.Errorf("%q has %d elements, want %d", f.name, values, end)
	}
	if nulls := int64(le.Uint64(b.nodes[16*child.node+8:])); nulls != 0 {
		return nil, fmt.Errorf("%q: %d elements are missing (null)", f.name, nulls)
	}
	number, err := b.integers(child, int(end))
	return func(i int, v *Value) {
		start, end := offsets(i)
		for k := start; k < end; k++ {
			v.List = append(v.List, number(int(k)))
		}
	}, err
}
