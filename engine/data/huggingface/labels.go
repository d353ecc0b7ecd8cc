package huggingface

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data/openfiles"
	"github.com/hetero-train/hetero-train/engine/data/pyjson"
	"github.com/hetero-train/hetero-train/engine/data/stored"
	"github.com/hetero-train/hetero-train/engine/data/table"
)

// Names of the columns of a list: the paths of images, as in datasets, and the labels.
const (
	pathColumn  = "file_name"
	labelColumn = "label"
)

// isList reports whether a file is a list of images: CSV, TSV or JSON lines.
func isList(name string) bool {
	return slices.Contains([]string{".csv", ".tsv", ".jsonl", ".ndjson"}, strings.ToLower(filepath.Ext(name)))
}

// isMetadata reports whether a file has the name that datasets expects for a list in a folder of images.
func isMetadata(base string) bool { return base == "metadata.csv" || base == "metadata.jsonl" }

// list adds the images of a list. Paths of images are relative to the folder of the list.
func (b *builder) list(ctx context.Context, base, path string, d *dataset) error {
	if b.first == "" {
		b.first, b.byText = path, map[string]int32{}
	} else if b.names != nil {
		return fmt.Errorf("the list has no ClassLabel, but %s has", b.first)
	}
	f, info, err := stored.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // read only
	number, row := int32(len(b.set.files)), int32(0)
	b.set.addFile(base, path, openfiles.Of(path, info))
	within, err := b.set.within(number)
	if err != nil {
		return err
	}
	image, labels := b.o.Image, b.o.Label
	if image == "" {
		image = pathColumn
	}
	if labels == "" {
		labels = labelColumn
	}
	add := func(line int, name string, label cell) error {
		c := columns{label: labels, kind: table.Text, several: label.list || b.o.Separator != ""}
		switch {
		case name == "":
			return fmt.Errorf("line %d: column %q is empty, want the path of an image", line, image)
		case label.text == "" && !c.several:
			return fmt.Errorf("line %d: column %q is empty, want a label; for images with any number of labels, set data.label_separator",
				line, labels)
		}
		if err := b.several.agree(c.several, path); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(within, filepath.FromSlash(name))
		}
		var class int32
		var err error
		if label.list {
			class, err = b.setOf(label.pieces, c)
		} else {
			class, err = b.labelOf(&table.Value{Bytes: []byte(label.text)}, c)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		e := entry{offset: int64(len(b.set.paths)), size: -int32(len(name)), label: class, file: number, row: row}
		b.set.paths = append(b.set.paths, name...)
		d.samples = append(d.samples, e)
		row++
		return ctx.Err()
	}
	in := bufio.NewReaderSize(f, 1<<16)
	skipMark(in)
	if ext := strings.ToLower(filepath.Ext(path)); ext == ".csv" || ext == ".tsv" {
		err = eachRecord(in, ext == ".tsv", image, labels, add)
	} else {
		err = eachObject(in, image, labels, add)
	}
	if err == nil && row == 0 {
		err = errors.New("the list has no images")
	}
	if err == nil { // lists that are not in the folder of their images are a common mistake
		first := d.samples[len(d.samples)-int(row)]
		var image io.Closer
		if image, _, err = b.set.openPath(number, string(b.set.paths[first.offset:][:-first.size])); err == nil {
			image.Close() // read only
		} else {
			err = fmt.Errorf("the first image of the list: %w; paths are relative to the folder of the list", err)
		}
	}
	return err
}

// cell is the label of an image, or the list of its labels.
type cell struct {
	text   string
	list   bool
	pieces []table.Value // elements, if the label is a list
}

// mostLine limits the length of a record of a list, in bytes. Without a limit, a missing quotation mark would make a
// reader load the whole file.
const mostLine = 16 << 20

// limited is a reader that returns an error after a number of bytes.
type limited struct {
	io.Reader
	n, most int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.n >= l.most {
		return 0, fmt.Errorf("a record has more than %d bytes: is a quotation mark missing?", mostLine)
	}
	n, err := l.Reader.Read(p[:min(int64(len(p)), l.most-l.n)])
	l.n += int64(n)
	return n, err
}

// eachRecord calls add for each record of a CSV or TSV file.
func eachRecord(in *bufio.Reader, tabs bool, image, labels string,
	add func(line int, name string, label cell) error) error {
	bytes := &limited{Reader: in, most: mostLine}
	r := csv.NewReader(bytes)
	r.ReuseRecord = true
	r.Comma = separator(in, tabs)
	header, err := r.Read()
	if err == io.EOF {
		return errors.New("the file is empty")
	} else if err != nil {
		return err
	}
	names := slices.Clone(header)
	at := [2]int{}
	for k, name := range []string{image, labels} {
		if at[k] = slices.Index(names, name); at[k] < 0 {
			return fmt.Errorf("%s: there is no column %q; the columns are %q",
				[]string{"data.image_column", "data.label_column"}[k], name, names)
		}
	}
	line := 1
	for {
		bytes.most = r.InputOffset() + mostLine
		record, err := r.Read()
		if err == io.EOF {
			return nil
		} else if parse := (*csv.ParseError)(nil); err != nil && !errors.As(err, &parse) {
			return fmt.Errorf("after line %d: %w", line, err)
		} else if err != nil {
			return err
		}
		line, _ = r.FieldPos(0)
		if err := add(line, record[at[0]], cell{text: strings.TrimSpace(record[at[1]])}); err != nil {
			return err
		}
	}
}

// eachObject calls add for each object of a file of JSON lines.
func eachObject(in io.Reader, image, labels string, add func(line int, name string, label cell) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, mostLine)
	line := 1
	for ; lines.Scan(); line++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		var object map[string]json.RawMessage
		if err := pyjson.Unmarshal(text, &object); err != nil {
			return fmt.Errorf("line %d: want a JSON object: %w", line, err)
		}
		name, err := scalar(object[image], "data.image_column", image)
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		label, err := cellOf(object[labels], labels)
		if err == nil {
			err = add(line, name, label)
		} else {
			err = fmt.Errorf("line %d: %w", line, err)
		}
		if err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d has more than %d bytes", line, mostLine)
	}
	return lines.Err()
}

// cellOf parses the label of an image, or the list of its labels.
func cellOf(raw json.RawMessage, name string) (c cell, err error) {
	const key = "data.label_column"
	var list []json.RawMessage
	if c.list = bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")); !c.list {
		c.text, err = scalar(raw, key, name)
		c.text = strings.TrimSpace(c.text)
		return c, err
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return c, fmt.Errorf("%q: %w", name, err)
	}
	for _, element := range list {
		text, err := scalar(element, key, name)
		if err != nil {
			return c, err
		}
		if bytes.ContainsAny(element[:1], "tf") {
			return c, fmt.Errorf("%s: %q is a list of true and false, want a list of the labels of the image", key,
				name)
		}
		c.pieces = append(c.pieces, table.Value{Bytes: []byte(strings.TrimSpace(text))})
	}
	return c, nil
}

// scalar returns a text, a number or a boolean as text.
func scalar(raw json.RawMessage, key, name string) (string, error) {
	var value any
	if err := json.Unmarshal(raw, &value); raw != nil && err != nil {
		return "", fmt.Errorf("%q: %w", name, err)
	}
	switch v := value.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		return string(raw), nil
	case nil:
		return "", fmt.Errorf("%s: no value of %q", key, name)
	}
	return "", fmt.Errorf("%s: %q is an object or a list, want a text or a number", key, name)
}
