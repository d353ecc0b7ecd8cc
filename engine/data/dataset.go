package data

import (
	"errors"
	"io"
	"slices"
	"strings"
	"time"
)

// FullDecodePixels is the largest number of pixels of an image that is always decoded at full size. Larger images may
// be decoded at a reduced size (Sizer). The limit depends only on the image, so a cache does not change any pixel.
const FullDecodePixels = 1 << 16

// Dataset is a fixed set of labelled images. Its methods are safe for concurrent use.
type Dataset interface {
	// Len returns the number of samples; indices are 0 to Len()-1.
	Len() int
	// Classes returns the class names, indexed by label. The caller must not modify the slice.
	Classes() []string
	// Label returns the class of sample i, an index into Classes, without reading an image.
	Label(i int) int
	// NewReader returns a Reader with its own buffers, for one goroutine.
	NewReader() (Reader, error)
}

// Splits contains the training and evaluation parts of a data set.
type Splits struct {
	Train         Dataset
	Eval          Dataset // nil if there are no evaluation samples
	Normalization Normalization
	OwnEval       bool      // Eval is stored separately, and was not split off from the training samples
	EvalFrom      string    // origin of Eval if OwnEval is set, such as `part validation, valid/`; may be ""
	Same          bool      // Train and Eval are the same samples, because the data set was opened for evaluation only
	LeftOut       []LeftOut // damaged parts that were left out, in the order of the data set
	Files         int       // number of files, including those in LeftOut; 0: unknown
	Unused        string    // folder or files of a part that is in neither Train nor Eval; "" if there is no such part
	Closer        io.Closer // frees resources that both parts use; may be nil
	Fingerprint   string    // hash of all names and labels; "" if the numbers of samples identify the data set

	// Sets is not nil if a sample can have several labels. Dataset.Label is then an index into Sets.Sets, and
	// Dataset.Classes describes the sets. If Sets is nil, each sample has one class.
	Sets *LabelSets
}

// LabelSets are the label sets of a data set whose samples have any number of labels.
type LabelSets struct {
	Names []string  // names of the labels, indexed by label
	Sets  [][]int32 // labels of each set, in ascending order
}

// Describe returns the names of the labels of a set.
func (s *LabelSets) Describe(set int) string {
	if len(s.Sets[set]) == 0 {
		return "(no label)"
	}
	names := make([]string, len(s.Sets[set]))
	for i, label := range s.Sets[set] {
		names[i] = s.Names[label]
	}
	return strings.Join(names, "|")
}

// fill writes 1 to the slice for each label of a set, and 0 for all other labels. The slice has one element for each
// label.
func (s *LabelSets) fill(set int, to []int32) {
	clear(to)
	for _, label := range s.Sets[set] {
		to[label] = 1
	}
}

// Relabelled returns the sets with the labels of a trained model. The parameter names contains the names of these
// labels. Label i of s becomes label number[i] of the result.
func (s *LabelSets) Relabelled(names []string, number []int) *LabelSets {
	out := &LabelSets{Names: names, Sets: make([][]int32, len(s.Sets))}
	for k, set := range s.Sets {
		for _, label := range set {
			out.Sets[k] = append(out.Sets[k], int32(number[label]))
		}
		slices.Sort(out.Sets[k])
	}
	return out
}

// Close frees files and memory. The caller must close all Readers first.
func (s Splits) Close() error {
	if s.Closer == nil {
		return nil
	}
	return s.Closer.Close()
}

// Subset keeps only the first classes of both parts; the parameter classes is their number. It keeps at most perClass
// training samples of each class. 0 means all.
func (s Splits) Subset(classes, perClass int) Splits {
	s.Train = Subset(s.Train, classes, perClass)
	if s.Eval != nil {
		s.Eval = Subset(s.Eval, classes, 0)
	}
	return s
}

// Skip replaces unreadable samples of both parts; see the function Skip.
func (s Splits) Skip(limit int, report func(*Fault)) Splits {
	s.Train = Skip(s.Train, limit, report)
	if s.Eval != nil {
		s.Eval = Skip(s.Eval, limit, report)
	}
	return s
}

