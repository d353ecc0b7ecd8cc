package checkpoint

import (
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Limits of a safetensors file. They prevent a hostile file from making its reader use far more memory than the size of
// the file.
const (
	maxHeaderBytes   = 100_000_000 // limit of the reference implementation
	maxTensors       = 1 << 17
	maxNameBytes     = 4096
	maxDims          = 32
	maxMetadataBytes = 16 << 20

	metadataKey = "__metadata__"
)

// elementTypes lists the element types that files may contain. If the engine cannot compute in a type, the type has no
// tensor.DType. The list includes such types because weights of other programs contain them (masks, token tables).
var elementTypes = []struct {
	wire  string
	dtype tensor.DType
	bytes int64
}{
	{"F64", tensor.F64, 8}, {"F32", tensor.F32, 4}, {"F16", tensor.F16, 2}, {"BF16", tensor.BF16, 2},
	{"I64", tensor.I64, 8}, {"I32", tensor.I32, 4}, {"I16", tensor.Invalid, 2}, {"I8", tensor.Invalid, 1},
	{"U64", tensor.Invalid, 8}, {"U32", tensor.U32, 4}, {"U16", tensor.Invalid, 2}, {"U8", tensor.U8, 1},
	{"BOOL", tensor.Invalid, 1}, {"F8_E4M3", tensor.Invalid, 1}, {"F8_E5M2", tensor.Invalid, 1},
	{"F8_E8M0", tensor.Invalid, 1},
	{"C64", tensor.Invalid, 8},
}

// Info describes one tensor of a safetensors file.
type Info struct {
	Name  string
	DType tensor.DType // tensor.Invalid if the engine does not have this type
	Wire  string       // element type as written in the file, such as "F32"
	Shape tensor.Shape

	offset, bytes int64 // byte offset and size in the data section
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

// Tensor is a tensor to write, or a tensor that was read.
type Tensor struct {
	Name  string
	DType tensor.DType
	Shape tensor.Shape
	Data  []byte // little endian, row major

	// If Data is nil, Stream is called once to write the data of the tensor. The number of bytes must match DType and
	// Shape. With Stream, a device can convert its private layout tensor by tensor, without a second copy of the model.
	Stream func(w io.Writer) error

	// Sum is the required CRC-32C of the data when it is written; nil: any. See AlteredError.
	Sum *uint32
}

// Info returns the description of t as a tensor of a file.
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

// dataBytes returns the number of bytes of a tensor: the product of the extents and the element size. It returns an
// error if the product overflows int64.
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
