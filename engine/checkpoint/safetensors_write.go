package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Write writes tensors as one safetensors file. It sorts the tensors by descending element size, then by name. Equal
// tensors therefore always result in equal files, and every tensor is aligned for its element type. Write does not copy
// the data. It returns errors of w unchanged.
func Write(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	return writeTensors(w, tensors, metadata, func(string, uint32) {})
}

// writeTensors is the same as Write, but also calls sum with the CRC-32C of each tensor's data.
func writeTensors(w io.Writer, tensors []Tensor, metadata map[string]string, sum func(name string, crc uint32)) error {
	ordered := slices.Clone(tensors)
	slices.SortFunc(ordered, func(a, b Tensor) int {
		return cmp.Or(-cmp.Compare(a.DType.Size(), b.DType.Size()), cmp.Compare(a.Name, b.Name))
	})
	header, err := appendHeader(make([]byte, 8), ordered, metadata)
	if err != nil {
		return err
	}
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	size := len(header) - 8
	if size > maxHeaderBytes {
		return fmt.Errorf("safetensors header of %d bytes, want at most %d", size, maxHeaderBytes)
	}
	binary.LittleEndian.PutUint64(header, uint64(size))
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range ordered {
		out := &tensorWriter{w: w, left: t.Info().bytes}
		if err := t.writeTo(out); err != nil {
			return fmt.Errorf("write tensor %q: %w", t.Name, err)
		}
		if t.Sum != nil && *t.Sum != out.crc {
			return &AlteredError{Tensor: t.Name, Got: out.crc, Want: *t.Sum}
		}
		sum(t.Name, out.crc)
	}
	return nil
}

// writeTo writes the data of t.
func (t Tensor) writeTo(out *tensorWriter) (err error) {
	if t.Stream != nil && t.Data == nil {
		err = t.Stream(out)
	} else {
		_, err = out.Write(t.Data)
	}
	if err == nil && out.left != 0 {
		err = fmt.Errorf("%d of %d bytes of %s are missing", out.left, t.Info().bytes, t.Info().describe())
	}
	return err
}

// Checksum reads the data of t and returns its CRC-32C. It keeps no copy.
func (t Tensor) Checksum() (uint32, error) {
	out := &tensorWriter{w: io.Discard, left: t.Info().bytes}
	if err := t.writeTo(out); err != nil {
		return 0, fmt.Errorf("read tensor %q: %w", t.Name, err)
	}
	return out.crc, nil
}

// appendHeader appends the JSON header for tensors, in the order of their data.
func appendHeader(b []byte, tensors []Tensor, metadata map[string]string) ([]byte, error) {
	if len(tensors) > maxTensors {
		return nil, fmt.Errorf("%d tensors, want at most %d", len(tensors), maxTensors)
	}
	b = append(b, '{')
	if len(metadata) > 0 {
		b = append(b, `"`+metadataKey+`":{`...)
		for _, key := range slices.Sorted(maps.Keys(metadata)) {
			if !writableName(key) || !utf8.ValidString(metadata[key]) {
				return nil, fmt.Errorf("metadata %q: want UTF-8 and a key of 1 to %d bytes", key, maxWrittenNameBytes)
			}
			b = appendString(b, key)
			b = append(b, ':')
			b = append(appendString(b, metadata[key]), ',')
		}
		b[len(b)-1] = '}'
		b = append(b, ',')
	}
	offset := int64(0)
	seen := make(map[string]bool, len(tensors))
	for _, t := range tensors {
		size, err := checkTensor(t, seen)
		if err != nil {
			return nil, err
		}
		if offset+size < offset {
			return nil, fmt.Errorf("got tensors of more than 2^63 bytes in total")
		}
		b = appendString(b, t.Name)
		b = append(b, `:{"dtype":"`+wireName(t.DType)+`","shape":[`...)
		for i, extent := range t.Shape {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(extent), 10)
		}
		b = append(b, `],"data_offsets":[`...)
		b = strconv.AppendInt(b, offset, 10)
		b = append(b, ',')
		offset += size
		b = strconv.AppendInt(b, offset, 10)
		b = append(b, "]},"...)
	}
	return append(bytes.TrimSuffix(b, []byte(",")), '}'), nil
}

// maxWrittenNameBytes is smaller than maxNameBytes, because JSON escapes may turn one byte of a name into six.
const maxWrittenNameBytes = maxNameBytes / 6

func writableName(name string) bool {
	return name != "" && len(name) <= maxWrittenNameBytes && utf8.ValidString(name)
}

// checkTensor returns an error for a tensor that a reader would refuse. It is called before anything is written.
func checkTensor(t Tensor, seen map[string]bool) (size int64, err error) {
	switch {
	case t.Name == metadataKey || !writableName(t.Name):
		return 0, fmt.Errorf("tensor name %q: want 1 to %d bytes of UTF-8, not %s", t.Name, maxWrittenNameBytes,
			metadataKey)
	case seen[t.Name]:
		return 0, fmt.Errorf("tensor %q appears twice", t.Name)
	case wireName(t.DType) == "":
		return 0, fmt.Errorf("tensor %q: safetensors files have no element type %v", t.Name, t.DType)
	case len(t.Shape) > maxDims:
		return 0, fmt.Errorf("tensor %q: %d dimensions, want at most %d", t.Name, len(t.Shape), maxDims)
	}
	seen[t.Name] = true
	if size, err = dataBytes(t.Shape, t.DType.Size()); err != nil {
		return 0, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if t.Stream == nil && int64(len(t.Data)) != size {
		return 0, fmt.Errorf("tensor %q: got %d bytes of data, %s needs %d", t.Name, len(t.Data), t.Info().describe(),
			size)
	}
	return size, nil
}

func appendString(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // every string has a JSON representation
	}
	return append(b, text...)
}

// writeChunkBytes is so small that a chunk remains in the CPU cache between its checksum and its write.
const writeChunkBytes = 1 << 20

// tensorWriter writes at most left bytes to w and computes their checksum.
type tensorWriter struct {
	w    io.Writer
	left int64
	crc  uint32
}

func (t *tensorWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > t.left {
		return 0, fmt.Errorf("got at least %d bytes more than the shape needs", int64(len(p))-t.left)
	}
	written := 0
	for len(p) > 0 {
		chunk := p[:min(len(p), writeChunkBytes)]
		t.crc = crc32.Update(t.crc, castagnoli, chunk)
		n, err := t.w.Write(chunk)
		written += n
		if err != nil {
			return written, err
		}
		t.left -= int64(n)
		p = p[len(chunk):]
	}
	return written, nil
}
