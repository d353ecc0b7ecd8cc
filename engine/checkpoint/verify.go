package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Fault describes a fault in a checkpoint or a safetensors file.
type Fault struct {
	Path   string `json:"path"`   // path of the file, or of the folder if the fault does not concern a file
	Tensor string `json:"tensor"` // name of the tensor; "" if the fault does not concern a tensor
	// byte offset of the damaged tensor, or of the first value that is not finite; -1 if unknown
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`  // number of affected bytes, starting at Offset
	Reason string `json:"reason"` // description with the found and the expected value
}

func (f Fault) String() string {
	text := f.Path
	if f.Tensor != "" {
		text += fmt.Sprintf(": tensor %q", f.Tensor)
	}
	if f.Offset >= 0 {
		text += fmt.Sprintf(": bytes %d to %d", f.Offset, f.Offset+f.Bytes-1)
	}
	return text + ": " + f.Reason
}

// Verified is the result of Verify.
type Verified struct {
	Path    string
	Files   int
	Tensors int
	Bytes   int64   // number of bytes read
	Faults  []Fault // in the order of the files, then of their data

	Compared string // State.DescribeCompared; "" for a file
}

// List returns the folder names of the checkpoints in dir, newest first. It does not open them. Error: *IOError.
func List(dir string) ([]string, error) {
	fsys, err := openFolder(dir)
	if err != nil {
		return nil, ioError("open checkpoints", dir, err)
	}
	defer fsys.root.Close()
	list, err := candidates(fsys)
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.name
	}
	return names, ioError("list checkpoints", dir, err)
}

// Verify reads all bytes of the checkpoint in the folder at path. It lists each fault that makes Load fail, and each
// tensor with a value that is not finite. If possible, Verify continues after a fault. It returns an *IOError if the
// system cannot read a file, or a *FormatError for a checkpoint of a later version.
func Verify(path string) (Verified, error) {
	dir, err := openFolder(path)
	if err != nil {
		return Verified{}, ioError("open checkpoint", path, err)
	}
	defer dir.root.Close()
	v := &verifier{fsys: dir, Verified: Verified{Path: path}}
	if err := v.note(refuseQuarantined(path)); err != nil {
		return v.Verified, err
	}
	m, err := readManifest(dir, ".", path)
	if err := v.note(err); err != nil {
		return v.Verified, err
	}
	for _, name := range checkpointFiles {
		want, listed := m.files[name]
		if err := v.file(name, want, listed); err != nil {
			return v.Verified, err
		}
	}
	return v.Verified, nil
}

// VerifyFile reads all bytes of a safetensors file, or of the files of an index, and lists all faults. Error: *IOError.
func VerifyFile(path string) (Verified, error) {
	v := &verifier{Verified: Verified{Path: path, Files: 1}}
	f, err := OpenFile(path)
	if err != nil {
		return v.Verified, v.note(err)
	}
	defer f.Close()
	files := f.files()
	v.Files = len(files)
	for _, file := range files {
		if err := v.tensors(file); err != nil {
			return v.Verified, err
		}
	}
	return v.Verified, nil
}

type verifier struct {
	Verified
	fsys fileSystem
}

// note records a *CorruptError as a Fault. It returns other errors.
func (v *verifier) note(err error) error {
	var bad *CorruptError
	if errors.As(err, &bad) {
		v.Faults = append(v.Faults, Fault{Path: bad.Path, Offset: -1, Reason: bad.Reason})
		return nil
	}
	return err
}

// file verifies one file of a checkpoint. If the manifest has an entry for the file, listed is true and want is the
// entry.
func (v *verifier) file(name string, want fileSum, listed bool) error {
	path := v.Path
	label := filepath.Join(path, name)
	src, size, err := openIn(v.fsys, ".", path, name)
	if err != nil {
		return v.note(err)
	}
	defer src.Close()
	v.Files++
	before := len(v.Faults)
	if listed && size != want.bytes {
		v.fault(label, "got %d bytes, want %d as in the manifest", size, want.bytes)
	}
	hash := sha256.New()
	if _, err := io.CopyBuffer(hash, io.NewSectionReader(src, 0, size), make([]byte, writeChunkBytes)); err != nil {
		return ioError("read", label, err)
	}
	v.Bytes += size
	if got := hex.EncodeToString(hash.Sum(nil)); listed && got != want.sha256 {
		v.fault(label, "got SHA-256 %.12s…, want %.12s… as in the manifest", got, want.sha256)
	}
	if name == stateFile {
		return v.state(src, size, label, len(v.Faults) > before)
	}
	f, err := NewFile(src, size, label)
	if err != nil {
		return v.note(err)
	}
	if listed {
		f.sums = want.tensors
		v.names(f)
	}
	return v.tensors(f)
}

func (v *verifier) fault(path, format string, args ...any) {
	v.Faults = append(v.Faults, Fault{Path: path, Offset: -1, Reason: fmt.Sprintf(format, args...)})
}

// state decodes state.json. If damaged is set, the damage was already reported.
func (v *verifier) state(src readFile, size int64, label string, damaged bool) error {
	if size > maxStateBytes {
		v.fault(label, "got %d bytes, want at most %d", size, maxStateBytes)
		return nil
	}
	text := make([]byte, size)
	if err := readFull(src, text, 0); err != nil {
		return ioError("read", label, err)
	}
	state, err := decodeState(text)
	step, _, named := parseStepName(filepath.Base(v.Path))
	switch {
	case damaged:
	case err != nil:
		v.fault(label, "%v", err)
	case named && state.Step != step:
		v.fault(label, "the state belongs to step %d, but the folder has the name of step %d", state.Step, step)
	default:
		v.Compared = state.DescribeCompared()
	}
	return nil
}

// names compares the tensors of a file with those in the manifest.
func (v *verifier) names(f *File) {
	for _, t := range f.tensors {
		if _, ok := f.sums[t.Name]; !ok {
			v.Faults = append(v.Faults, Fault{Path: f.path, Tensor: t.Name, Offset: f.data + t.offset, Bytes: t.bytes,
				Reason: "the manifest does not list this tensor"})
		}
	}
	var missing []string
	for name := range f.sums {
		if _, ok := f.index[name]; !ok {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	for _, name := range missing {
		v.Faults = append(v.Faults, Fault{Path: f.path, Tensor: name, Offset: -1,
			Reason: "the manifest lists this tensor, but it is not in the file"})
	}
}

// tensors verifies the data of all tensors of a file.
func (v *verifier) tensors(f *File) error {
	single := v.fsys == nil // the data was not yet read for a hash
	if single {
		v.Bytes += f.data
	}
	for _, t := range f.tensors {
		v.Tensors++
		crc, bad, err := f.examine(t)
		if err != nil {
			return err
		}
		if single {
			v.Bytes += t.bytes
		}
		at := Fault{Path: f.path, Tensor: t.Name, Offset: f.data + t.offset, Bytes: t.bytes}
		if want, ok := f.sums[t.Name]; ok && crc != want {
			at.Reason = fmt.Sprintf("got CRC-32C %08x, want %08x as in the manifest", crc, want)
			v.Faults = append(v.Faults, at)
		}
		if bad.count > 0 {
			size := t.DType.Size()
			at.Offset, at.Bytes = at.Offset+bad.first*size, size
			at.Reason = fmt.Sprintf("element %d of %d is %g; NaN or infinite elements: %d", bad.first, t.bytes/size,
				bad.value, bad.count)
			v.Faults = append(v.Faults, at)
		}
	}
	return nil
}

// notFinite describes the NaN and infinite values of a tensor.
type notFinite struct {
	count, first int64 // number of these elements; index of the first of them
	value        float64
}

// examine reads a tensor in chunks. It computes the checksum and finds values that are not finite.
func (f *File) examine(t Info) (crc uint32, bad notFinite, err error) {
	buffer := make([]byte, min(t.bytes, writeChunkBytes))
	for at := int64(0); at < t.bytes; at += int64(len(buffer)) {
		buffer = buffer[:min(int64(len(buffer)), t.bytes-at)]
		if err := readFull(f.src, buffer, f.data+t.offset+at); err != nil {
			return 0, bad, ioError("read", f.path, fmt.Errorf("tensor %q: %w", t.Name, err))
		}
		crc = crc32.Update(crc, castagnoli, buffer)
		if t.DType.IsFloat() {
			bad.add(buffer, t.DType, at/t.DType.Size())
		}
	}
	return crc, bad, nil
}

// add examines the numbers in p. The first of them is the element of the tensor at index at. A number is finite unless
// all bits of its exponent are set.
func (b *notFinite) add(p []byte, d tensor.DType, at int64) {
	size := int(d.Size())
	for i := 0; i+size <= len(p); i += size {
		var v float64
		switch d {
		case tensor.F32:
			bits := binary.LittleEndian.Uint32(p[i:])
			if bits&0x7f800000 != 0x7f800000 {
				continue
			}
			v = float64(math.Float32frombits(bits))
		case tensor.F64:
			bits := binary.LittleEndian.Uint64(p[i:])
			if bits&0x7ff0000000000000 != 0x7ff0000000000000 {
				continue
			}
			v = math.Float64frombits(bits)
		case tensor.BF16:
			bits := binary.LittleEndian.Uint16(p[i:])
			if bits&0x7f80 != 0x7f80 {
				continue
			}
			v = float64(tensor.F32FromBF16(bits))
		case tensor.F16:
			bits := binary.LittleEndian.Uint16(p[i:])
			if bits&0x7c00 != 0x7c00 {
				continue
			}
			v = float64(tensor.F32FromF16(bits))
		}
		if b.count++; b.count == 1 {
			b.first, b.value = at+int64(i/size), v
		}
	}
}
