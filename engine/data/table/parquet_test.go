package table

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

func write[T any](t testing.TB, rows []T, o ...parquet.WriterOption) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.parquet")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[T](out, o...)
	_, err = w.Write(rows)
	if err := errors.Join(err, w.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func scan(t testing.TB, path, column string) (kind Kind, rows []string, err error) {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		return Other, nil, err
	}
	defer f.Close()
	field, _ := f.Field(column)
	err = f.Scan(context.Background(), []Column{{Path: column}}, func(v []Value) error {
		rows = append(rows, text(v[0], field.Kind))
		return nil
	})
	return field.Kind, rows, err
}

func TestListsOfParquet(t *testing.T) {
	one, two := int64(1), int64(2)
	type nullable struct {
		L []*int64 `parquet:"l,list"`
	}
	for _, rows := range [][]nullable{{{[]*int64{nil, &one}}}, {{[]*int64{&one, nil}}}, {{[]*int64{nil}}}} {
		_, got, err := scan(t, write(t, rows), "l")
		if err == nil || !strings.Contains(err.Error(), "an element of a list is missing") {
			t.Errorf("got %v, %v, want an error about a missing element", got, err)
		}
	}
	_, got, err := scan(t, write(t, []nullable{{[]*int64{&one, &two}}, {nil}, {[]*int64{&two}}}), "l")
	if err != nil || strings.Join(got, " ") != "[1 2] [] [2]" {
		t.Errorf("got %v, %v", got, err)
	}
	type inner struct {
		X []int64 `parquet:"x,list"`
	}
	type nested struct {
		L []inner `parquet:"l,list"`
		M inner   `parquet:"m"`
	}
	path := write(t, []nested{{[]inner{{[]int64{1, 2}}, {[]int64{3}}}, inner{[]int64{4}}}})
	if kind, got, err := scan(t, path, "l"); err == nil || kind != Other {
		t.Errorf("nested lists: got %v, %v, %v, want another type", kind, got, err)
	}
	if kind, got, err := scan(t, path, "m.x"); err != nil || kind != Integers || strings.Join(got, " ") != "[4]" {
		t.Errorf("a list in a structure: got %v, %v, %v", kind, got, err)
	}
}

type textRow struct {
	T string `parquet:"t"`
}

// forge changes the metadata in the footer of a file.
func forge(t testing.TB, path string, change func(*format.FileMetaData)) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := len(b) - 8 - int(binary.LittleEndian.Uint32(b[len(b)-8:]))
	protocol := new(thrift.CompactProtocol)
	var m format.FileMetaData
	if err := thrift.Unmarshal(protocol, b[end:len(b)-8], &m); err != nil {
		t.Fatal(err)
	}
	change(&m)
	footer, err := thrift.Marshal(protocol, &m)
	if err != nil {
		t.Fatal(err)
	}
	b = append(b[:end:end], footer...)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(footer))), "PAR1"...)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFootersAreNotTrusted(t *testing.T) {
	for want, change := range map[string]func(*format.FileMetaData){
		"num_rows=-1":             func(m *format.FileMetaData) { m.NumRows = -1 },
		"1099511627776 rows, but": func(m *format.FileMetaData) { m.NumRows = 1 << 40 },
		"row group 0 has":         func(m *format.FileMetaData) { m.NumRows, m.RowGroups[0].NumRows = 1<<40, 1<<40 },
		"of a file of": func(m *format.FileMetaData) {
			m.RowGroups[0].Columns[0].MetaData.TotalCompressedSize = 1 << 40
		},
	} {
		path := write(t, []textRow{{"a"}, {"b"}})
		forge(t, path, change)
		if f, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want %q", f, err, want)
		}
	}
	path := write(t, []textRow{{"a"}, {"b"}})
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(b[len(b)-8:], 1<<31)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "no footer") {
		t.Errorf("got %v", err)
	}
}

func TestLengthsOfPagesAreNotTrusted(t *testing.T) {
	path := write(t, []textRow{{strings.Repeat("a", 2000)}})
	for want, change := range map[string]func(*format.PageHeader){
		"a page has 2147483647 bytes": func(h *format.PageHeader) { h.CompressedPageSize = 1<<31 - 1 },
		"expands to 2147483647":       func(h *format.PageHeader) { h.UncompressedPageSize = 1<<31 - 1 },
	} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		protocol := new(thrift.CompactProtocol)
		in := protocol.NewReaderFromBytes(b[4:])
		var h format.PageHeader
		if err := thrift.NewDecoder(in).Decode(&h); err != nil {
			t.Fatal(err)
		}
		change(&h)
		header, err := thrift.Marshal(protocol, &h)
		if err != nil {
			t.Fatal(err)
		}
		grown := len(header) - in.BytesRead()
		b = bytes.Join([][]byte{b[:4], header, b[4+in.BytesRead():]}, nil)
		changed := filepath.Join(t.TempDir(), "x.parquet")
		if err := os.WriteFile(changed, b, 0o644); err != nil {
			t.Fatal(err)
		}
		forge(t, changed, func(m *format.FileMetaData) {
			m.RowGroups[0].Columns[0].MetaData.TotalCompressedSize += int64(grown)
		})
		if _, rows, err := scan(t, changed, "t"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %d rows, %v, want %q", len(rows), err, want)
		}
	}
	if _, rows, err := scan(t, path, "t"); err != nil || len(rows) != 1 {
		t.Errorf("the file itself: got %d rows, %v", len(rows), err)
	}
}

// If visit fails, a parser may panic while it frees its memory. Scan must nevertheless return the error of visit.
func TestTheErrorOfAVisitorSurvivesAPanic(t *testing.T) {
	own := errors.New("own")
	f := &File{Fields: []Field{{Name: "x", Kind: Integer}},
		scan: func(_ context.Context, _ []Column, visit func([]Value) error) error {
			if visit(nil) != nil {
				panic("released twice")
			}
			return nil
		}}
	if err := f.Scan(context.Background(), []Column{{Path: "x"}}, func([]Value) error { return own }); err != own {
		t.Errorf("got %v, want the visitor's error", err)
	}
}
