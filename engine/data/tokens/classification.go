package tokens

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/pyjson"
	"github.com/hetero-train/hetero-train/engine/data/stored"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// ClassificationOptions describes a file of labelled texts.
type ClassificationOptions struct {
	// EachLine, if not nil, calls visit with the JSON lines of another source. Path is then the name of the source in
	// messages.
	EachLine func(ctx context.Context, visit func(line []byte) error) error
	// Path is a file of JSON lines (.jsonl, .ndjson) or of tab-separated values. The first line of tab-separated
	// values names the columns. The values are not quoted.
	Path      string
	Tokenizer *tokenizer.WordPiece
	Length    int // number of positions of a sample, including special tokens; longer texts are truncated
	// Text, Second and Label name the columns or fields. The defaults are "text", no second text, and "label".
	Text, Second, Label string
	// Classes are the names of the classes, for example those of the training file. nil means the sorted labels of
	// this file.
	Classes []string
	// Numbered permits labels that are indices of Classes. All labels of a file must be names, or all must be indices.
	// If the name of a class is a number, all labels are names: ratings from 1 to 5 are never the classes 0 to 4.
	Numbered bool
	// Locate returns the index in Classes for a label that is not exactly one of the names, for example because of its
	// case. nil: labels must be equal to the names of their classes.
	Locate func(label string) (at int, ok bool)
	// SkipDamaged leaves out faulty lines (Classification.LeftOut). Otherwise the first faulty line is an error.
	SkipDamaged bool
}

// Classification holds labelled texts, or pairs of texts, in memory:
//
//	[CLS] text [SEP]               without a second text
//	[CLS] text [SEP] second [SEP]  with a second text
//
// If a pair is too long, the longer text is truncated first.
//
//	field     shape
//	tokens    (Length)
//	labels    (), the class
//	segments  (Length)
//	lengths   ()
type Classification struct {
	o       ClassificationOptions
	classes []string
	labels  labelling
	tokens  []int32 // tokens of all samples, without special tokens
	rows    []row
	unknown int // number of [UNK] tokens in the texts, before truncation
	encoded int // number of tokens in the texts, before truncation
	left    []data.LeftOut
}

// row describes one sample.
type row struct {
	at            int64 // position of the first token in Classification.tokens
	first, second int32 // number of tokens of the first and the second text
	label         int32
	truncated     bool
}

func (o *ClassificationOptions) setDefaults() {
	o.Text, o.Label = cmp.Or(o.Text, "text"), cmp.Or(o.Label, "label")
}

// LabelledLine is a line of a file of labelled texts.
type LabelledLine struct {
	Number       int // line number, counted from 1
	Text, Second []byte
	Label        string
	Err          error // reason why the line is not a labelled text
}

// EachLabelled calls visit for each labelled text and each faulty line of a file, in order. It stops at the first error
// of visit. It uses neither Tokenizer nor Length. If the file cannot be read, or its first line does not name the
// columns, the error is a *data.Fault.
func (o ClassificationOptions) EachLabelled(ctx context.Context, visit func(LabelledLine) error) error {
	o.setDefaults()
	c := &Classification{o: o}
	var columns []string
	number := 0
	err := o.eachLine(ctx, func(line []byte) error {
		number++
		if err := ctx.Err(); err != nil {
			return err
		}
		names := columns == nil && !o.isJSON() // the line names the columns, unless it is empty
		text, second, label, err := c.values(withoutMark(line, number), o.isJSON(), &columns)
		switch {
		case err != nil && names:
			return fmt.Errorf("line %d: %w", number, err)
		case err == nil && text == nil:
			return nil
		}
		return visit(LabelledLine{number, text, second, label, err})
	})
	if err != nil && ctx.Err() == nil {
		return fault("read labelled texts", o.Path, "", err)
	}
	return err
}

// isJSON reports whether the file has JSON lines.
func (o ClassificationOptions) isJSON() bool {
	return o.EachLine != nil || strings.HasSuffix(o.Path, ".jsonl") || strings.HasSuffix(o.Path, ".ndjson")
}

// eachLine calls visit with each line of the source.
func (o ClassificationOptions) eachLine(ctx context.Context, visit func(line []byte) error) error {
	if o.EachLine != nil {
		return o.EachLine(ctx, visit)
	}
	f, info, err := stored.Open(o.Path)
	if err != nil {
		return err
	}
	defer f.Close() // read only
	return regular.EachLineOf(o.Path, f, info.Size(), visit)
}

// unit returns the word for a line in messages.
func (o ClassificationOptions) unit() string {
	if o.EachLine != nil {
		return "row"
	}
	return "line"
}

