package table

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// Lines returns the given columns of all rows as JSON lines: one object per row, with the paths of the columns as
// names. A number of a ClassLabel is replaced by the name of the class. Missing values (null) are omitted. The caller
// must close the reader.
func (f *File) Lines(ctx context.Context, columns []string) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		out := bufio.NewWriterSize(w, 1<<16)
		err := f.EachLine(ctx, columns, func(line []byte) error {
			_, err := out.Write(line)
			return err
		})
		if err == nil {
			err = out.Flush()
		}
		w.CloseWithError(err) // nil signals the end of the lines
	}()
	return r
}

// EachLine calls visit with each line of Lines, including the line end. The line is valid only during the call.
func (f *File) EachLine(ctx context.Context, columns []string, visit func(line []byte) error) error {
	selected := make([]Column, len(columns))
	writers := make([]func(line []byte, v *Value) ([]byte, error), len(columns))
	for k, path := range columns {
		selected[k].Path = path
		field, _ := f.Field(path) // Scan reports a missing column
		writers[k] = jsonOf(field.Kind, f.Features[path].Names)
	}
	var line []byte
	row := 0
	return f.Scan(ctx, selected, func(values []Value) (err error) {
		line = append(line[:0], '{')
		for k := range values {
			if values[k].Null {
				continue
			}
			if len(line) > 1 {
				line = append(line, ',')
			}
			line = append(appendJSON(line, []byte(columns[k])), ':')
			if line, err = writers[k](line, &values[k]); err != nil {
				return fmt.Errorf("row %d, column %q: %w", row, columns[k], err)
			}
		}
		row++
		line = append(line, '}', '\n')
		return visit(line)
	})
}

// jsonOf returns a function that appends a value as JSON. The parameter names contains the class names of a ClassLabel.
func jsonOf(kind Kind, names []string) func(line []byte, v *Value) ([]byte, error) {
	switch {
	case kind == Integer && len(names) > 0:
		return func(line []byte, v *Value) ([]byte, error) {
			if v.Int < 0 || v.Int >= int64(len(names)) {
				return line, fmt.Errorf("class %d, want 0 to %d (-1 means that the row has no label)", v.Int,
					len(names)-1)
			}
			return appendJSON(line, []byte(names[v.Int])), nil
		}
	case kind == Integer:
		return func(line []byte, v *Value) ([]byte, error) { return strconv.AppendInt(line, v.Int, 10), nil }
	case kind == Real:
		return func(line []byte, v *Value) ([]byte, error) {
			text, err := json.Marshal(v.Real) // refuses infinity and NaN
			return append(line, text...), err
		}
	case kind == Boolean:
		return func(line []byte, v *Value) ([]byte, error) { return strconv.AppendBool(line, v.Int == 1), nil }
	case kind == Integers:
		return func(line []byte, v *Value) ([]byte, error) {
			line = append(line, '[')
			for i, n := range v.List {
				if i > 0 {
					line = append(line, ',')
				}
				line = strconv.AppendInt(line, n, 10)
			}
			return append(line, ']'), nil
		}
	}
	return func(line []byte, v *Value) ([]byte, error) {
		if !utf8.Valid(v.Bytes) {
			return line, fmt.Errorf("the text is not UTF-8: % x", v.Bytes[:min(len(v.Bytes), 8)])
		}
		return appendJSON(line, v.Bytes), nil
	}
}

// appendJSON appends a text in UTF-8 as a JSON string.
func appendJSON(line, text []byte) []byte {
	const digits = "0123456789abcdef"
	line = append(line, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			line = append(line, '\\', c)
		case c == '\n':
			line = append(line, '\\', 'n')
		case c < ' ':
			line = append(line, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			line = append(line, c)
		}
	}
	return append(line, '"')
}
