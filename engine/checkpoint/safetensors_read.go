package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// File is an open safetensors file. Its methods except Close are safe for concurrent use.
type File struct {
	path     string
	src      io.ReaderAt // nil for an index
	closers  []io.Closer // closed by Close; nil if the caller owns src
	data     int64       // byte offset of the data section in the file
	tensors  []Info      // in the order of their data
	index    map[string]int
	metadata map[string]string
	sums     map[string]uint32 // CRC-32C by tensor name; nil without a manifest
	parts    map[string]*File  // maps the name of a tensor to a file of an index; nil for a single file
}

// OpenFile opens the safetensors file at path and checks its header. If path ends in IndexSuffix, it is an index, and
// OpenFile opens the files of the index as one. The data of tensors is read on demand. Errors: *IOError, *CorruptError.
func OpenFile(path string) (*File, error) {
	if strings.HasSuffix(path, IndexSuffix) {
		return openIndex(path)
	}
	f, info, err := regular.Open(path)
	if err != nil {
		return nil, ioError("open", path, err)
	}
	file, err := NewFile(f, info.Size(), path)
	if err != nil {
		f.Close()
		return nil, err
	}
	file.closers = []io.Closer{f}
	return file, nil
}

// NewFile checks the header of the safetensors file in src. The parameter size is the size of the file in bytes. Errors
// contain path as the name of the file. The caller must keep src open while the File is in use, and must close src
// later. Errors: *IOError, *CorruptError.
func NewFile(src io.ReaderAt, size int64, path string) (*File, error) {
	var prefix [8]byte
	if size < int64(len(prefix)) {
		return nil, corrupt(path, "safetensors file of %d bytes, want at least 8", size)
	}
	if err := readFull(src, prefix[:], 0); err != nil {
		return nil, ioError("read", path, err)
	}
	headerBytes := binary.LittleEndian.Uint64(prefix[:])
	if headerBytes > maxHeaderBytes {
		if string(prefix[:4]) == "PK\x03\x04" || prefix[0] == 0x80 && prefix[1] >= 2 && prefix[1] <= 5 {
			return nil, &pyTorchError{path}
		}
		return nil, corrupt(path, "header of %d bytes, want at most %d", headerBytes, maxHeaderBytes)
	}
	data := int64(headerBytes) + int64(len(prefix))
	if data > size {
		return nil, corrupt(path, "the header ends at byte %d, the file ends at byte %d", data, size)
	}
	header := make([]byte, headerBytes)
	if err := readFull(src, header, int64(len(prefix))); err != nil {
		return nil, ioError("read", path, err)
	}
	infos, metadata, err := parseHeader(header, size-data)
	if err != nil {
		return nil, corrupt(path, "%v", err)
	}
	f := &File{path: path, src: src, data: data, tensors: infos, metadata: metadata,
		index: make(map[string]int, len(infos))}
	for i, info := range infos {
		f.index[info.Name] = i
	}
	return f, nil
}

// readFull reads len(p) bytes at offset. It returns an error if the file is too short.
func readFull(src io.ReaderAt, p []byte, offset int64) error {
	n, err := src.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Path returns the path of the file, as passed to OpenFile or NewFile.
func (f *File) Path() string { return f.path }

// Tensors returns all tensors in the order of their data.
func (f *File) Tensors() []Info { return slices.Clone(f.tensors) }

// Metadata returns the metadata of the file: arbitrary text by key.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// Info returns the description of a tensor, or false if the file does not contain it.
func (f *File) Info(name string) (Info, bool) {
	i, ok := f.index[name]
	if !ok {
		return Info{}, false
	}
	return f.tensors[i], true
}

// ReadInto reads the data of a tensor into dst, little endian and row major. dst must have exactly the size of the
// data. In a checkpoint, ReadInto compares the data with the checksum in the manifest. Errors: *IOError,
// *CorruptError, *MismatchError if the file does not contain the tensor.
func (f *File) ReadInto(name string, dst []byte) error {
	info, ok := f.Info(name)
	if !ok {
		return &MismatchError{
			Path: f.path, Differences: []Difference{{Name: name, Model: fmt.Sprintf("%d bytes", len(dst))}}}
	}
	if int64(len(dst)) != info.bytes {
		return fmt.Errorf("read tensor %q of %s: got a buffer of %d bytes, want %d", name, f.path, len(dst), info.bytes)
	}
	if part := f.parts[name]; part != nil {
		return part.ReadInto(name, dst)
	}
	if err := readFull(f.src, dst, f.data+info.offset); err != nil {
		return ioError("read", f.path, fmt.Errorf("tensor %q: %w", name, err))
	}
	if f.sums != nil {
		if got, want := crc32.Checksum(dst, castagnoli), f.sums[name]; got != want {
			return corrupt(f.path, "tensor %q: got CRC-32C %08x, want %08x as in the manifest", name, got, want)
		}
	}
	return nil
}

// Read returns a tensor with its data in new memory. DType is tensor.Invalid if the engine does not have the element
// type.
func (f *File) Read(name string) (Tensor, error) {
	info, ok := f.Info(name)
	if !ok {
		return Tensor{}, f.ReadInto(name, nil)
	}
	t := Tensor{Name: name, DType: info.DType, Shape: info.Shape, Data: make([]byte, info.bytes)}
	return t, f.ReadInto(name, t.Data)
}

// Check compares the tensors of the file with those of a model: names, element types and shapes. It returns a
// *MismatchError with all differences, or nil. It uses only Name, DType and Shape of want.
func (f *File) Check(want []Info) error {
	var differences []Difference
	wanted := make(map[string]bool, len(want))
	for _, w := range want {
		wanted[w.Name] = true
		got, ok := f.Info(w.Name)
		switch {
		case !ok:
			differences = append(differences, Difference{Name: w.Name, Model: w.describe()})
		case got.DType != w.DType || got.DType == tensor.Invalid || !got.Shape.Equal(w.Shape):
			differences = append(differences, Difference{Name: w.Name, File: got.describe(), Model: w.describe()})
		}
	}
	for _, got := range f.tensors {
		if !wanted[got.Name] {
			differences = append(differences, Difference{Name: got.Name, File: got.describe()})
		}
	}
	if len(differences) == 0 {
		return nil
	}
	slices.SortFunc(differences, func(a, b Difference) int { return strings.Compare(a.Name, b.Name) })
	return &MismatchError{Path: f.path, Differences: differences}
}

// Model is the memory of a model's tensors; see File.Load.
type Model interface {
	// Each calls f for every tensor of the model.
	Each(f func(name string, dtype tensor.DType, shape tensor.Shape))
	// Fill calls read for every tensor, and sets the tensor to the data that read writes to dst.
	Fill(read func(name string, dst []byte) error) error
}

// Load compares the tensors of the file with those of m. It then fills the tensors of m with the function read, which
// is ReadInto, or ReadAverage of a checkpoint. If the tensors differ, Load does not change m and returns a
// *MismatchError.
func (f *File) Load(m Model, read func(name string, dst []byte) error) error {
	var want []Info
	m.Each(func(name string, dtype tensor.DType, shape tensor.Shape) {
		want = append(want, Info{Name: name, DType: dtype, Shape: shape})
	})
	if err := f.Check(want); err != nil {
		return err
	}
	return m.Fill(read)
}

// Close closes a file that OpenFile opened, or that belongs to a Checkpoint.
func (f *File) Close() error {
	var errs []error
	for _, c := range f.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
