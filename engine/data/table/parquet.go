package table

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

type parquetFile struct {
	*File
	file *parquet.File
}

func (f *File) openParquet(size int64) error {
	if err := f.readFooter(size); err != nil {
		return err
	}
	file, err := parquet.OpenFile(f.file, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return fmt.Errorf("%w: the file is truncated or damaged", err)
	}
	p := &parquetFile{f, file}
	if err := checkFooter(file.Metadata(), size); err != nil {
		return fmt.Errorf("%w: the file is damaged", err)
	}
	f.Rows = file.NumRows()
	for _, c := range file.Root().Columns() {
		f.Fields = append(f.Fields, describeParquet(c, 0))
	}
	if text, ok := file.Lookup("huggingface"); ok {
		f.setFeatures(text)
	}
	f.scan = p.scan
	return nil
}

// readFooter checks the length of the footer before it allocates memory, and hashes the footer.
func (f *File) readFooter(size int64) error {
	const around = 4 + 8 // bytes: the mark at the start; the length and the mark at the end
	end := make([]byte, 8)
	if size < around {
		return fmt.Errorf("%d bytes: the file is truncated", size)
	}
	if _, err := f.file.ReadAt(end, size-8); err != nil {
		return err
	}
	length := int64(binary.LittleEndian.Uint32(end))
	if string(end[4:]) != "PAR1" || length > size-around {
		return fmt.Errorf("the file has no footer (it ends with % x): the file is truncated or damaged", end)
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f.file, size-8-length, length)); err != nil {
		return err
	}
	f.Footer = [sha256.Size]byte(h.Sum(nil))
	return nil
}

// checkFooter checks the numbers in the footer that the library would trust.
func checkFooter(m *format.FileMetaData, size int64) error {
	sum := int64(0)
	for g, group := range m.RowGroups {
		if group.NumRows < 0 || group.NumRows > math.MaxInt32 {
			return fmt.Errorf("row group %d has %d rows, want 0 to %d", g, group.NumRows, math.MaxInt32)
		}
		sum += group.NumRows
		for k := range group.Columns {
			c := &group.Columns[k].MetaData
			start := c.DataPageOffset
			if c.DictionaryPageOffset != 0 {
				start = c.DictionaryPageOffset
			}
			if start < 0 || c.TotalCompressedSize < 0 || start > size || c.TotalCompressedSize > size-start {
				return fmt.Errorf("column %d of row group %d has %d bytes at byte %d of a file of %d", k, g,
					c.TotalCompressedSize, start, size)
			}
		}
	}
	if m.NumRows != sum || sum > math.MaxInt32 {
		return fmt.Errorf("%d rows, but the row groups have %d, want at most %d", m.NumRows, sum, math.MaxInt32)
	}
	return nil
}

// A page may expand to expandFactor times its size, or to expandFree bytes. Package archive has the same limits.
const (
	expandFactor = 200
	expandFree   = 64 << 20
)

// checkPages checks the lengths of all pages of a column in a row group, because the library allocates memory for them.
func (p *parquetFile) checkPages(ctx context.Context, group, column int) error {
	m := &p.file.Metadata().RowGroups[group].Columns[column].MetaData
	start := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		start = m.DictionaryPageOffset
	}
	protocol := new(thrift.CompactProtocol)
	head := make([]byte, 512) // larger than a header without long statistics
	for at, end := start, start+m.TotalCompressedSize; at < end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(int64(len(head)), end-at)
		if _, err := p.File.file.ReadAt(head[:n], at); err != nil {
			return noEOF(err)
		}
		in := protocol.NewReaderFromBytes(head[:n])
		var page format.PageHeader
		if err := thrift.NewDecoder(in).Decode(&page); err != nil {
			if int(n) == len(head) { // the header may continue in the file
				head = make([]byte, 8*len(head))
				continue
			}
			return noEOF(err)
		}
		body := at + int64(in.BytesRead())
		size, expanded := int64(page.CompressedPageSize), int64(page.UncompressedPageSize)
		if size < 0 || size > end-body {
			return fmt.Errorf("a page has %d bytes, but %d follow", size, end-body)
		}
		if expanded < 0 || expanded > max(expandFree, expandFactor*size) {
			return fmt.Errorf("a page of %d bytes expands to %d, want at most %d times as many", size, expanded,
				expandFactor)
		}
		at = body + size
	}
	return nil
}

func describeParquet(c *parquet.Column, depth int) Field {
	out := Field{Name: c.Name()}
	if leaf := listOf(c); leaf != nil {
		if kindOf(leaf) == Integer {
			out.Kind = Integers
		}
		return out
	}
	switch {
	case c.Repeated() || depth > maxDepth:
	case !c.Leaf() && len(c.Columns()) == 1 && c.Columns()[0].Repeated(): // a list of other values, or a map
	case c.Leaf():
		out.Kind = kindOf(c)
	default:
		out.Kind = Struct
		for _, child := range c.Columns() {
			out.Children = append(out.Children, describeParquet(child, depth+1))
		}
	}
	return out
}

// listOf returns the elements of a list of simple values, or nil if the column is not such a list. The elements are the
// column itself, its only child, or the only child of its only child.
func listOf(c *parquet.Column) *parquet.Column {
	if !c.Repeated() && !c.Leaf() && len(c.Columns()) == 1 {
		c = c.Columns()[0]
	}
	switch {
	case !c.Repeated():
		return nil
	case c.Leaf():
		return c
	case len(c.Columns()) == 1 && c.Columns()[0].Leaf() && !c.Columns()[0].Repeated():
		return c.Columns()[0]
	}
	return nil
}

