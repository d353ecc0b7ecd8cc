package table

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// Types of the Arrow format, as in Schema.fbs and Message.fbs.
const (
	arrowNull        = 1
	arrowInt         = 2
	arrowFloat       = 3
	arrowBinary      = 4
	arrowText        = 5
	arrowBool        = 6
	arrowDecimal     = 7
	arrowList        = 12
	arrowStruct      = 13
	arrowUnion       = 14
	arrowFixedBinary = 15
	arrowFixedList   = 16
	arrowMap         = 17
	arrowLargeBinary = 19
	arrowLargeText   = 20
	arrowLargeList   = 21
	arrowRunEnds     = 22
	arrowBinaryView  = 23
	arrowTextView    = 24
	arrowListView    = 25
	arrowLargeView   = 26

	schemaMessage     = 1
	dictionaryMessage = 2
	batchMessage      = 3
)

const (
	maxMetadata = 64 << 20 // largest size of the metadata of a message, in bytes
	maxDepth    = 16       // largest depth of nested columns
)

// arrowField is a column, or a part of one.
type arrowField struct {
	name          string
	kind          int
	bits          int  // size of a number
	unsigned      bool // unsigned integer
	count         int  // number of elements of a fixed-length list
	dictionary    bool
	children      []*arrowField
	node, buffers int // index of its node, and of its first buffer, in each batch
}

// arrowBatch locates a record batch.
type arrowBatch struct {
	metadata int64 // position in the file
	length   int   // length of the metadata
	body     int64 // position in the file
	size     int64 // size of the body
}

type arrowFile struct {
	*File
	fields  []*arrowField
	batches []arrowBatch
}

// openArrow reads the schema and locates the batches of a stream that starts at a position.
func (f *File) openArrow(at, size int64) error {
	a := &arrowFile{File: f}
	for at < size {
		head := make([]byte, 8)
		n, err := f.file.ReadAt(head, at)
		if err != nil && !(errors.Is(err, io.EOF) && n >= 4) {
			return a.cut(at, err)
		}
		if le.Uint32(head) != math.MaxUint32 {
			return fmt.Errorf("byte %d: no Arrow message", at)
		}
		length := int64(int32(le.Uint32(head[4:])))
		if length == 0 || n < 8 { // end of the stream
			break
		}
		if length < 0 || length > maxMetadata || at+8+length > size {
			return a.cut(at, io.ErrUnexpectedEOF)
		}
		metadata := make([]byte, length)
		if _, err := f.file.ReadAt(metadata, at+8); err != nil {
			return a.cut(at, err)
		}
		message := rootOf(metadata)
		body := message.int64(3)
		b := arrowBatch{at + 8, int(length), at + 8 + length, body}
		if at = b.body + body; body < 0 || at < b.body || at > size {
			return a.cut(b.body, io.ErrUnexpectedEOF)
		}
		header, ok := message.table(2)
		switch kind := message.byte(1); {
		case !ok:
			return fmt.Errorf("byte %d: a message without contents", b.metadata)
		case kind == schemaMessage && a.fields == nil:
			if err := a.setSchema(header); err != nil {
				return err
			}
		case kind == batchMessage && a.fields != nil:
			rows := header.int64(0)
			if rows < 0 || rows > math.MaxInt32 || rows > 8*b.size { // a value has at least one bit
				return fmt.Errorf("byte %d: a batch of %d rows in %d bytes", b.metadata, rows, b.size)
			}
			if _, compressed := header.table(3); compressed {
				return errors.New("the batches are compressed: write the file without compression, or as Parquet")
			}
			a.batches = append(a.batches, b)
			f.Rows += rows
		case kind == dictionaryMessage:
			continue // Scan refuses columns with dictionaries
		default:
			return fmt.Errorf("byte %d: unexpected message of type %d", b.metadata, kind)
		}
	}
	if a.fields == nil {
		return errors.New("the file has no schema")
	}
	f.scan = a.scan
	return nil
}

func (a *arrowFile) cut(at int64, err error) error {
	return fmt.Errorf("after byte %d: %w: the file is truncated or damaged", at, err)
}

func (a *arrowFile) setSchema(schema flat) error {
	if schema.int16(0) != 0 {
		return errors.New("the numbers are big-endian, want little-endian")
	}
	nodes, buffers := 0, 0
	for _, t := range schema.tables(1) {
		f, err := arrowFieldOf(t, 0, &nodes, &buffers)
		if err != nil {
			return err
		}
		a.fields = append(a.fields, f)
		a.Fields = append(a.Fields, f.describe())
	}
	for _, pair := range schema.tables(2) {
		if pair.text(0) == "huggingface" {
			a.setFeatures(pair.text(1))
		}
	}
	if a.fields == nil {
		return errors.New("the schema has no columns")
	}
	return nil
}

