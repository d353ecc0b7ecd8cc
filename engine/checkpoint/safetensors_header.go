package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// parseHeader parses the JSON header of a safetensors file. The parameter dataSize is the size of the data section in
// bytes. The tensors are returned in the order of their data.
//
// The grammar of the header is small, so this file has its own scanner. encoding/json would accept duplicate keys,
// and would allocate memory for any nesting in a hostile header.
func parseHeader(header []byte, dataSize int64) ([]Info, map[string]string, error) {
	if !utf8.Valid(header) {
		return nil, nil, fmt.Errorf("header is not UTF-8")
	}
	if len(header) == 0 || header[0] != '{' {
		return nil, nil, fmt.Errorf("header does not begin with {")
	}
	var (
		s        = scanner{text: header}
		infos    []Info
		metadata map[string]string
		seen     = map[string]bool{}
	)
	err := s.object(func(name string) error {
		if seen[name] {
			return fmt.Errorf("name %q appears twice", name)
		}
		seen[name] = true
		if name == metadataKey {
			var err error
			metadata, err = s.metadata()
			return err
		}
		if len(infos) == maxTensors {
			return fmt.Errorf("more than %d tensors", maxTensors)
		}
		info, err := s.tensor(name)
		infos = append(infos, info)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("header byte %d: %w", s.at, err)
	}
	if rest := bytes.Trim(header[s.at:], " "); len(rest) != 0 {
		return nil, nil, fmt.Errorf("header byte %d: got %d bytes after the object, want only spaces", s.at, len(rest))
	}
	return infos, metadata, checkOffsets(infos, dataSize)
}

// checkOffsets sorts the tensors by offset, and checks that they fill the data section exactly.
func checkOffsets(infos []Info, dataSize int64) error {
	slices.SortStableFunc(infos, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.bytes, b.bytes))
	})
	end := int64(0)
	for _, info := range infos {
		if info.offset != end {
			kind := "a gap"
			if info.offset < end {
				kind = "an overlap"
			}
			return fmt.Errorf("%s before tensor %q: got offset %d, want %d", kind, info.Name, info.offset, end)
		}
		end += info.bytes // cannot overflow, because tensor() has checked offset + bytes
	}
	if end != dataSize {
		return fmt.Errorf("the tensors end at byte %d of the data, the file ends at byte %d", end, dataSize)
	}
	return nil
}

// scanner scans the JSON text of a header.
type scanner struct {
	text []byte
	at   int // index of the next byte in text
}

func (s *scanner) next() byte {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(want byte) error {
	if got := s.next(); got != want {
		if s.at == len(s.text) {
			return fmt.Errorf("got the end of the header, want %q", want)
		}
		return fmt.Errorf("got %q, want %q", got, want)
	}
	s.at++
	return nil
}

// sequence reads elements that are separated by commas and enclosed in the given brackets.
func (s *scanner) sequence(open, close byte, element func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.next() == close {
		s.at++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.next() != ',' {
			return s.expect(close)
		}
		s.at++
	}
}

func (s *scanner) object(member func(key string) error) error {
	return s.sequence('{', '}', func() error {
		key, err := s.str(maxNameBytes)
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return member(key)
	})
}

// str reads a string of at most limit bytes, and decodes its escapes.
func (s *scanner) str(limit int) (string, error) {
	if err := s.expect('"'); err != nil {
		return "", err
	}
	escaped := false
	for i := s.at; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case i-s.at > limit:
			return "", fmt.Errorf("string of more than %d bytes", limit)
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			return "", fmt.Errorf("control character %#02x in a string", c)
		case c == '"':
			raw := s.text[s.at:i]
			if !escaped {
				s.at = i + 1
				return string(raw), nil
			}
			var text string
			if err := json.Unmarshal(s.text[s.at-1:i+1], &text); err != nil {
				return "", fmt.Errorf("string %q: %w", raw, err)
			}
			s.at = i + 1
			return text, nil
		}
	}
	return "", fmt.Errorf("string without an end")
}

// integer reads a number that consists only of digits and fits into int64.
func (s *scanner) integer() (int64, error) {
	s.next()
	begin := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	digits := s.text[begin:s.at]
	if len(digits) == 0 {
		end := begin
		for end < min(len(s.text), begin+20) && !bytes.ContainsRune([]byte(",]} \t\r\n"), rune(s.text[end])) {
			end++
		}
		return 0, fmt.Errorf("got %q, want a whole number that is not negative", s.text[begin:end])
	}
	if len(digits) > 1 && digits[0] == '0' {
		return 0, fmt.Errorf("number with a leading zero")
	}
	if len(digits) > 19 {
		return 0, fmt.Errorf("number of %d digits", len(digits))
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("got %q, want a whole number below 2^63", digits)
	}
	return n, nil
}

