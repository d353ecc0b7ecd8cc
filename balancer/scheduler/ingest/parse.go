package ingest

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Format is the format of a source.
type Format string

// The formats.
const (
	TOML      Format = "toml"
	CSV       Format = "csv"
	JSONLines Format = "jsonl"
)

// FormatOf returns the format of a file from the extension of its name: .toml, .csv, .jsonl or .ndjson.
func FormatOf(name string) (Format, error) {
	lower := strings.ToLower(name)
	switch {
	case strings.HasSuffix(lower, ".toml"):
		return TOML, nil
	case strings.HasSuffix(lower, ".csv"):
		return CSV, nil
	case strings.HasSuffix(lower, ".jsonl"), strings.HasSuffix(lower, ".ndjson"):
		return JSONLines, nil
	}
	return "", fmt.Errorf("format of %s: want a file name that ends with .toml, .csv, .jsonl or .ndjson", quote(name))
}

// Source is a text with rows.
type Source struct {
	Name   string // for errors
	Format Format
	Table  Table // table of a CSV source; the other formats name the table of each row
	Reader io.Reader
}

// maxRows limits the rows of all sources. A million jobs take about a gigabyte.
const maxRows = 1 << 20

// rowsOf parses a source. It adds faults to f, and returns an error if the source cannot be read.
func rowsOf(s *Source, f *faults) ([]row, error) {
	text, err := readAll(s.Name, s.Reader)
	var faulty *Error
	if errors.As(err, &faulty) {
		f.list, f.more = append(f.list, faulty.Faults...), f.more+faulty.More
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	switch s.Format {
	case TOML:
		return tomlRows(s.Name, text, f), nil
	case CSV:
		return csvRows(s.Name, s.Table, text, f), nil
	case JSONLines:
		return jsonRows(s.Name, text, f), nil
	}
	return nil, fmt.Errorf("read %s: got format %s, want %s, %s or %s", s.Name, quote(string(s.Format)), TOML, CSV,
		JSONLines)
}

func tableNames() string {
	var names []string
	for _, t := range tables {
		names = append(names, string(t.name))
	}
	return strings.Join(names, ", ")
}

// csvRows reads CSV: a header with the names of columns, then one row in each line. Fields may be quoted. Lines that
// are blank or begin with # are ignored.
func csvRows(source string, name Table, text []byte, f *faults) []row {
	table := tableIndex(string(name))
	if table < 0 {
		f.add(source, 0, "table", quote(string(name)), "one of "+tableNames())
		return nil
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		f.add(source, 1+bytes.Count(text, []byte("\n")), "last line", "no line end",
			"a complete file that ends with a line end")
		return nil
	}
	r := csv.NewReader(bytes.NewReader(text))
	r.Comment, r.FieldsPerRecord, r.TrimLeadingSpace = '#', -1, true
	var header []string
	var rows []row
	for {
		fields, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			var at *csv.ParseError
			line := 0
			if errors.As(err, &at) {
				line, err = at.Line, at.Err
			}
			f.add(source, line, "not valid CSV", err.Error(),
				"fields separated by commas; quotes around fields with commas")
			return nil
		}
		line, _ := r.FieldPos(0)
		if header == nil {
			header = fields
			for i, h := range header {
				header[i] = strings.TrimSpace(h)
			}
			if !checkHeader(source, line, table, header, f) {
				return nil
			}
			continue
		}
		if len(fields) != len(header) {
			f.add(source, line, "fields", strconv.Itoa(len(fields)), fmt.Sprintf("%d, as in the header", len(header)))
			continue
		}
		if len(rows) == maxRows {
			f.add(source, line, "rows", "more", fmt.Sprintf("at most %d", maxRows))
			return nil
		}
		out := row{source: source, line: line, table: table}
		for i, v := range fields {
			at, _ := r.FieldPos(i)
			out.cells = append(out.cells, cell{header[i], v, at})
		}
		rows = append(rows, out)
	}
	if header == nil {
		f.add(source, 1, "header", "none", "a line with the names of columns: "+columnNames(table))
	}
	return rows
}

// checkHeader reports unknown and repeated columns once, instead of in each row.
func checkHeader(source string, line, table int, header []string, f *faults) bool {
	if columns := len(tables[table].columns); len(header) > columns+spareCells {
		f.add(source, line, "header of table "+string(tables[table].name), fmt.Sprintf("%d columns", len(header)),
			fmt.Sprintf("at most %d: %s", columns, columnNames(table)))
		return false
	}
	ok := true
	for i, h := range header {
		known := false
		for _, c := range tables[table].columns {
			known = known || c.Name == h
		}
		for _, earlier := range header[:i] {
			if earlier == h {
				f.add(source, line, "column of table "+string(tables[table].name), quote(h)+" a second time",
					"each column once")
				ok, known = false, true
			}
		}
		if !known {
			f.add(source, line, "column of table "+string(tables[table].name), quote(h), "one of "+columnNames(table))
			ok = false
		}
	}
	return ok
}

