package table

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

type parquetFile struct {
	*File
	file *parquet.File
}

func (f *File) openParquet(size int64) error {
	file, err := parquet.OpenFile(f.file, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return fmt.Errorf("%w: the file is truncated or damaged", err)
	}
	p := &parquetFile{f, file}
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

// listOf returns the elements of a list of simple values, or nil if the column is no such list.
func listOf(c *parquet.Column) *parquet.Column {
	repeated := c.Repeated()
	for !c.Leaf() && len(c.Columns()) == 1 {
		c = c.Columns()[0]
		repeated = repeated || c.Repeated()
	}
	if !c.Leaf() || !repeated {
		return nil
	}
	return c
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

// column returns the leaf of a path, which Scan has checked.
func (p *parquetFile) column(path string) (leaf *parquet.Column, list bool) {
	c := p.file.Root()
	for name := range strings.SplitSeq(path, ".") {
		c = c.Column(name)
	}
	if leaf := listOf(c); leaf != nil {
		return leaf, true
	}
	return c, false
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
	for _, group := range p.file.RowGroups() {
		chunks := group.ColumnChunks()
		for k, c := range columns {
			leaf, list := p.column(c.Path)
			if cursors[k] != nil {
				if err := cursors[k].close(); err != nil {
					return err
				}
			}
			cursors[k] = &cursor{pages: chunks[leaf.Index()].Pages(), kind: kindOf(leaf), list: list,
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
	values parquet.ValueReader // of the page
	kind   Kind
	list   bool
	double bool

	buffer [64]parquet.Value
	loaded []parquet.Value // values that were read, but not used; they refer to memory of the page
}

// peek returns the next value without using it.
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
	if !c.list {
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
		if !one.IsNull() {
			v.List = append(v.List, integer(one))
		} else if !first {
			return errors.New("an element of a list is missing (null)")
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