func (s *scanner) integers(limit int) ([]int64, error) {
	var list []int64
	err := s.sequence('[', ']', func() error {
		if len(list) == limit {
			return fmt.Errorf("more than %d numbers", limit)
		}
		n, err := s.integer()
		list = append(list, n)
		return err
	})
	return list, err
}

// maxSkippedDepth limits the nesting of values that skip reads, and therefore the size of the stack.
const maxSkippedDepth = 16

// skip reads and ignores any JSON value. The reference implementation also ignores unknown keys.
func (s *scanner) skip(depth int) error {
	element := func() error { return s.skip(depth + 1) }
	switch c := s.next(); {
	case depth > maxSkippedDepth:
		return fmt.Errorf("more than %d nested values", maxSkippedDepth)
	case c == '"':
		_, err := s.str(maxMetadataBytes)
		return err
	case c == '[':
		return s.sequence('[', ']', element)
	case c == '{':
		return s.object(func(string) error { return element() })
	}
	begin := s.at
	for s.at < len(s.text) && !bytes.ContainsRune([]byte(",]} \t\r\n"), rune(s.text[s.at])) {
		s.at++
	}
	if word := s.text[begin:s.at]; !json.Valid(word) {
		return fmt.Errorf("got %.20q, want a value", word)
	}
	return nil
}

// null skips null. It returns false for any other value.
func (s *scanner) null() bool {
	if s.next() != 'n' || !bytes.HasPrefix(s.text[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

func (s *scanner) metadata() (map[string]string, error) {
	if s.null() { // as in the reference implementation
		return nil, nil
	}
	metadata := map[string]string{}
	total := 0
	err := s.object(func(key string) error {
		if _, twice := metadata[key]; twice {
			return fmt.Errorf("metadata key %q appears twice", key)
		}
		value, err := s.str(maxMetadataBytes)
		metadata[key] = value
		if total += len(key) + len(value); total > maxMetadataBytes && err == nil {
			err = fmt.Errorf("more than %d bytes of metadata", maxMetadataBytes)
		}
		return err
	})
	return metadata, err
}

// tensor reads {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}.
func (s *scanner) tensor(name string) (Info, error) {
	info := Info{Name: name}
	var offsets []int64
	var haveType, haveShape, haveOffsets bool
	once := func(have *bool, key string) error {
		if *have {
			return fmt.Errorf("%q appears twice", key)
		}
		*have = true
		return nil
	}
	err := s.object(func(key string) (err error) {
		switch key {
		case "dtype":
			if err = once(&haveType, key); err == nil {
				info.Wire, err = s.str(maxNameBytes)
			}
		case "shape":
			if err = once(&haveShape, key); err == nil {
				info.Shape, err = s.shape()
			}
		case "data_offsets":
			if err = once(&haveOffsets, key); err == nil {
				offsets, err = s.integers(2)
			}
		default:
			err = s.skip(0)
		}
		return err
	})
	if err != nil {
		return info, fmt.Errorf("tensor %q: %w", name, err)
	}
	if !haveType || !haveShape || len(offsets) != 2 {
		return info, fmt.Errorf("tensor %q: want dtype, shape and two data_offsets", name)
	}
	if err := info.setRange(offsets[0], offsets[1]); err != nil {
		return info, fmt.Errorf("tensor %q: %w", name, err)
	}
	return info, nil
}

func (s *scanner) shape() (tensor.Shape, error) {
	extents, err := s.integers(maxDims)
	shape := make(tensor.Shape, len(extents))
	for i, n := range extents {
		if int64(int(n)) != n {
			return nil, fmt.Errorf("extent %d is too large", n)
		}
		shape[i] = int(n)
	}
	return shape, err
}

// setRange sets the position of the tensor. It checks the element type, and that the shape requires exactly the size of
// [begin, end).
func (i *Info) setRange(begin, end int64) error {
	at := -1
	for k, e := range elementTypes {
		if e.wire == i.Wire {
			at = k
		}
	}
	if at < 0 {
		return fmt.Errorf("unknown element type %q", i.Wire)
	}
	need, err := dataBytes(i.Shape, elementTypes[at].bytes)
	if err != nil {
		return err
	}
	if end < begin || end-begin != need {
		return fmt.Errorf("data_offsets [%d,%d] hold %d bytes, %s %v needs %d", begin, end, end-begin, i.Wire, i.Shape,
			need)
	}
	i.DType, i.offset, i.bytes = elementTypes[at].dtype, begin, need
	return nil
}
