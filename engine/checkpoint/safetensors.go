package checkpoint

import (
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Limits of a safetensors file, so that a hostile file cannot make its reader use more memory than the file has bytes.
const (
	maxHeaderBytes   = 100_000_000 // as in the reference implementation
	maxTensors       = 1 << 17
	maxNameBytes     = 4096
	maxDims          = 32
	maxMetadataBytes = 16 << 20

	metadataKey = "__metadata__"
)

// elementTypes lists the permitted element types in files. Types in which the engine does not compute have no
// tensor.DType; they are permitted because weights of other programs contain them (masks, token tables).
var elementTypes = []struct {
	wire  string
	dtype tensor.DType
	bytes int64
}{
	{"F64", tensor.F64, 8}, {"F32", tensor.F32, 4}, {"F16", tensor.F16, 2}, {"BF16", tensor.BF16, 2},
	{"I64", tensor.I64, 8}, {"I32", tensor.I32, 4}, {"I16", tensor.Invalid, 2}, {"I8", tensor.Invalid, 1},
	{"U64", tensor.Invalid, 8}, {"U32", tensor.U32, 4}, {"U16", tensor.Invalid, 2}, {"U8", tensor.U8, 1},
	{"BOOL", tensor.Invalid, 1},
}

// Info describes one tensor of a safetensors file.
type Info struct {
	Name  string
	DType tensor.DType // tensor.Invalid if the engine has no such type
	Wire  string       // the element type in the notation of the file: "F32"
	Shape tensor.Shape

	offset, bytes int64 // in the data section
}

// Bytes returns the size of the tensor's data in bytes.
func (i Info) Bytes() int64 { return i.bytes }

func (i Info) describe() string {
	wire := i.Wire
	if wire == "" {
		wire = wireName(i.DType)
	}
	return wire + " " + i.Shape.String()
}

// Tensor is a tensor to write, or one that was read.
type Tensor struct {
	Name  string
	DType tensor.DType
	Shape tensor.Shape
	Data  []byte // little endian, row major

	// Stream writes the data if Data is nil: exactly the bytes of DType and Shape. It is called once. It permits the
	// conversion of a device's private layout tensor by tensor, without a second copy of the model.
	Stream func(w io.Writer) error
}

// Info returns the description of t in a file.
func (t Tensor) Info() Info {
	n, _ := dataBytes(t.Shape, t.DType.Size())
	return Info{Name: t.Name, DType: t.DType, Wire: wireName(t.DType), Shape: t.Shape, bytes: n}
}

func wireName(d tensor.DType) string {
	for _, e := range elementTypes {
		if e.dtype == d && d != tensor.Invalid {
			return e.wire
		}
	}
	return ""
}

// dataBytes returns the product of the extents and the element size, or an error if it overflows int64.
func dataBytes(shape []int, element int64) (int64, error) {
	n := uint64(element)
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v: got extent %d, want 0 or more", shape, d)
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Errorf("shape %v: more than 2^63 bytes", shape)
		}
		n = lo
	}
	return int64(n), nil
}