// jsonRows reads JSON lines: one object in each line. The value of key "table" is the name of the table; the other keys
// are columns.
func jsonRows(source string, text []byte, f *faults) []row {
	var rows []row
	for n, line := range lines(text, source, f) {
		members, err := flatObject(line)
		if err != nil {
			got := err.Error()
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				got = "an incomplete object"
			}
			f.add(source, n, "line", got, "one JSON object")
			continue
		}
		if len(rows) == maxRows {
			f.add(source, n, "rows", "more", fmt.Sprintf("at most %d", maxRows))
			return nil
		}
		out := row{source: source, line: n, table: -1}
		named := false
		for _, m := range members {
			if m.column == "table" && !named {
				name, _ := m.value.(string)
				if out.table = tableIndex(name); out.table < 0 {
					f.add(source, n, "table", show(m.value), "one of "+tableNames())
				}
				named = true
				continue
			}
			out.cells = append(out.cells, cell{m.column, m.value, n})
		}
		if !named {
			f.add(source, n, "table", "none", `a key "table" with one of `+tableNames())
		}
		if out.table >= 0 {
			rows = append(rows, out)
		}
	}
	return rows
}

// flatObject returns the members of a JSON object, in order. Objects and lists as values are not valid in any column.
func flatObject(line string) ([]cell, error) {
	d := json.NewDecoder(strings.NewReader(line))
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if t != json.Delim('{') {
		return nil, fmt.Errorf("%v", t)
	}
	var list []cell
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var c cell
		c.column, _ = key.(string) // keys of objects are strings
		if c.value, err = d.Token(); err != nil {
			return nil, err
		}
		if open, ok := c.value.(json.Delim); ok {
			c.value = strange("a list")
			if open == '{' {
				c.value = strange("an object")
			}
			for depth := 1; depth > 0; {
				t, err := d.Token()
				if err != nil {
					return nil, err
				}
				switch t {
				case json.Delim('{'), json.Delim('['):
					depth++
				case json.Delim('}'), json.Delim(']'):
					depth--
				}
			}
		}
		list = append(list, c)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if t, err := d.Token(); err != io.EOF {
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%v after the JSON object", t)
	}
	return list, nil
}

// tomlRows reads TOML: each row is a table of an array, such as [[jobs]].
func tomlRows(source string, text []byte, f *faults) []row {
	starts := lineStarts(text)
	lineOf := func(offset int) int { return sort.SearchInts(starts, offset+1) }
	var p unstable.Parser
	p.Reset(text)
	var rows []row
	open, skip := false, false // open: the last row is that of the current table; skip: the table is unknown
	for p.NextExpression() {
		node := p.Expression()
		if node.Kind == unstable.Comment {
			continue
		}
		var path []string
		line := 0
		for it := node.Key(); it.Next(); {
			if line == 0 {
				line = lineOf(int(it.Node().Raw.Offset))
			}
			path = append(path, string(it.Node().Data))
		}
		key := strings.Join(path, ".")
		switch {
		case node.Kind == unstable.ArrayTable:
			table := tableIndex(key)
			open, skip = table >= 0, table < 0
			if !open {
				f.add(source, line, "table", quote(key), "one of "+tableNames())
				continue
			}
			if len(rows) == maxRows {
				f.add(source, line, "rows", "more", fmt.Sprintf("at most %d", maxRows))
				return nil
			}
			rows = append(rows, row{source: source, line: line, table: table})
		case node.Kind == unstable.Table:
			f.add(source, line, "table", quote("["+key+"]"), "double brackets, such as [[jobs]]")
			open, skip = false, true
		case !open && !skip:
			f.add(source, line, "key", quote(key), "a table before it, such as [[jobs]]")
		case open:
			last := &rows[len(rows)-1]
			last.cells = append(last.cells, cell{key, tomlValue(node.Value()), line})
		}
	}
	if err := p.Error(); err != nil {
		line := 1
		var at *unstable.ParserError
		if errors.As(err, &at) && at.Highlight != nil {
			if offset := cap(text) - cap(at.Highlight); offset >= 0 && offset <= len(text) {
				// Highlight is a part of text
				line = lineOf(offset)
			}
		}
		f.add(source, line, "not valid TOML", err.Error(), "")
	}
	return rows
}

// strange is a value that is not valid in any column.
type strange string

func tomlValue(node *unstable.Node) any {
	text := string(node.Data)
	switch node.Kind {
	case unstable.String:
		return text
	case unstable.Integer:
		if v, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 0, 64); err == nil {
			return v
		}
	case unstable.Float:
		if v, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64); err == nil {
			return v
		}
	case unstable.Bool:
		return text == "true"
	case unstable.Array:
		return strange("a list")
	case unstable.InlineTable:
		return strange("a table")
	}
	return strange(text)
}

func lineStarts(text []byte) []int {
	starts := []int{0}
	for i, c := range text {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}
