//go:build cgo && linux

package native

// #include "hetero_collective.h"
import "C"

import (
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/signature"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// PutSignature writes a signature without Parts to the hetero_signature at p.
func PutSignature(p unsafe.Pointer, s signature.Signature) {
	*(*C.hetero_signature)(p) = C.hetero_signature{number: C.uint64_t(s.Number), kind: C.int32_t(s.Kind),
		dtype:  C.int32_t(s.DType),
		reduce: C.int32_t(s.Reduce), root: C.int32_t(s.Root), elements: C.int64_t(s.Elements)}
}

// Signature returns the hetero_signature at p.
func Signature(p unsafe.Pointer) signature.Signature {
	s := (*C.hetero_signature)(p)
	return signature.Signature{Number: uint64(s.number), Kind: signature.Kind(s.kind), DType: tensor.DType(s.dtype),
		Reduce: collective.Reduce(s.reduce), Root: int(s.root), Elements: int64(s.elements), Parts: uint64(s.parts)}
}