// Limited limits each part to n samples; see the function Limited.
func (s Splits) Limited(n int) Splits {
	s.Train = Limited(s.Train, n)
	if s.Eval != nil {
		s.Eval = Limited(s.Eval, n)
	}
	return s
}

// Cached keeps small decoded images of both parts in memory; see the function Cached. The limit is divided in
// proportion to the numbers of samples.
func (s Splits) Cached(limit int64) Splits { return s.CachedWithin(limit, nil) }

// CachedWithin is Cached with a budget that both parts share, in addition to the limit.
func (s Splits) CachedWithin(limit int64, budget *Budget) Splits {
	if s.Eval == nil {
		s.Train = cachedWithin(s.Train, limit, budget)
		return s
	}
	if limit == 0 {
		limit = DefaultCacheBytes
	}
	forEval := limit
	if limit > 0 {
		train, eval := int64(s.Train.Len()), int64(s.Eval.Len())
		// at least 1, because 0 means the default
		forEval = max(int64(float64(limit)*float64(eval)/float64(train+eval)), 1)
		limit = max(limit-forEval, 1)
	}
	s.Train, s.Eval = cachedWithin(s.Train, limit, budget), cachedWithin(s.Eval, forEval, budget)
	return s
}

// Reader decodes samples of one Dataset. It is not safe for concurrent use.
type Reader interface {
	// Read decodes sample i into img. img.Pix may refer to memory of the Reader or of the Dataset. It is valid until
	// the next Read or Close, and the caller must not modify it. If sizer is not nil, images with more than
	// FullDecodePixels pixels may be decoded at a reduced size. Data errors are *Fault.
	Read(i int, sizer Sizer, img *Image) error
	Close() error
}

// Encoded is implemented by Readers whose images are stored as files.
type Encoded interface {
	// Contents returns the encoded image of sample i, valid until the next call. It returns ErrNotEncoded if the
	// sample is not stored as a file.
	Contents(i int) ([]byte, error)
}

// ErrNotEncoded means that samples are stored as pixels.
var ErrNotEncoded = errors.New("the samples of this data set are not stored as files")

// Sizer determines the required size of a decoded image.
type Sizer interface {
	// MinSize returns the smallest permitted size, in pixels, of a decoded image. The stored image has width x height
	// pixels, and the result never exceeds this size.
	MinSize(width, height int) (minWidth, minHeight int)
}

// Image is a decoded image with 8 bits per channel.
type Image struct {
	Pix           []byte // (Height, Width, 3), red, green, blue, no padding
	Width, Height int    // pixels
	// FullWidth and FullHeight are the size of the stored image in pixels. They are larger than Width and Height
	// after a decode at a reduced size.
	FullWidth, FullHeight int
	// EncodedBytes is the size of the encoded image; 0 if unknown. Fetched is the time that the Reader waited for these
	// bytes; 0 if unknown.
	EncodedBytes int
	Fetched      time.Duration
	// Contents are the stored bytes of the sample, as read, even if they cannot be decoded. They are valid as long as
	// Pix. The machines of a run compare hashes of these bytes. nil: the data set does not provide the bytes.
	Contents []byte
}

// Normalization holds the per-channel constants for (x/255 - Mean) / Std.
type Normalization struct {
	Mean, Std [3]float32 // red, green, blue; 1 is full scale (255)
}

// The usual constants. NormalizeImageNet is also suitable for other photographs.
var (
	NormalizeImageNet = Normalization{Mean: [3]float32{0.485, 0.456, 0.406}, Std: [3]float32{0.229, 0.224, 0.225}}
	NormalizeCIFAR10  = Normalization{Mean: [3]float32{0.4914, 0.4822, 0.4465},
		Std: [3]float32{0.2470, 0.2435, 0.2616}}
	NormalizeCIFAR100 = Normalization{Mean: [3]float32{0.5071, 0.4865, 0.4409},
		Std: [3]float32{0.2673, 0.2564, 0.2762}}
	NormalizeSynthetic = Normalization{Mean: [3]float32{0.5, 0.5, 0.5}, Std: [3]float32{0.25, 0.25, 0.25}}
)
