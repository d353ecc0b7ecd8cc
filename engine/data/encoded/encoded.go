// Package encoded reads the images of data sets that store them encoded in larger files: packages webdataset and
// huggingface.
package encoded

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/images"
)

// Images contains the encoded images of a data set.
type Images interface {
	// Load returns the contents of image i. It uses buf if buf is large enough. The result may be an enlarged buf even
	// if Load fails.
	Load(i int, buf []byte) ([]byte, error)
	// Place returns the location of image i, for errors.
	Place(i int) string
	// Open returns the fetches of a reader, or nil if the images are not read ahead.
	Open() *data.Fetches
}

// NewReader returns a reader that decodes the images of s. The reader implements data.Encoded.
func NewReader(s Images, o images.DecodeOptions) (data.Reader, error) {
	dec, err := images.NewDecoder(o)
	if err != nil {
		return nil, err
	}
	return &reader{images: s, decoder: dec, fetches: s.Open()}, nil
}

// reader reads and decodes samples.
type reader struct {
	images  Images
	decoder *images.Decoder
	fetches *data.Fetches // nil: the images are read on demand
	stored  []byte        // buffer of load
}

func (r *reader) Close() error {
	r.decoder.Close()
	r.fetches.Close()
	return nil
}

func (r *reader) Read(i int, sizer data.Sizer, img *data.Image) error {
	if err := r.read(i, sizer, img); err != nil {
		return r.fault(i, err)
	}
	return nil
}

// Contents implements data.Encoded. It does not use the Fetcher, because the comparison of machines reads other samples
// at its own pace.
func (r *reader) Contents(i int) ([]byte, error) {
	contents, err := r.load(i)
	if err != nil {
		return nil, r.fault(i, err)
	}
	return contents, nil
}

func (r *reader) fault(i int, err error) error {
	return &data.Fault{Op: "read sample", Index: i, Path: r.images.Place(i), Err: err}
}

func (r *reader) read(i int, sizer data.Sizer, img *data.Image) error {
	return r.decoder.Read(func() ([]byte, time.Duration, error) {
		if r.fetches != nil {
			return r.fetches.Read(i)
		}
		started := time.Now()
		contents, err := r.load(i)
		return contents, time.Since(started), err
	}, sizer, img)
}

// load reads an image into the buffer of the reader.
func (r *reader) load(i int) ([]byte, error) {
	contents, err := r.images.Load(i, r.stored)
	if cap(contents) > 0 {
		r.stored = contents[:cap(contents)]
	}
	return contents, err
}
