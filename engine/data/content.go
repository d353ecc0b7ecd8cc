package data

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"sync/atomic"
)

// Content is stored data in numbered units, such as image files or blocks of token files. Package content compares the
// units of the machines of a run. A Content is safe for concurrent use.
type Content interface {
	// Len returns the number of units; units are 0 to Len()-1.
	Len() int
	// Name returns the name of unit i, for use in messages.
	Name(i int) string
	// Listed returns a hash of the properties of unit i that are known without reading it: its name, label and size.
	Listed(i int) uint64
	// NewSummer returns a Summer for one goroutine.
	NewSummer() (Summer, error)
}

// ErrDiffers is returned if ranks read different data; see package content.
var ErrDiffers = errors.New("the ranks read different data")

// Summer reads units of one Content. It is not safe for concurrent use.
type Summer interface {
	// Sum returns the hash (SumOf) of the stored bytes of unit i, and their number. It returns ErrNotEncoded if the
	// data set does not provide stored bytes.
	Sum(i int) (sum uint64, bytes int, err error)
	Close() error
}

// Described is implemented by Datasets whose samples have names.
type Described interface {
	// Describe returns the name of sample i and the number of its stored bytes. The name is the same on all machines
	// with the same data. The number is 0 if it is unknown without reading the sample.
	Describe(i int) (name string, bytes int64)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SumOf returns a 64-bit hash of stored bytes, which is never 0. It consists of two 32-bit checksums with different
// polynomials, which processors compute at memory speed. A random difference remains undetected with a probability of
// 2^-64. The hash gives no protection from an attacker.
func SumOf(contents []byte) uint64 {
	return max(uint64(crc32.Checksum(contents, castagnoli))<<32|uint64(crc32.ChecksumIEEE(contents)), 1)
}

// MixSum appends one hash to a sequence of hashes, and returns the new hash of the sequence.
func MixSum(sequence, sum uint64) uint64 {
	return (bits.RotateLeft64(sequence, 23) ^ sum) * 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio
}

// ContentOf returns the samples of image data sets as one Content: all samples of the first part, then those of the
// second part, and so on. A part may be nil. A data set provides names if it implements Described. It provides stored
// bytes if its Readers implement Encoded or set Image.Contents.
func ContentOf(parts ...Dataset) Content {
	all := &datasets{}
	for number, part := range parts {
		if part != nil {
			all.parts = append(all.parts, section{part, all.len, number})
			all.len += part.Len()
		}
	}
	return all
}

// datasets is the Content of data sets of images.
type datasets struct {
	parts []section
	len   int
}

// section is one of the data sets. The field first is the number of the unit that contains its sample 0.
type section struct {
	Dataset
	first  int
	number int // index of the argument of ContentOf
}

func (d *datasets) Len() int { return d.len }

// find returns the part that contains unit i, the part's position in d.parts, and the index of the sample in the part.
func (d *datasets) find(i int) (part section, at, index int) {
	for at = len(d.parts) - 1; at > 0 && i < d.parts[at].first; {
		at--
	}
	return d.parts[at], at, i - d.parts[at].first
}

func (d *datasets) Name(i int) string {
	part, _, index := d.find(i)
	if named, ok := part.Dataset.(Described); ok {
		name, _ := named.Describe(index)
		return name
	}
	if part.number == 0 {
		return fmt.Sprintf("training sample %d", index)
	}
	return fmt.Sprintf("evaluation sample %d", index)
}

func (d *datasets) Listed(i int) uint64 {
	part, _, index := d.find(i)
	sum := MixSum(uint64(part.number), uint64(part.Label(index)))
	if named, ok := part.Dataset.(Described); ok {
		name, bytes := named.Describe(index)
		sum = MixSum(MixSum(sum, uint64(bytes)), SumOf([]byte(name)))
	}
	return sum
}

func (d *datasets) NewSummer() (Summer, error) {
	return &imageSummer{d: d, readers: make([]Reader, len(d.parts))}, nil
}

// imageSummer opens a Reader of each part on demand.
type imageSummer struct {
	d       *datasets
	readers []Reader
	image   Image
}

func (s *imageSummer) Sum(i int) (sum uint64, bytes int, err error) {
	part, at, index := s.d.find(i)
	if s.readers[at] == nil {
		if s.readers[at], err = part.NewReader(); err != nil {
			return 0, 0, err
		}
	}
	contents, err := storedBytes(s.readers[at], index, &s.image)
	if err != nil {
		return 0, 0, err
	}
	return SumOf(contents), len(contents), nil
}

func storedBytes(r Reader, i int, img *Image) ([]byte, error) {
	if encoded, ok := r.(Encoded); ok {
		if contents, err := encoded.Contents(i); err == nil || err != ErrNotEncoded {
			return contents, err
		}
	}
	*img = Image{}
	if err := r.Read(i, nil, img); err != nil {
		return nil, err
	}
	if img.Contents == nil {
		return nil, ErrNotEncoded
	}
	return img.Contents, nil
}

func (s *imageSummer) Close() error {
	var first error
	for _, r := range s.readers {
		if r != nil {
			if err := r.Close(); first == nil {
				first = err
			}
		}
	}
	return first
}

// Watch sends the hashes of samples to a receiver when Readers of watched data sets read the samples. Without a
// receiver, the Readers compute no hashes.
type Watch struct {
	to atomic.Pointer[func(unit int, sum uint64)]
}

// Send sets the receiver, which must be safe for concurrent use.
func (w *Watch) Send(to func(unit int, sum uint64)) { w.to.Store(&to) }

// Watched returns s with Readers that send the hashes of samples to w. The units are those of ContentOf(s.Train,
// s.Eval). Readers that do not set Image.Contents send nothing.
func (s Splits) Watched(w *Watch) Splits {
	first := s.Train.Len()
	s.Train = &watched{s.Train, w, 0}
	if s.Eval != nil {
		s.Eval = &watched{s.Eval, w, first}
	}
	return s
}

type watched struct {
	Dataset
	w     *Watch
	first int // unit of sample 0
}

func (d *watched) NewReader() (Reader, error) {
	r, err := d.Dataset.NewReader()
	if err != nil {
		return nil, err
	}
	return &watchedReader{r, d}, nil
}

type watchedReader struct {
	Reader
	d *watched
}

func (r *watchedReader) Read(i int, sizer Sizer, img *Image) error {
	img.Contents = nil
	err := r.Reader.Read(i, sizer, img)
	if to := r.d.w.to.Load(); to != nil && img.Contents != nil {
		(*to)(r.d.first+i, SumOf(img.Contents)) // even if the image cannot be decoded
	}
	return err
}