// OpenClassification reads and tokenizes a file. If the file is faulty, the error is a *data.Fault with the line.
func OpenClassification(ctx context.Context, o ClassificationOptions) (*Classification, error) {
	o.setDefaults()
	if o.Tokenizer == nil {
		return nil, errors.New("labelled texts: no tokenizer")
	}
	if err := checkLength("labelled texts", o.Length, 5); err != nil {
		return nil, err
	}
	o.Numbered = o.Numbered && !slices.ContainsFunc(o.Classes, isNumber)
	c := &Classification{o: o}
	labels, err := c.read(ctx)
	if err == nil {
		err = c.setClasses(labels)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fault("read labelled texts", o.Path, "", err)
	}
	return c, nil
}

// LeftOut returns the lines that were left out.
func (c *Classification) LeftOut() []data.LeftOut { return c.left }

// read adds all samples of the file and returns their labels.
func (c *Classification) read(ctx context.Context) (labels []string, err error) {
	lines := c.o.isJSON()
	e := c.o.Tokenizer.NewEncoder()
	var columns []string
	number := 0
	unit := c.o.unit()
	err = c.o.eachLine(ctx, func(line []byte) error {
		number++
		if err := ctx.Err(); err != nil {
			return err
		}
		named := lines || columns != nil
		text, second, label, err := c.values(withoutMark(line, number), lines, &columns)
		if err == nil && text != nil {
			label, err = c.class(label)
		}
		if err != nil {
			err = fmt.Errorf("%s %d: %w", unit, number, err)
			if !c.o.SkipDamaged || !named {
				return err
			}
			c.left = append(c.left, data.LeftOut{Path: c.o.Path, Reason: err})
			return nil
		}
		if text != nil {
			labels = append(labels, label)
			c.add(e, text, second)
		}
		return nil
	})
	switch {
	case err != nil || len(labels) > 0:
	case len(c.left) > 0:
		err = fmt.Errorf("no line has a labelled text: %w", c.left[0].Reason)
	default:
		err = errors.New("no labelled texts")
	}
	return labels, err
}

// withoutMark removes a byte order mark from the first line of a file. Some editors on Windows write this mark.
func withoutMark(line []byte, number int) []byte {
	if number > 1 {
		return line
	}
	return bytes.TrimPrefix(line, []byte("\ufeff"))
}

// values returns the texts and the label of a line. The result text is nil for an empty line and for the line with the
// column names.
func (c *Classification) values(line []byte, isJSON bool, columns *[]string) (text, second []byte, label string,
	err error) {
	if line == nil {
		return nil, nil, "", errors.New("more than 16 MiB, want a shorter line")
	}
	if at := firstInvalid(line); at >= 0 {
		if !isJSON && *columns == nil {
			if text := c.o.otherFormat(line); text != "" {
				return nil, nil, "", errors.New(text)
			}
		}
		return nil, nil, "", fmt.Errorf("byte %d is not UTF-8: % x", at, line[at:min(len(line), at+8)])
	}
	line = bytes.TrimRight(line, "\r\n")
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil, "", nil
	}
	var value func(name string) (string, error)
	switch {
	case isJSON:
		object, err := jsonObject(line)
		if err != nil {
			return nil, nil, "", fmt.Errorf("want a JSON object: %w", err)
		}
		value = func(name string) (string, error) { return jsonValue(object, name) }
	case *columns == nil:
		*columns = strings.Split(string(line), "\t")
		for _, name := range []string{c.o.Text, c.o.Label, c.o.Second} {
			if name != "" && !slices.Contains(*columns, name) {
				return nil, nil, "", c.o.noColumn(name, line, *columns)
			}
			if at := slices.Index(*columns, name); at >= 0 && slices.Contains((*columns)[at+1:], name) {
				return nil, nil, "", fmt.Errorf("two columns have the name %q, want one", name)
			}
		}
		return nil, nil, "", nil
	default:
		cells := strings.Split(string(line), "\t")
		if len(cells) != len(*columns) {
			return nil, nil, "", fmt.Errorf("got %d columns, want %d: %q", len(cells), len(*columns), *columns)
		}
		value = func(name string) (string, error) { return cells[slices.Index(*columns, name)], nil }
	}
	get := func(name string) string {
		v, bad := value(name)
		err = errors.Join(err, bad)
		return v
	}
	text, label = []byte(get(c.o.Text)), strings.TrimSpace(get(c.o.Label))
	if c.o.Second != "" {
		second = []byte(get(c.o.Second))
	}
	if err == nil && label == "" {
		err = fmt.Errorf("%q is empty, want a label", c.o.Label)
	}
	if text == nil {
		text = []byte{}
	}
	return text, second, label, err
}

