package parts

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// ContentOf returns a digest of the names, shapes and values of all tensors.
func ContentOf(f *checkpoint.File) (string, error) {
	h := sha256.New()
	var buffer []byte
	for _, t := range f.Tensors() {
		fmt.Fprintf(h, "%q %v %v\n", t.Name, t.DType, t.Shape)
		buffer = slices.Grow(buffer[:0], int(t.Bytes()))[:t.Bytes()]
		if err := f.ReadInto(t.Name, buffer); err != nil {
			return "", err
		}
		h.Write(buffer)
	}
	return digest(h.Sum(nil)), nil
}
