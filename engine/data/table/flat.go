package table

import "encoding/binary"

var le = binary.LittleEndian

// flat is a table of a FlatBuffers message, the encoding of Arrow's metadata. Access outside the message panics. Open
// and Scan recover from such a panic and return an error.
type flat struct {
	b  []byte
	at int // position of the table
}

func rootOf(b []byte) flat { return flat{b, int(le.Uint32(b))} }

// field returns the position of field i, or 0 if the table lacks it.
func (t flat) field(i int) int {
	virtual := t.at - int(int32(le.Uint32(t.b[t.at:])))
	entry := 4 + 2*i
	if entry+2 > int(le.Uint16(t.b[virtual:])) {
		return 0
	}
	offset := int(le.Uint16(t.b[virtual+entry:]))
	if offset == 0 {
		return 0
	}
	return t.at + offset
}

func (t flat) byte(i int) byte {
	if at := t.field(i); at != 0 {
		return t.b[at]
	}
	return 0
}

func (t flat) int16(i int) int {
	if at := t.field(i); at != 0 {
		return int(int16(le.Uint16(t.b[at:])))
	}
	return 0
}

func (t flat) int32(i int) int {
	if at := t.field(i); at != 0 {
		return int(int32(le.Uint32(t.b[at:])))
	}
	return 0
}

func (t flat) int64(i int) int64 {
	if at := t.field(i); at != 0 {
		return int64(le.Uint64(t.b[at:]))
	}
	return 0
}

// table returns the table that field i refers to.
func (t flat) table(i int) (flat, bool) {
	at := t.field(i)
	if at == 0 {
		return flat{}, false
	}
	return flat{t.b, at + int(le.Uint32(t.b[at:]))}, true
}

// vector returns the elements of field i, which have a fixed size in bytes.
func (t flat) vector(i, size int) []byte {
	at := t.field(i)
	if at == 0 {
		return nil
	}
	at += int(le.Uint32(t.b[at:]))
	n := int(le.Uint32(t.b[at:]))
	return t.b[at+4:][:n*size]
}

// tables returns the tables of field i.
func (t flat) tables(i int) (all []flat) {
	at := t.field(i)
	if at == 0 {
		return nil
	}
	at += int(le.Uint32(t.b[at:])) + 4
	for k := range len(t.vector(i, 4)) / 4 {
		element := at + 4*k
		all = append(all, flat{t.b, element + int(le.Uint32(t.b[element:]))})
	}
	return all
}

func (t flat) text(i int) string { return string(t.vector(i, 1)) }
