package tensor

import "fmt"

// DType is the type of one element.
type DType uint8

// The element types. The zero value is invalid, so that an unset DType causes an error.
const (
	Invalid DType = iota
	F32
	F64
	BF16 // 8 exponent bits, 7 fraction bits: the upper half of an F32
	F16  // IEEE 754 binary16
	I64
	I32
	U32
	U8
	// Opaque is state that one kernel saves for another kernel, for example the bit mask of a ReLU. Only the device
	// knows the size and the meaning of this state. An Opaque tensor therefore has no shape until its op is compiled.
	Opaque
)

var dtypes = [...]struct {
	name string
	size int64
}{
	Invalid: {"invalid", 0},
	F32:     {"f32", 4},
	F64:     {"f64", 8},
	BF16:    {"bf16", 2},
	F16:     {"f16", 2},
	I64:     {"i64", 8},
	I32:     {"i32", 4},
	U32:     {"u32", 4},
	U8:      {"u8", 1},
	Opaque:  {"opaque", 1},
}

// Size returns the size of one element in bytes.
func (d DType) Size() int64 { return dtypes[d].size }

func (d DType) String() string {
	if int(d) < len(dtypes) {
		return dtypes[d].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// IsFloat reports whether d holds real numbers.
func (d DType) IsFloat() bool { return d == F32 || d == F64 || d == BF16 || d == F16 }