// arrowFieldOf parses a field. It counts the nodes and buffers that precede the next field in a batch.
func arrowFieldOf(t flat, depth int, nodes, buffers *int) (*arrowField, error) {
	f := &arrowField{name: t.text(0), kind: int(t.byte(2)), node: *nodes, buffers: *buffers}
	if depth > maxDepth {
		return nil, fmt.Errorf("column %.100q: nested more than %d times", f.name, maxDepth)
	}
	kind, _ := t.table(3)
	_, f.dictionary = t.table(4)
	own := 2 // validity and values
	switch f.kind {
	case arrowInt:
		f.bits, f.unsigned = kind.int32(0), kind.byte(1) == 0
	case arrowFloat:
		f.bits = 16 << kind.int16(0)
	case arrowBool:
		f.bits = 1
	case arrowBinary, arrowText, arrowLargeBinary, arrowLargeText:
		own = 3
	case arrowStruct:
		own = 1
	case arrowFixedList:
		own, f.count = 1, kind.int32(0)
		if f.count < 1 {
			return nil, fmt.Errorf("column %.100q: lists of %d elements", f.name, f.count)
		}
	case arrowNull, arrowRunEnds:
		own = 0
	case arrowUnion:
		own = 1
		if kind.int16(0) == 1 { // dense
			own = 2
		}
	case arrowBinaryView, arrowTextView, arrowListView, arrowLargeView:
		return nil, fmt.Errorf("column %.100q has a view type of Arrow: convert it to text, bytes or a list", f.name)
	}
	*nodes++
	if f.dictionary { // only the indices into the dictionary
		*buffers += 2
		return f, nil
	}
	*buffers += own
	for _, child := range t.tables(5) {
		c, err := arrowFieldOf(child, depth+1, nodes, buffers)
		if err != nil {
			return nil, err
		}
		f.children = append(f.children, c)
	}
	return f, nil
}

func (f *arrowField) isList() bool {
	return f.kind == arrowList || f.kind == arrowLargeList || f.kind == arrowFixedList
}

func (f *arrowField) describe() Field {
	out := Field{Name: f.name}
	switch {
	case f.dictionary:
	case f.kind == arrowInt && f.bits <= 64:
		out.Kind = Integer
	case f.kind == arrowFloat && f.bits >= 32:
		out.Kind = Real
	case f.kind == arrowBool:
		out.Kind = Boolean
	case f.kind == arrowText, f.kind == arrowLargeText:
		out.Kind = Text
	case f.kind == arrowBinary, f.kind == arrowLargeBinary:
		out.Kind = Binary
	case f.kind == arrowStruct:
		out.Kind = Struct
		for _, c := range f.children {
			out.Children = append(out.Children, c.describe())
		}
	case f.isList() && len(f.children) == 1 && f.children[0].kind == arrowInt && !f.children[0].dictionary:
		out.Kind = Integers
	}
	return out
}

// find returns the fields on a path, from the column to the part that the path names.
func (a *arrowFile) find(path string) (chain []*arrowField) {
	fields := a.fields
	for name := range strings.SplitSeq(path, ".") {
		for _, f := range fields {
			if f.name == name {
				chain, fields = append(chain, f), f.children
				break
			}
		}
	}
	return chain
}

func (a *arrowFile) scan(ctx context.Context, columns []Column, visit func([]Value) error) error {
	chains := make([][]*arrowField, len(columns))
	for k, c := range columns {
		chains[k] = a.find(c.Path)
	}
	row := make([]Value, len(columns))
	readers := make([]func(i int, v *Value), len(columns))
	for _, b := range a.batches {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch, err := a.load(b)
		if err != nil {
			return err
		}
		for k, c := range columns {
			if readers[k], err = batch.reader(chains[k], c.Locate); err != nil {
				return fmt.Errorf("column %.100q, batch at byte %d: %w", c.Path, b.metadata, err)
			}
		}
		for i := range batch.rows {
			for k, read := range readers {
				row[k] = Value{List: row[k].List[:0]}
				read(i, &row[k])
			}
			if err := visit(row); err != nil {
				return err
			}
		}
	}
	return nil
}