func kindOf(leaf *parquet.Column) Kind {
	var logical any
	if l := leaf.Type().LogicalType(); l != nil {
		logical = l.Value
	}
	switch leaf.Type().Kind() {
	case parquet.Boolean:
		return Boolean
	case parquet.Int32, parquet.Int64:
		if _, decimal := logical.(*format.DecimalType); !decimal {
			return Integer
		}
	case parquet.Float, parquet.Double:
		return Real
	case parquet.ByteArray:
		switch logical.(type) {
		case *format.StringType, *format.JsonType, *format.EnumType:
			return Text
		case *format.DecimalType:
			return Other
		}
		return Binary
	}
	return Other
}

// column returns the leaf of a path, which Scan has checked. The result level is the definition level of list elements.
// A value with a smaller definition level is an empty list, or a null list if its level is below level-1. For columns
// that are not lists, the result is 0.
func (p *parquetFile) column(path string) (leaf *parquet.Column, level int) {
	c := p.file.Root()
	for name := range strings.SplitSeq(path, ".") {
		if c = c.Column(name); !c.Required() {
			level++
		}
	}
	leaf = listOf(c)
	if leaf == nil {
		return c, 0
	}
	for !c.Repeated() {
		if c = c.Columns()[0]; !c.Required() {
			level++
		}
	}
	return leaf, level
}

func (p *parquetFile) scan(ctx context.Context, columns []Column, visit func([]Value) error) (err error) {
	cursors := make([]*cursor, len(columns))
	row := make([]Value, len(columns))
	defer func() {
		for _, c := range cursors {
			if c != nil {
				err = errors.Join(err, c.close())
			}
		}
	}()
	for g, group := range p.file.RowGroups() {
		chunks := group.ColumnChunks()
		for k, c := range columns {
			leaf, level := p.column(c.Path)
			if err := p.checkPages(ctx, g, leaf.Index()); err != nil {
				return fmt.Errorf("column %.100q: %w", c.Path, err)
			}
			if cursors[k] != nil {
				if err := cursors[k].close(); err != nil {
					return err
				}
			}
			cursors[k] = &cursor{pages: chunks[leaf.Index()].Pages(), kind: kindOf(leaf), level: level,
				double: leaf.Type().Kind() == parquet.Double}
		}
		for i := range group.NumRows() {
			if err := ctx.Err(); err != nil && i%256 == 0 {
				return err
			}
			for k, c := range cursors {
				row[k] = Value{List: row[k].List[:0]}
				if err := c.next(&row[k]); err != nil {
					return fmt.Errorf("column %.100q, row %d of its group: %w", columns[k].Path, i, err)
				}
			}
			if err := visit(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// cursor reads the values of one column of a row group in order.
type cursor struct {
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader // values of the current page
	kind   Kind
	level  int // definition level of list elements; 0: the values are not lists
	double bool

	buffer [64]parquet.Value
	loaded []parquet.Value // values that were read, but not returned; they refer to the memory of the page
}

// peek returns the next value without consuming it.
func (c *cursor) peek() (*parquet.Value, error) {
	for len(c.loaded) == 0 {
		if c.values == nil {
			page, err := c.pages.ReadPage()
			if err != nil {
				return nil, err
			}
			c.release()
			c.page, c.values = page, page.Values()
		}
		n, err := c.values.ReadValues(c.buffer[:])
		c.loaded = c.buffer[:n]
		if err != nil {
			c.values = nil
			if !errors.Is(err, io.EOF) {
				return nil, err
			}
		}
	}
	return &c.loaded[0], nil
}

// next reads the value of the next row.
func (c *cursor) next(v *Value) error {
	one, err := c.peek()
	if err != nil {
		return noEOF(err)
	}
	if c.level == 0 {
		c.loaded = c.loaded[1:]
		c.set(one, v)
		return nil
	}
	for first := true; ; first = false {
		one, err := c.peek()
		switch {
		case err == io.EOF && !first:
			return nil
		case err != nil:
			return noEOF(err)
		case !first && one.RepetitionLevel() == 0:
			return nil
		}
		c.loaded = c.loaded[1:]
		switch {
		case one.DefinitionLevel() < c.level: // no element
			v.Null = one.DefinitionLevel() < c.level-1
		case one.IsNull():
			return errors.New("an element of a list is missing (null)")
		default:
			v.List = append(v.List, integer(one))
		}
	}
}

func (c *cursor) set(one *parquet.Value, v *Value) {
	switch {
	case one.IsNull():
		v.Null = true
	case c.kind == Integer:
		v.Int = integer(one)
	case c.kind == Boolean:
		if one.Boolean() {
			v.Int = 1
		}
	case c.kind == Real && c.double:
		v.Real = one.Double()
	case c.kind == Real:
		v.Real = float64(one.Float())
	default:
		v.Bytes = one.ByteArray()
	}
}

func integer(one *parquet.Value) int64 {
	if one.Kind() == parquet.Int32 {
		return int64(one.Int32())
	}
	return one.Int64()
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *cursor) release() {
	if c.page != nil {
		parquet.Release(c.page)
		c.page = nil
	}
}

func (c *cursor) close() error {
	c.release()
	return c.pages.Close()
}