func firstInvalid(line []byte) int {
	if utf8.Valid(line) {
		return -1
	}
	for i := 0; i < len(line); {
		r, n := utf8.DecodeRune(line[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// jsonObject parses a line. Numbers remain json.Number.
func jsonObject(line []byte) (object map[string]any, err error) {
	for _, text := range [][]byte{line, pyjson.Standard(line)} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if bad := d.Decode(&object); bad == nil {
			return object, nil
		} else if err == nil {
			err = bad
		}
	}
	return nil, err
}

// jsonValue returns a field of an object as text. The field must be a string, a number or a boolean.
func jsonValue(object map[string]any, name string) (string, error) {
	switch v := object[name].(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	case nil:
		return "", fmt.Errorf("no value of %q", name)
	case []any:
		return "", fmt.Errorf("%q is a list, want one string or number; a text has one label", name)
	default:
		return "", fmt.Errorf("%q is an object, want a string or a number", name)
	}
}

// add appends a sample. The caller sets the label later.
func (c *Classification) add(e tokenizer.Encoder, text, second []byte) {
	r := row{at: int64(len(c.tokens))}
	c.tokens = e.Append(c.tokens, text)
	first := len(c.tokens) - int(r.at)
	all := e.Append(c.tokens, second)
	for _, token := range all[r.at:] {
		if token == c.o.Tokenizer.Specials.Unknown {
			c.unknown++
		}
	}
	c.encoded += len(all) - int(r.at)
	n, m := fit(first, len(all)-len(c.tokens), c.o.Length-c.specials())
	r.truncated = n+m < len(all)-int(r.at)
	copy(all[int(r.at)+n:], all[len(c.tokens):len(c.tokens)+m])
	c.tokens = all[:int(r.at)+n+m]
	r.first, r.second = int32(n), int32(m)
	c.rows = append(c.rows, r)
}

// fit returns the lengths to which two texts are truncated, so that their sum is at most capacity. The longer text is
// truncated first.
func fit(first, second, capacity int) (int, int) {
	excess := max(first+second-capacity, 0)
	if excess > 0 {
		difference := min(max(first-second, second-first), excess)
		if first > second {
			first -= difference
		} else {
			second -= difference
		}
		excess -= difference
		first -= excess / 2
		second -= excess - excess/2
	}
	return first, second
}

func (c *Classification) specials() int {
	if c.o.Second != "" {
		return 3
	}
	return 2
}

// labelling states whether the labels of a file are names or numbers.
type labelling int

const (
	unknownLabels labelling = iota
	byName
	byNumber
)

// class returns the class name for a label. The first label determines whether all labels are names or numbers.
func (c *Classification) class(label string) (string, error) {
	all := c.o.Classes
	if all == nil {
		return label, nil
	}
	if c.labels != byNumber && slices.Contains(all, label) {
		c.labels = byName
		return label, nil
	}
	if c.labels != byNumber && c.o.Locate != nil {
		if at, ok := c.o.Locate(label); ok {
			c.labels = byName
			return all[at], nil
		}
	}
	if n, err := strconv.Atoi(label); c.o.Numbered && c.labels != byName && err == nil && n >= 0 && n < len(all) &&
		strconv.Itoa(n) == label {
		c.labels = byNumber
		return all[n], nil
	}
	if c.labels == byNumber {
		return "", fmt.Errorf("got label %.40q, want a class number from 0 to %d, as in earlier lines", label,
			len(all)-1)
	}
	return "", fmt.Errorf("got label %.40q, want one of %.200q", label, all)
}

func isNumber(name string) bool {
	_, err := strconv.ParseFloat(name, 64)
	return err == nil
}

// setClasses assigns a class number to each label. If the options list the classes, read has already checked the
// labels.
func (c *Classification) setClasses(labels []string) error {
	c.classes = c.o.Classes
	if c.classes == nil {
		c.classes = slices.Compact(slices.Sorted(slices.Values(labels)))
		sortNumbers(c.classes)
	}
	number := map[string]int32{}
	for i, name := range c.classes {
		number[name] = int32(i)
	}
	for i, label := range labels {
		c.rows[i].label = number[label]
	}
	if len(c.classes) < 2 {
		return fmt.Errorf("all labels are %q, want at least two classes", c.classes)
	}
	return nil
}

// sortNumbers sorts the labels by value if all labels are integers. Otherwise it changes nothing.
func sortNumbers(labels []string) {
	values := map[string]int{}
	for _, l := range labels {
		n, err := strconv.Atoi(l)
		if err != nil {
			return
		}
		values[l] = n
	}
	slices.SortStableFunc(labels, func(a, b string) int { return values[a] - values[b] })
}

// WriteTo writes the tokens and labels of all samples, for example to a hash.
func (c *Classification) WriteTo(w io.Writer) (total int64, err error) {
	var line []byte
	for i := range c.rows {
		line = c.appendRow(line[:0], i)
		n, err := w.Write(line)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// Sum returns a hash of the tokens of sample i, without its label.
func (c *Classification) Sum(i int) uint64 {
	const label = 4 // bytes
	return data.SumOf(c.appendRow(nil, i)[label:])
}

// appendRow appends the label, the lengths and the tokens of sample i.
func (c *Classification) appendRow(line []byte, i int) []byte {
	r := c.rows[i]
	for _, v := range []int32{r.label, r.first, r.second} {
		line = binary.LittleEndian.AppendUint32(line, uint32(v))
	}
	for _, v := range c.tokens[r.at:][:r.first+r.second] {
		line = binary.LittleEndian.AppendUint32(line, uint32(v))
	}
	return line
}

// Split divides the samples into a training part and an evaluation part. Each sample is for evaluation with probability
// fraction. The choice depends only on the index of the sample. Both parts share the memory and the classes of c.
func (c *Classification) Split(fraction float64) (train, eval *Classification) {
	parts := [2]Classification{*c, *c}
	for i := range parts {
		parts[i].rows = nil
	}
	for i, r := range c.rows {
		random, part := data.NewRandom(0, 0, i, data.ForDocuments), 0
		if random.Float64() < fraction {
			part = 1
		}
		parts[part].rows = append(parts[part].rows, r)
	}
	return &parts[0], &parts[1]
}

// Len implements [data.Samples].
func (c *Classification) Len() int { return len(c.rows) }

// Classes returns the names of the classes. The caller must not modify the slice.
func (c *Classification) Classes() []string { return c.classes }

// Label returns the class number of sample i.
func (c *Classification) Label(i int) int { return int(c.rows[i].label) }

// Length returns the number of positions of sample i without padding.
func (c *Classification) Length(i int) int {
	return int(c.rows[i].first+c.rows[i].second) + c.specials()
}

// Truncated returns the number of samples that were truncated to Length.
func (c *Classification) Truncated() (n int) {
	for i := range c.rows {
		if c.rows[i].truncated {
			n++
		}
	}
	return n
}

// Unknown returns the fraction of [UNK] tokens in all texts of the file.
func (c *Classification) Unknown() float64 {
	return float64(c.unknown) / float64(max(c.encoded, 1))
}

// Layout implements [data.Samples].
func (c *Classification) Layout(*data.Options) (data.Layout, error) {
	return data.Layout{Fields: []data.Field{perPosition(Tokens, c.o.Length), perSample(Labels),
		perPosition(Segments, c.o.Length), perSample(Lengths)}}, nil
}

// NewSource implements [data.Samples].
func (c *Classification) NewSource(*data.Options) (data.Source, error) {
	return &classificationSource{c, make([]int32, 0, c.o.Length), make([]int32, 0, c.o.Length)}, nil
}

type classificationSource struct {
	*Classification
	tokens, segments []int32
}

// Close implements [data.Source].
func (s *classificationSource) Close() error { return nil }

// Read implements [data.Source].
func (s *classificationSource) Read(span *data.Span, errs []error) {
	k := s.o.Tokenizer.Specials
	for j := span.Lo; j < span.Hi; j++ {
		r := s.rows[span.Index[j]]
		text := s.Classification.tokens[r.at:][:r.first+r.second]
		s.tokens, s.segments = join(s.tokens[:0], s.segments[:0], k, text[:r.first], text[r.first:], s.o.Second != "")
		put(span.Field(0, j), s.tokens, k.Pad)
		putOne(span.Field(1, j), r.label)
		put(span.Field(2, j), s.segments, 0)
		putOne(span.Field(3, j), int32(len(s.tokens)))
		errs[j-span.Lo] = nil
	}
}

// join appends the tokens and segments of a sample to two slices. If pair is set, it adds the second text.
func join(tokens, segments []int32, k tokenizer.Specials, first, second []int32, pair bool) ([]int32, []int32) {
	tokens = append(append(append(tokens, k.Class), first...), k.Separator)
	for range len(first) + 2 {
		segments = append(segments, 0)
	}
	if pair {
		tokens = append(append(tokens, second...), k.Separator)
		for range len(second) + 1 {
			segments = append(segments, 1)
		}
	}
	return tokens, segments
}

// Pair returns the tokens and segments of a text or a pair of texts, as in a sample of Classification. It truncates the
// texts such that the result has at most length positions.
func Pair(w *tokenizer.WordPiece, e tokenizer.Encoder, first, second []byte, pair bool, length int) (tokens,
	segments []int32) {
	a, b, specials := e.Append(nil, first), []int32(nil), 2
	if pair {
		b, specials = e.Append(nil, second), 3
	}
	n, m := fit(len(a), len(b), length-specials)
	return join(nil, nil, w.Specials, a[:n], b[:m], pair)
}
