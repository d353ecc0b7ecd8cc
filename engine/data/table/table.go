package table

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data/stored"
)

// Kind is the type of the values of a column.
type Kind int

// The kinds of values. Other is the kind of nested columns, except structures and lists of whole numbers.
const (
	Other Kind = iota
	Integer
	Real
	Boolean
	Text
	Binary
	Integers // a list of whole numbers
	Struct
)

// String returns the name of the kind in messages.
func (k Kind) String() string {
	return [...]string{"another type", "integer", "real number", "boolean", "text", "bytes", "list of integers",
		"structure"}[k]
}

// Field describes a column, or a part of a column of structures.
type Field struct {
	Name     string
	Kind     Kind
	Children []Field // of a structure
}

// Feature is the type of a column in datasets.
type Feature struct {
	Type  string   `json:"_type"` // Value, ClassLabel, Image, List, …
	Names []string `json:"names"` // class names of a ClassLabel, or of a list of ClassLabels
}

// Column selects a column.
type Column struct {
	Path   string // names, separated by dots
	Locate bool   // return positions in place of bytes; Arrow only
}

// Value is one value. Bytes and List are valid until visit returns.
type Value struct {
	Null  bool
	Int   int64 // Integer; Boolean: 0 or 1
	Real  float64
	Bytes []byte  // Text, Binary; nil with Column.Locate
	At    int64   // position of the bytes in the file, if Column.Locate is set
	Size  int64   // number of bytes, if Column.Locate is set
	List  []int64 // Integers
}

// ErrFormat means that a file is neither Arrow nor Parquet.
var ErrFormat = errors.New("neither an Arrow nor a Parquet file")

// File is an open file. It is safe for concurrent use.
type File struct {
	Path     string
	Rows     int64
	Fields   []Field
	Features map[string]Feature // keys are names of columns; nil if the file contains no features
	Parquet  bool
	Footer   [32]byte // SHA-256 of the footer of a Parquet file
	Info     os.FileInfo

	file stored.File
	scan func(ctx context.Context, columns []Column, visit func([]Value) error) error
}

// Open opens a file and reads its metadata.
func Open(path string) (f *File, err error) {
	in, info, err := stored.Open(path)
	if err != nil {
		return nil, err
	}
	f = &File{Path: path, file: in, Info: info}
	defer func() {
		if p := recover(); p != nil { // a crafted file may cause a panic in a parser
			err = fmt.Errorf("the metadata are damaged: %v", p)
		}
		if err != nil {
			in.Close() // read only
			f = nil
		}
	}()
	start := make([]byte, 8)
	if n, err := in.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return f, err
	} else if start = start[:n]; n == 0 {
		return f, errors.New("the file is empty")
	}
	switch {
	case bytes.HasPrefix(start, []byte("PAR1")):
		f.Parquet = true
		return f, f.openParquet(info.Size())
	case bytes.HasPrefix(start, []byte("ARROW1")):
		return f, f.openArrow(8, info.Size())
	case bytes.HasPrefix(start, []byte{0xff, 0xff, 0xff, 0xff}):
		return f, f.openArrow(0, info.Size())
	}
	return f, fmt.Errorf("%w: begins with % x", ErrFormat, start)
}

// Recognise reports whether a file is an Arrow or Parquet file.
func Recognise(f io.ReaderAt) bool {
	start := make([]byte, 6)
	n, err := f.ReadAt(start, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false // opening the file reports the error
	}
	for _, prefix := range []string{"PAR1", "ARROW1", "\xff\xff\xff\xff"} {
		if bytes.HasPrefix(start[:n], []byte(prefix)) {
			return true
		}
	}
	return false
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// Field returns the description of a column.
func (f *File) Field(path string) (field Field, ok bool) {
	fields := f.Fields
	for name := range strings.SplitSeq(path, ".") {
		ok = false
		for _, one := range fields {
			if one.Name == name {
				field, fields, ok = one, one.Children, true
				break
			}
		}
		if !ok {
			return Field{}, false
		}
	}
	return field, ok
}

// Names returns the names of the columns.
func (f *File) Names() (names []string) {
	for _, one := range f.Fields {
		names = append(names, one.Name)
	}
	return names
}

// Scan calls visit for each row, with the values of the columns in their order. It stops at the first error of visit,
// and returns this error.
func (f *File) Scan(ctx context.Context, columns []Column, visit func(row []Value) error) (err error) {
	for _, c := range columns {
		if field, ok := f.Field(c.Path); !ok {
			return fmt.Errorf("there is no column %q; the columns are %q", c.Path, f.Names())
		} else if field.Kind == Other || field.Kind == Struct {
			return fmt.Errorf("column %q has %s, want text, bytes, a number or a list of whole numbers", c.Path,
				field.Kind)
		}
	}
	var own error // error of visit; after it, the parser may panic
	defer func() {
		if p := recover(); p != nil {
			if err = own; own == nil {
				err = fmt.Errorf("the file is damaged: %v", p)
			}
		}
	}()
	return f.scan(ctx, columns, func(row []Value) error {
		own = visit(row)
		return own
	})
}

// setFeatures reads the features from the metadata that the library datasets writes.
func (f *File) setFeatures(text string) {
	var meta struct {
		Info struct {
			Features json.RawMessage `json:"features"`
		} `json:"info"`
	}
	if json.Unmarshal([]byte(text), &meta) == nil {
		f.Features = ParseFeatures(meta.Info.Features)
	}
}

// ParseFeatures parses the features of dataset_info.json. It leaves out features that it cannot parse.
func ParseFeatures(text []byte) map[string]Feature {
	var all map[string]json.RawMessage
	if json.Unmarshal(text, &all) != nil || len(all) == 0 {
		return nil
	}
	features := map[string]Feature{}
	for name, raw := range all {
		if one, ok := parseFeature(raw); ok {
			features[name] = one
		}
	}
	return features
}

// parseFeature parses one feature. A list is {"feature": …, "_type": "List"}. In older files, the type is LargeList or
// Sequence, or the list is [ … ].
func parseFeature(raw []byte) (f Feature, ok bool) {
	var of []json.RawMessage
	if json.Unmarshal(raw, &of) == nil && len(of) == 1 {
		f.Type = "List"
	} else if json.Unmarshal(raw, &f) != nil {
		return f, false
	} else {
		var list struct {
			Feature json.RawMessage `json:"feature"`
		}
		if json.Unmarshal(raw, &list) == nil && list.Feature != nil {
			of = []json.RawMessage{list.Feature}
		}
	}
	var element Feature
	if f.Type != "ClassLabel" && len(of) == 1 && json.Unmarshal(of[0], &element) == nil &&
		element.Type == "ClassLabel" {
		f.Names = element.Names
	}
	return f, true
}
