package parts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
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

func digest(sum []byte) string { return "content " + hex.EncodeToString(sum[:8]) }

// NamesSamples reports whether the machines compare the names of the samples when they compare Content.
func (o *Opened) NamesSamples() bool {
	_, named := o.stored.Train.(data.Described)
	return named
}
