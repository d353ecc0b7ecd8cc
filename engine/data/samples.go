package data

import (
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Samples is the source of a Loader: a fixed number of samples that have the same fields. Its methods are safe for
// concurrent use. [Images] provides the samples of a data set of images.
//
// A Samples may also have the method Replaced(i int) bool. It must report whether sample i was unreadable and has been
// replaced. Batch.Replaced is the number of such samples.
type Samples interface {
	// Len returns the number of samples; indices are 0 to Len()-1.
	Len() int
	// Layout returns the fields of a sample, or an error if the samples cannot be read with these options.
	Layout(o *Options) (Layout, error)
	// NewSource returns a Source with its own buffers, for one goroutine. The caller has already called Layout with o.
	NewSource(o *Options) (Source, error)
}

// Lengths is implemented by Samples of unequal lengths.
type Lengths interface {
	// Length returns the number of positions of sample i, or an upper bound. Fields with Field.PerPosition contain only
	// padding from this position on.
	Length(i int) int
}

// Layout is the memory layout of samples.
type Layout struct {
	Fields []Field
	// Group is the number of adjacent positions of a batch that one call of Source.Read fills, if the share contains
	// all of them. Samples that depend on each other, such as mixed images, are therefore decoded once. 0 means 1.
	Group int
}

// Field is a named value of every sample, such as its pixels or its label.
type Field struct {
	Name  string
	DType tensor.DType
	Shape []int // shape in one sample; nil: a single element
	// Pad is the value of each byte of missing samples in a batch. With 0xff, integers are -1, the label of ignored
	// targets.
	Pad byte
	// PerPosition states that the first dimension of Shape is the position in the sample; see Lengths.
	PerPosition bool
}

// Bytes returns the size of the field in one sample.
func (f Field) Bytes() int { return int(tensor.Shape(f.Shape).Elements() * f.DType.Size()) }

// IDs is the name of the field that the Loader adds to every batch: the indices of the samples, i64.
const IDs = "ids"

// Source reads samples into the memory of batches. It is not safe for concurrent use.
type Source interface {
	// Read writes the samples of positions s.Lo to s.Hi-1. It sets errs[k] to the error of position s.Lo+k, or to nil.
	// Data errors are *Fault.
	//
	// The result must be a function of the seed, s.Epoch, the position within the epoch and the sample indices only. It
	// then does not depend on workers and shares.
	Read(s *Span, errs []error)
	Close() error
}

// LabelCounter is implemented by a Source whose samples have unequal numbers of labels. It is necessary if training
// needs the number of all labels of an optimizer step before the step.
type LabelCounter interface {
	// CountLabels returns the number of labels that Read writes for a sample.
	CountLabels(epoch, index int) (int, error)
}

// Span is a range of adjacent positions of one batch, for a Source to read.
type Span struct {
	Lo, Hi int // first position, and position after the last one
	Epoch  int
	First  int     // position of the batch's first sample in the epoch
	Index  []int32 // sample indices of the whole batch, by position; read-only

	slot *slot
}

// Field returns the memory of one field at position j, Lo <= j < Hi. The parameter field is an index of Layout.Fields.
func (s *Span) Field(field, j int) []byte { return s.slot.fieldBytes(1+field, j) }

// elements returns memory as a slice of T. The memory must be aligned for T.
func elements[T uint8 | int32 | int64 | float32](memory []byte) []T {
	var v T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/int(unsafe.Sizeof(v)))
}
